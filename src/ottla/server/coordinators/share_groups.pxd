# C types for `share_groups.py`; see there.
cimport cython

from ottla.drivers.replication.share_partitions cimport SharePartitions
from ottla.replication.share.acknowledgement cimport as_said
from ottla.server.api cimport RequestContext

cpdef check_request(RequestContext context, request)


cdef class Acknowledging:
    cdef public RequestContext _context
    cdef public object _ended
    cdef public long long _unknown
    cdef public dict failures

    cpdef _settle(self, where, error)
    cpdef _count_down(self)
