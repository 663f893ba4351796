# C types for `receiving.py`; see there.
cimport cython


@cython.locals(rest=cython.Py_ssize_t, room=cython.Py_ssize_t, own=bytearray)
cpdef keep(
    connection, bytearray data, view, Py_ssize_t start, Py_ssize_t end, long long need, bint is_blocked
)
