# C types for `rebalance.py`; see there.
