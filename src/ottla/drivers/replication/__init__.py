"""Replicas that follow (`replica_fetcher.py`) and in-sync sets that are led (`isr_updater.py`); share-partitions."""
