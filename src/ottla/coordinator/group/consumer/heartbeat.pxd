# C types for `heartbeat.py`; see there.
