# C types for `cooperative.py`; see there.


cdef class Scheduler:
    cdef object __weakref__
    cdef public bint _gives_back
    cdef public object _heavy
    cdef public double _large_s
    cdef public object _light
    cdef public long long _long
    cdef public object _loop
    cdef public bint _scheduled
    cdef public long long spent

    cpdef bint is_over(self) except -1
