"""A fetch from its first read to its answer (`fetching.py`): it waits here, and reads partitions
(`partition_read.py`)."""
