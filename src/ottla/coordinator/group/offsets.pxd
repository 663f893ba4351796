# C types for `offsets.py`; see there.
