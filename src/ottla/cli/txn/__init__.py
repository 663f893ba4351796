"""`ottla txn ...`: transactions that are open; start with `command.py`."""
