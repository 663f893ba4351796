"""Client quotas (KIP-13, 124, 257, 599, 612): how much of a node its clients may use.

Pure: who limits whom is a value that follows the metadata image, the time is given by the caller. `arithmetic.py` has
Kafka's rates and token buckets, `limits.py` which quota holds for whom, `usage.py` what clients have used of it.
"""
