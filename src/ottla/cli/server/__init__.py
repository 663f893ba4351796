"""`ottla server ...`: a node is started and watched; `command.py` and `start.py`."""
