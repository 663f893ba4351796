# C types for `coordinator_commits.py`; see there.
