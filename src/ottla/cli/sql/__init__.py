"""`ottla sql`: SQL over topics; start with `command.py`."""
