# C types for `heartbeat.py`; see there.
cimport cython

from ottla.server.api cimport RequestContext
from ottla.server.coordinators.known_requests cimport Known, KnownRequests


cdef class _Beats:
    cdef public dict _answers
    cdef public RequestContext _context
    cdef public KnownRequests known


cpdef _heard(RequestContext context, group_id, member_id, instance_id, generation)
