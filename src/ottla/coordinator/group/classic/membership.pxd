# C types for `membership.py`; see there.
cimport cython

from ottla.coordinator.group.classic.group cimport ClassicGroup
from ottla.coordinator.group.classic.rebalance cimport (
    answer_sync_group,
    complete_if_all_joined,
    prepare,
    reset_assignments,
)
from ottla.coordinator.group.classic.member cimport Member
from ottla.coordinator.group.state cimport GroupState


@cython.locals(group=ClassicGroup, member=Member)
cpdef sync(GroupState state, token, request)
cpdef _checked_for_sync(ClassicGroup group, request)
cpdef bint _differ(asked, actual)
@cython.locals(group=ClassicGroup, member=Member)
cpdef heartbeat(GroupState state, group_id, member_id, instance_id, generation)
