# C types for `offset_heap.py`; see there.
cimport cython


@cython.locals(at=cython.Py_ssize_t, above=cython.Py_ssize_t, parent=cython.longlong)
cpdef push(list heap, long long offset)


@cython.locals(
    size=cython.Py_ssize_t, at=cython.Py_ssize_t, below=cython.Py_ssize_t, offset=cython.longlong,
    least=cython.longlong, other=cython.longlong,
)
cpdef pop(list heap)
