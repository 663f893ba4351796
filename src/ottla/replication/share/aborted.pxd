# C types for `aborted.py`; see there.
cimport cython


cdef class ReadBatch:
    cdef public long long base_offset
    cdef public bint is_abort_marker
    cdef public bint is_transactional
    cdef public long long last_offset
    cdef public Py_ssize_t position
    cdef public long long producer_id
    cdef public Py_ssize_t size


@cython.locals(batch=ReadBatch)
cpdef list aborted_ranges(batches, transactions)
