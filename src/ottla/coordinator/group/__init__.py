"""Groups of consumers: the classic rebalance protocol and committed offsets.

Pure. May import `coordinator.timers` and `coordinator.effects`, `protocol`, and what lies below.
Start at `classic.py` (a group and its states), then `rebalance.py` (how it moves), then one file per kind of request.
"""
