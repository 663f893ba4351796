# C types for `waiting_appends.py`; see there.
