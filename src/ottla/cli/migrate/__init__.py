"""`ottla migrate ...`: a cluster of Apache Kafka becomes one of Ottla.

`command.py` has the commands. `zookeeper.py` imports a cluster that is in ZooKeeper, by `ottla.migration`.
`command.py` has the commands. `check.py` asks (`survey.py`, pure data) and judges (`findings.py`, `node_settings.py`,
pure); `walk.py` exchanges node after node and keeps its progress (`journal.py`).
"""
