"""Classic, consumer and streams groups and their offsets. Start at `join_group.py` and
`consumer_group_heartbeat.py`."""
