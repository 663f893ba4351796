# C types for `state.py`; see there.
