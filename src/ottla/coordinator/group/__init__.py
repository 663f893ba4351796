"""Groups of consumers, of all kinds, and committed offsets.

Pure. May import `coordinator.timers` and `coordinator.effects`, `protocol`, and what lies below.
Start at `shard.py` (the door), then `classic/group.py` (a group and its states), `classic/rebalance.py` (how it moves);
`consumer/heartbeat.py` and `modern_group.py` are the same of KIP-848.
"""
