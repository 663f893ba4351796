"""The partitions of this node (`replica_manager.py`, Kafka's `ReplicaManager`), and what damage to a log does to
them."""
