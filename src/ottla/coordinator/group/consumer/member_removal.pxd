# C types for `member_removal.py`; see there.
