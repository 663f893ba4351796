# C types for `applying.py`; see there.
