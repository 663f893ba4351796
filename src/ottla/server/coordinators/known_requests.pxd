# C types for `known_requests.py`; see there.
cimport cython

from ottla.server.api cimport Call, RequestContext

cdef Py_ssize_t _BEHIND_ID


cdef class Known:
    cdef public object asked
    cdef public RequestContext context
    cdef public long long number
    cdef public Py_ssize_t place


cdef class KnownRequests:
    cdef public dict _by_bytes
    cdef public bytes _head
    cdef public Known _last
    cdef public dict _places
    cdef public Py_ssize_t _size
    cdef public bytes _tail

    @cython.locals(
        whole=bytes, head=bytes, tail=bytes, size=cython.Py_ssize_t, place=cython.Py_ssize_t, at=cython.Py_ssize_t,
        number=cython.longlong, found=Known
    )
    cpdef find(self, frame)

    @cython.locals(
        whole=bytes, head=bytes, tail=bytes, size=cython.Py_ssize_t, place=cython.Py_ssize_t, last=Known
    )
    cpdef learn(self, frame, Known known)

    cdef _file(self, Known known, Py_ssize_t size, bytes head, bytes tail)


cdef class DeferredShortcut:
    cdef public object _api
    cdef public object _ask
    cdef public object _know
    cdef public KnownRequests _known
    cdef public object _newest

    cpdef learn(self, RequestContext context, frame, request)
    cpdef _file_newest(self)


cpdef shortcut_for(RequestContext context, frame, make)
