"""Nodes, voters, features, log directories and connected clients. Start at `describe_cluster.py`."""
