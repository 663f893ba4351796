# C types for `plain_heartbeat.py`; see there.
cimport cython

from ottla.coordinator.effects cimport Reply, Write
from ottla.coordinator.group.consumer.timers cimport cancel_rebalance, start_rebalance, start_session
from ottla.coordinator.group.state cimport GroupState


@cython.locals(records=list, answer=dict, encoded=list)
cpdef plain_heartbeat(GroupState state, heard, bint is_settled, waiter)
@cython.locals(members=dict)
cdef tuple _heard(GroupState state, heard)
@cython.locals(all_kept=dict, targets=dict)
cdef _kept(GroupState state, group, member)
cdef tuple _written(GroupState state, group, old, member, key, value)
