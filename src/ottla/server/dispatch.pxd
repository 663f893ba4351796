# C types for `dispatch.py`; see there.
