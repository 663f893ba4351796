# C types for `shard.py`; see there.
