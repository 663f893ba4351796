"""Geo-replication between clusters, through Spark: topics, configs, records exactly once, and group offsets.

Start at `mirror.py`. `mapping.py` is the arithmetic of offsets, `control_topic.py` the topic on the destination that
keeps what the mapping is made of, `copying.py` the query. docs/replicate.md says why the translation is exact. May
import `ottla.spark`, `ottla.arrow`, `ottla.client` and what lies below.
"""
