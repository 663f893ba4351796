# C types for `target.py`; see there.
