# C types for `join.py`; see there.
