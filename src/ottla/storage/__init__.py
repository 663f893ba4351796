"""The log on disk: segments and their indexes, recovery, retention, producer state, checkpoints.

May import `protocol`, `config` and the root modules; reaches the disk through `filesystem.py` only and takes `now_ms`
and randomness as arguments. Start with `log.py` (one partition) and `log_manager.py` (all of them).
"""
