# C types for `record_batch.py`; see there.
