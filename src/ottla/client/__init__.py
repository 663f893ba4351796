"""A small client of Kafka's protocol on blocking sockets: what Spark's tasks and `ottla.arrow` read and write with.

It has no threads and no event loop: a task of Spark is a plain function in a process of its own, and the next fetch is
asked for before the records of the last one are worked on. `config.py`, then `connection.py` (one socket),
`cluster.py` (who leads what, offsets, coordinators) and `fetcher.py` (the records of one partition).
"""
