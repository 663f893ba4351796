"""Produce, Fetch and what else reads or changes the records of partitions. Start at `list_offsets.py`; `produce.py` is
the hot path."""
