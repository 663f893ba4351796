"""A node whose cluster lives in ZooKeeper: who leads and what is committed is decided there. Start at `elected_node.py`.
"""
