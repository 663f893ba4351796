"""A model of a ZooKeeper ensemble on the simulated network, and runs of Ottla's client against it.

`tree.py` is the data tree and what changes it, `ensemble.py` decides and keeps sessions, `server.py` serves clients
from a copy that may lag. `checks.py` knows everything that was committed and compares what clients were told. Start at
`run.py`.
"""
