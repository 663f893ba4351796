# C types for `coordinator_shards.py`; see there.

from ottla.coordinator.effects cimport Reply, Write
