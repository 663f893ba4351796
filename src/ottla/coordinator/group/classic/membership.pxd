# C types for `membership.py`; see there.
