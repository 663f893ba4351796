"""Coordinators as pure, replayable state machines: requests and time in, records, answers and timers out.

No clock, no socket, no file, no event loop. May import `metadata` and what lies below it.
Start at `group/shard.py`, one partition of `__consumer_offsets`, then `group/classic/group.py`;
`drivers/coordinators/coordinator_shards.py` feeds it.
"""
