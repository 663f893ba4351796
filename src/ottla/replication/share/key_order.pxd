# C types for `key_order.py`; see there.
cimport cython


cdef class Neighbour:
    cdef public long long before
    cdef public long long behind
    cdef public object key


@cython.locals(made=Neighbour)
cdef Neighbour _neighbour(key, long long before)


cdef class KeyOrder:
    cdef public dict _alone
    cdef public dict _last
    cdef public dict _several

    @cython.locals(last=Neighbour)
    cpdef bint enter(self, offset, key) except -1

    @cython.locals(following=list, offset=cython.longlong)
    cpdef list leave_all(self, long long first, long long last)

    @cython.locals(left=Neighbour, found=cython.longlong)
    cdef _leave_one(self, offset, list following)

    @cython.locals(other=Neighbour)
    cpdef long long _leave(self, Neighbour left) except -2
