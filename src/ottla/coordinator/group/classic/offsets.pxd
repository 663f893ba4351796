# C types for `offsets.py`; see there.
cimport cython

from ottla.coordinator.group.classic.group cimport ClassicGroup
from ottla.coordinator.group.classic.member cimport Member
from ottla.coordinator.group.state cimport GroupState


@cython.locals(member=Member)
cpdef check_commit(GroupState state, ClassicGroup group, request)
cpdef _check_generation(ClassicGroup group, request)
