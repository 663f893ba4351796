"""What was written, acknowledged and read in a run, and what of it contradicts Kafka's promises; pure.

`ottla check`, the simulation and the benchmarks note a run in these models and ask them. `records.py`: records of
producers and what consumers read (loss, duplicates, order). `transactions.py`: transactions and their readers
(atomicity, isolation). `acknowledgements.py`: when acknowledgements came. Both checkers give `findings.Finding`s.
"""
