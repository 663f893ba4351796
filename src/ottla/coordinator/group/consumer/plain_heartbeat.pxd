# C types for `plain_heartbeat.py`; see there.
