"""`ottla migrate ...`: a cluster of Apache Kafka becomes one of Ottla.

`command.py` has the commands. `zookeeper.py` imports a cluster that is in ZooKeeper, by `ottla.migration`.
"""
