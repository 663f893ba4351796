"""What breaks in a run, and when: `faults.py` for one node, `cluster_faults.py` for several."""
