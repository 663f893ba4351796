"""Whole nodes and whole clusters, the real code, in one process and from one seed: `ottla sim`.

`world.py` puts nodes on the virtual time, network and disks of `ottla.testing`; `clients/clients.py` and its neighbours
use them as real clients do; `scenario.py` breaks things; `checks/history.py` compares what clients were told with what
is there. May import every layer below `cli`. Start at `scenario.py`.
"""
