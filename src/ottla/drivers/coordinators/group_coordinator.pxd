# C types for `group_coordinator.py`; see there.
