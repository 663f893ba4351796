"""The share coordinator of one partition of `__share_group_state` (KIP-932), as a pure, replayable state machine: it
keeps for the leaders of partitions how far the share groups have come.

Start at `shard.py` (requests in, effects out); `combining.py` puts batches of states together.
`assignor.py` is the group's side: who reads which partitions.
"""
