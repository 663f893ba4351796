"""`ottla pipeline ...`: pipelines on Spark; start with `command.py`."""
