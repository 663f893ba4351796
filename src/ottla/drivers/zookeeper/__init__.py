"""A node whose cluster lives in ZooKeeper, where the controller is elected and its decisions count. Start at
`services.py`, then `cluster.py`.
"""
