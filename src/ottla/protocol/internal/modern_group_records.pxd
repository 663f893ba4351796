# C types for `modern_group_records.py`; see there.
