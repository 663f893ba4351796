# C types for `group_responses.py`; see there.
cimport cython

cdef tuple _EMPTY_BYTES
cdef tuple _EMPTY_ID_BYTES
cdef long long _FLEXIBLE_JOIN
cdef long long _FLEXIBLE_ASSIGNING
cdef tuple _JOIN_ENDS
cdef list _ONE_BYTE
cdef Py_ssize_t _ONE_BYTE_MAX
cdef tuple _ASSIGNMENT_ENDS
cdef _Start _JOINING
cdef _Start _ASSIGNED


cdef class _Start:
    cdef public bytes kept
    cdef public tuple values
    cdef public long long version


@cython.locals(flexible=cython.int, size=cython.Py_ssize_t, start=_Start, values=tuple)
cpdef bytes encode_join(long long version, response, bytes header)
@cython.locals(flexible=cython.int, size=cython.Py_ssize_t, start=_Start, values=tuple)
cpdef bytes encode_sync(long long version, response, bytes header)
cdef bytes _compact(Py_ssize_t size)
