"""Coordinators of groups, transactions and share state: the shards that this node leads (`coordinator_shards.py`), what
is done for them (`coordinator_effects.py`), and the requests that they send to other nodes."""
