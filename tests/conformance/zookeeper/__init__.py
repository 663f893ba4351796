"""The client of ZooKeeper beside a real ZooKeeper and kazoo."""
