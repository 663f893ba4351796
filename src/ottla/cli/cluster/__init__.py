"""`ottla cluster ...`: nodes are started, added, restarted and removed, and replicas moved; start with `command.py`."""
