# C types for `partitioning.py`; see there.
