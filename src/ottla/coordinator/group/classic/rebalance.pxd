# C types for `rebalance.py`; see there.

cimport cython

from ottla.coordinator.group.classic.group cimport ClassicGroup
from ottla.coordinator.group.classic.member cimport Member
from ottla.coordinator.group.classic.replies cimport assigned, joined
from ottla.coordinator.group.state cimport GroupState


cpdef prepare_or_complete(GroupState state, ClassicGroup group, reason)
cpdef prepare(GroupState state, ClassicGroup group, reason)
cpdef complete_if_all_joined(GroupState state, ClassicGroup group)
@cython.locals(member=Member)
cpdef complete_join(GroupState state, ClassicGroup group)
cpdef answer_join(GroupState state, ClassicGroup group, Member member)
cpdef refuse_waiters(GroupState state, ClassicGroup group, Member member, error, member_id)
@cython.locals(member=Member)
cpdef reset_assignments(GroupState state, ClassicGroup group, error)
@cython.locals(member=Member)
cpdef answer_sync_group(GroupState state, ClassicGroup group)
