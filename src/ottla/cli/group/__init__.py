"""`ottla group ...`: consumer groups, share groups and streams groups; start with `command.py`."""
