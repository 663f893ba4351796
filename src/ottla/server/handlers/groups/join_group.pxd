# C types for `join_group.py`; see there.
