# C types for `key_order.py`; see there.
cimport cython


cdef class KeyOrder:
    cdef public dict _before
    cdef public dict _behind
    cdef public dict _keys
    cdef public dict _last

    cpdef bint enter(self, offset, key) except -1

    @cython.locals(keys=dict, following=list)
    cpdef list leave_all(self, first, last)

    cpdef _leave(self, offset)
