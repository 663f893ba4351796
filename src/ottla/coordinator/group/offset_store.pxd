# C types for `offset_store.py`; see there.
