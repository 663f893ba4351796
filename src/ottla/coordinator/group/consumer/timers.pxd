# C types for `timers.py`; see there.

from ottla.coordinator.group.state cimport GroupState


cpdef start_session(GroupState state, group_id, member)
cpdef start_rebalance(GroupState state, group, member)
cpdef cancel_rebalance(GroupState state, group_id, member_id)
cpdef _schedule(GroupState state, kind, group_id, member_id, long long delay_ms)
