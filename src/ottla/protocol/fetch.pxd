# C types for `fetch.py`; see there.
cimport cython


@cython.locals(flexible=cython.bint)
cdef _write_topic_key(bytearray out, int version, topic)


cdef _write_length(bytearray out, long long length, bint flexible)


@cython.locals(flexible=cython.bint)
cdef _write_partition(bytearray out, int version, partition)


cdef _write_partition_tags(bytearray out, partition)


cpdef long long records_length(object records) except -1
