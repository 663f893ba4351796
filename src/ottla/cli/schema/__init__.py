"""`ottla schema ...`: subjects and versions of a schema registry; start with `command.py`."""
