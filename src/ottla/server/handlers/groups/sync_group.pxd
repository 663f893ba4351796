# C types for `sync_group.py`; see there.
