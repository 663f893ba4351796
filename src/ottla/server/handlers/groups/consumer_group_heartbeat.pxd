# C types for `consumer_group_heartbeat.py`; see there.

from ottla.server.api cimport Api, Deferred, RequestContext
from ottla.server.coordinators.known_requests cimport Known, KnownRequests


cdef class _Beat(Known):
    cdef public bytes answer
    cdef public object correlation_id
    cdef public object heard

    cpdef bytes frame(self, correlation_id, epoch, interval_ms)


cdef class _BeatReply(Deferred):
    cdef public _Beat _beat
    cdef public object _correlation_id

    cpdef complete(self, result)


cdef class _Beats:
    cdef public Api _api
    cdef public RequestContext _context
    cdef public KnownRequests known
