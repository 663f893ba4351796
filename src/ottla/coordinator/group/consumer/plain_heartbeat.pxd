# C types for `plain_heartbeat.py`; see there.
cimport cython

from ottla.coordinator.effects cimport Reply, Write
from ottla.coordinator.group.consumer.timers cimport cancel_rebalance, start_rebalance, start_session
from ottla.coordinator.group.state cimport GroupState


@cython.locals(records=list, answer=dict)
cpdef plain_heartbeat(GroupState state, heard, bint is_settled, waiter)
cpdef _heard(GroupState state, heard)
cpdef _kept(GroupState state, group, member)
cpdef _written(GroupState state, group, old, member, value)
