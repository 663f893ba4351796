# C types for `member.py`; see there.
