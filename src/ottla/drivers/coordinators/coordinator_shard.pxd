# C types for `coordinator_shard.py`; see there.
