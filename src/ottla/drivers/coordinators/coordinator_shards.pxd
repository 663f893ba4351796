# C types for `coordinator_shards.py`; see there.
