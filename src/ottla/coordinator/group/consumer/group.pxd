# C types for `group.py`; see there.
