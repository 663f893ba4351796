# C types for `coordinator_replies.py`; see there.

from ottla.server.api cimport Deferred


cdef class DeferredReply:
    cdef public Deferred deferred
    cdef public object finish


cdef class EncodedReply(Deferred):
    cdef public object _context
    cdef public object _encode
