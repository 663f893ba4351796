"""A cluster with ZooKeeper becomes one of Ottla, and goes back: reads and writes the ensemble and the log directories.

What the znodes mean is in `ottla.znodes`, which is pure. Start at `importing.py`, then `rollback.py`; `decision.py` is
what the first host leaves in the ensemble for the others, `directories.py` what is written beside the logs.
"""
