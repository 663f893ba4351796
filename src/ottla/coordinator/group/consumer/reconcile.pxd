# C types for `reconcile.py`; see there.
