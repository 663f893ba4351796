# C types for `state.py`; see there.
cimport cython

from ottla.coordinator.effects cimport Now, Reply, Write
from ottla.coordinator.group.classic.group cimport ClassicGroup
from ottla.coordinator.group.classic.member cimport Member
from ottla.coordinator.timers cimport Timers


cdef class GroupState:
    cdef public object _applying
    cdef public object _configured
    cdef public dict _consumer_configs
    cdef public object config
    cdef public object counts
    cdef public object decisions
    cdef public object deleting
    cdef public list effects
    cdef public object expiry_left
    cdef public dict groups
    cdef public object groups_by_topic
    cdef public object image
    cdef public object images
    cdef public object in_flight
    cdef public object loaded
    cdef public object new_topics_version
    cdef public Now now
    cdef public object observe
    cdef public object offsets
    cdef public object random
    cdef public object resolving
    cdef public Timers timers
    cdef public object topic_hashes

    cpdef consumer_config(self, group_id)
    cpdef reply(self, token, response)
    cpdef become(self, ClassicGroup group, state)
    cpdef start_join_timer(self, ClassicGroup group, delay_ms)
    cpdef cancel_join_timer(self, ClassicGroup group)
    cpdef start_sync_timer(self, ClassicGroup group)
    cpdef cancel_sync_timer(self, ClassicGroup group)
    @cython.locals(deadline_ms=cython.longlong)
    cpdef start_session(self, ClassicGroup group, Member member, timeout_ms=*)
    cpdef start_session_of(self, ClassicGroup group, member_id, timeout_ms)
    cpdef cancel_session(self, ClassicGroup group, member_id)
