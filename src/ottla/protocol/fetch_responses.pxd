# C types for `fetch_responses.py`; see there.
cimport cython

from ottla.protocol.fetch cimport records_length, write_topic_key


cdef _write_length(bytearray out, long long length, bint flexible)


@cython.locals(flexible=cython.bint)
cdef _write_partition(bytearray out, int version, partition)


cdef _write_partition_tags(bytearray out, partition)
