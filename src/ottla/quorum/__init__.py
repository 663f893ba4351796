"""Raft as Kafka does it (KRaft, KIP-595, 853): a core that takes messages and `now` and hands back effects.

Pure. May import `protocol` and what lies below it; it knows nothing of what the records of the log mean.
Start at `state.py` (roles, and what a replica knows) and `core.py` (transitions); `snapshot.py` has the format of what
it keeps in files.
"""
