"""Clusters that live in a real ZooKeeper."""
