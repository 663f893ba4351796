# C types for `shard.py`; see there.

from ottla.coordinator.effects cimport Now
from ottla.coordinator.group.classic.membership cimport heartbeat
from ottla.coordinator.group.state cimport GroupState


cdef class GroupShard:
    cdef public GroupState state

    cpdef take(self)
    cpdef next_deadline(self)
    cpdef ask(self, token, request, Now now)
    cpdef heartbeat(self, group_id, member_id, instance_id, generation, Now now)
