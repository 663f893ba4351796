# C types for `timers.py`; see there.
