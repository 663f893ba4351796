# C types for `target.py`; see there.
cimport cython

from ottla.coordinator.group.assignors cimport MemberSpec


@cython.locals(specs=dict, targets=dict)
cdef dict _specs(group, reads, before)
cdef list _changed(assigned, dict targets)
