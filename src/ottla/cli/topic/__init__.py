"""`ottla topic ...`: topics and their partitions; start with `command.py`."""
