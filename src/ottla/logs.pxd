# C types for `logs.py`; see there.
