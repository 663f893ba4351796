"""The files of a log: segments (`segment.py`, Kafka's `LogSegment`), their indexes, and the list of them
(`segment_list.py`)."""
