# C types for `known_requests.py`; see there.
