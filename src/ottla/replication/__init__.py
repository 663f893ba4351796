"""Replication of partitions, pure: who leads, what is committed, which fetches wait, which fetch sessions exist.

May import `ottla.metadata`, `ottla.protocol` and down; sees a log through the `ReplicaLog` protocol only. No clock, no
socket, no file: `now_ms` is an argument, and what must happen is returned or passed to a callback.
Start at `partition.py`.
"""
