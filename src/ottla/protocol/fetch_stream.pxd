# C types for `fetch_stream.py`; see there.
cimport cython


cdef class FetchStream:
    cdef public Py_ssize_t _at
    cdef public Py_ssize_t _end
    cdef public Py_ssize_t _left
    cdef public Py_ssize_t _need
    cdef public long long _rows
    cdef public object _take
    cdef public object _topic_id
    cdef public long long _topics
    cdef public object _version
    cdef public object _view
    cdef public bint is_busy
    cdef public bint is_over
    cdef public object response

    @cython.locals(stop=cython.Py_ssize_t, before=cython.Py_ssize_t)
    cpdef room(self)

    @cython.locals(rest=cython.Py_ssize_t)
    cdef _make_room(self, Py_ssize_t size)

    @cython.locals(spent=cython.longlong, start=cython.Py_ssize_t, end=cython.Py_ssize_t, whole=cython.Py_ssize_t)
    cpdef take(self, Py_ssize_t count)

    @cython.locals(position=cython.Py_ssize_t, received=cython.Py_ssize_t, size=cython.longlong)
    cdef Py_ssize_t _whole_batches(self, Py_ssize_t start, Py_ssize_t end) except? -1

    @cython.locals(at=cython.Py_ssize_t)
    cdef long long _take_piece(self, Py_ssize_t start, Py_ssize_t whole, Py_ssize_t end) except? -1

    @cython.locals(at=cython.Py_ssize_t)
    cdef _step(self)
