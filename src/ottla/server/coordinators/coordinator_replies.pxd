# C types for `coordinator_replies.py`; see there.

from ottla.server.api cimport Deferred, RequestContext

cpdef bytes framed(RequestContext context, encode, response)


cdef class DeferredReply:
    cdef public Deferred deferred
    cdef public object finish

    cpdef complete(self, result)


cdef object _pack_start


cdef class EncodedReply(Deferred):
    cdef public RequestContext _context
    cdef public object _encode

    cpdef complete(self, result)
    cpdef ask(self, groups, request)
