# C types for `group_responses.py`; see there.
