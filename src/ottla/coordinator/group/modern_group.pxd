# C types for `modern_group.py`; see there.
