# C types for `consumer_group_heartbeat.py`; see there.

cimport cython

from ottla.server.api cimport Api, Call, Deferred, RequestContext
from ottla.server.coordinators.known_requests cimport Known, KnownRequests


cdef class _Beat(Known):
    cdef public bytes answer
    cdef public object correlation_id
    cdef public object heard

    @cython.locals(head=bytes, start=bytes, end=bytes)
    cpdef bytes frame(self, correlation_id, epoch, interval_ms)


cdef class _BeatReply(Deferred):
    cdef public _Beat _beat
    cdef public object _correlation_id

    cpdef complete(self, result)


cdef class _Beats:
    cdef public Api _api
    cdef public RequestContext _context
    cdef public object _enabled_by
    cdef public KnownRequests known

    @cython.locals(beat=_Beat)
    cdef _answer(self, frame, correlation_id)
