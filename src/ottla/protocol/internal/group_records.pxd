# C types for `group_records.py`; see there.
