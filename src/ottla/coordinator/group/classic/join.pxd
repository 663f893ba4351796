# C types for `join.py`; see there.
cimport cython

from ottla.coordinator.group.classic.group cimport ClassicGroup
from ottla.coordinator.group.classic.rebalance cimport (
    complete_if_all_joined,
    prepare,
    prepare_or_complete,
    refuse_waiters,
)
from ottla.coordinator.group.classic.member cimport Member
from ottla.coordinator.group.state cimport GroupState


cpdef join(GroupState state, token, request)
cpdef _refusal(GroupState state, request)
@cython.locals(member=Member)
cpdef _has_room(GroupState state, ClassicGroup group, member_id, instance_id)
cpdef _join_new(GroupState state, token, ClassicGroup group, request)
@cython.locals(member=Member)
cpdef _join_known(GroupState state, token, ClassicGroup group, request)
cpdef _add(GroupState state, token, ClassicGroup group, request, member_id)
cpdef _update(GroupState state, token, ClassicGroup group, Member member, request)
