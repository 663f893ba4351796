# C types for `codec.py`; see there.
