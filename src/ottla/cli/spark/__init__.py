"""`ottla spark ...`: what a Spark cluster needs of Ottla; start with `command.py`."""
