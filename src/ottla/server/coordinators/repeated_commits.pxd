# C types for `repeated_commits.py`; see there.
