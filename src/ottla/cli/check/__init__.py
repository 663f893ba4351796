"""`ottla check`: whether a cluster keeps what it acknowledges; start with `command.py`."""
