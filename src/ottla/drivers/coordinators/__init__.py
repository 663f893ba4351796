"""Coordinators of groups, transactions and share state: the shards that this node leads (`coordinator_shards.py`),
and the requests that they send to other nodes."""
