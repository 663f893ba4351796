# C types for `share_persister.py`; see there.

cdef class _Asked:
    cdef public object _persister
    cdef public double deadline
    cdef public object done
    cdef public list later
    cdef public double pause_s
    cdef public object request

    cpdef complete(self, result)
    cpdef failed(self, error)
