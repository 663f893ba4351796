"""`ottla dev`: a broker for a program under development; start with `command.py`."""
