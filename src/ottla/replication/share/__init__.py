"""What the leader of a partition knows of a share group's deliveries from it (KIP-932): one `SharePartition` for each
group that reads it, pure.

May import what `ottla.replication` may. Start at `share_partition.py`; `window.py` has the records in flight.
"""
