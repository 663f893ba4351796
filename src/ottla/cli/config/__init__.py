"""`ottla config ...`: settings of topics, groups and brokers; start with `command.py`."""
