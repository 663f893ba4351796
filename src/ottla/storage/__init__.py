"""The log on disk: segments, indexes, recovery, retention, producer state and the set of a node's logs.

May import protocol, config, model, errors, clock and filesystem; reaches files through `ottla.filesystem` only.
Start at `log/log.py` (one partition, made of the parts in `log_*.py`), then `segments/segment.py`,
`recovery/segment_recovery.py`; `log_manager.py` holds all logs of a node.
"""
