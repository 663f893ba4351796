# C types for `messages.py`; see there.
