# C types for `key_order.py`; see there.
cimport cython


cdef class Neighbour:
    cdef public long long before
    cdef public long long behind
    cdef public object key


cdef class KeyOrder:
    cdef public dict _keys
    cdef public dict _last

    @cython.locals(added=Neighbour)
    cpdef bint enter(self, offset, key) except -1

    @cython.locals(keys=dict, following=list, offset=cython.longlong)
    cpdef list leave_all(self, long long first, long long last)

    @cython.locals(found=cython.longlong)
    cdef _leave_one(self, offset, list following)

    cpdef long long _leave(self, Neighbour left) except -2

    cpdef Neighbour _neighbour(self, offset)
