# C types for `assignors.py`; see there.
cimport cython


cdef class MemberSpec:
    cdef public object assigned
    cdef public object instance_id
    cdef public object rack_id
    cdef public object topics


@cython.locals(
    quota=cython.Py_ssize_t, extras=cython.Py_ssize_t, index=cython.Py_ssize_t, limit=cython.Py_ssize_t,
    left=cython.Py_ssize_t, owned=dict, assignment=dict, room=list, mine=dict, spec=MemberSpec
)
cpdef _assign_equally(members, counts)
@cython.locals(size=cython.Py_ssize_t, number=cython.Py_ssize_t, flags=bytearray, mine=set)
cdef tuple _keep(MemberSpec spec, list topics, Py_ssize_t limit, dict owned, bytearray first)
