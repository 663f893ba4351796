"""Kafka's znodes and the metadata image: the codec between them, both ways (`kafka.zk.ZkData`).

Pure. May import `metadata` and what lies below it. Start at `reading.py` (a tree as records) and `writing.py` (an image
as a tree); a module for each family of znodes lies below both.
"""
