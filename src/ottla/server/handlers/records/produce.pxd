# C types for `produce.py`; see there.
