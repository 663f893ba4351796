# C types for `assignors.py`; see there.
