# C types for `consumer_group_heartbeat.py`; see there.
