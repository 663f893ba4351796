# C types for `replies.py`; see there.
cimport cython

from ottla.coordinator.group.classic.group cimport ClassicGroup


@cython.locals(common=dict, answer=dict)
cpdef dict joined(ClassicGroup group, member_id, bint with_members, bint skip_assignment=*)
cpdef dict assigned(ClassicGroup group, assignment)
