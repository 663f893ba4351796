# C types for `repeated_offset_fetches.py`; see there.
