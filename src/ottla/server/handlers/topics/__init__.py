"""Topics, partitions, their replicas and leaders. Start at `create_topics.py`; `metadata.py` is what every client asks
first."""
