# C types for `shard.py`; see there.

from ottla.coordinator.group.state cimport GroupState


cdef class GroupShard:
    cdef public GroupState state

    cpdef take(self)
    cpdef next_deadline(self)
    cpdef ask(self, token, request, now)
