# C types for `replies.py`; see there.
