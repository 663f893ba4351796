# C types for `group.py`; see there.
cimport cython

from ottla.coordinator.group.classic.member cimport Member


cdef class ClassicGroup:
    cdef public dict _support
    cdef public long long awaiting_join_count
    cdef public object generation
    cdef public object group_id
    cdef public object initial_delay_left_ms
    cdef public dict joined
    cdef public object leader
    cdef public dict members
    cdef public object new_member_added
    cdef public set pending_members
    cdef public set pending_sync
    cdef public object previous_state
    cdef public object protocol_name
    cdef public object protocol_type
    cdef public object state
    cdef public object state_timestamp_ms
    cdef public dict static_members
    cdef public object subscribed

    @cython.locals(member=Member, places=cython.longlong)
    cpdef bint has_fewer_places_taken_than(self, limit)
    cpdef bint supports(self, protocol_type, protocols)
    @cython.locals(member=Member, rows=list)
    cpdef to_record(self, assignments=*)
    cpdef check_member(self, member_id, instance_id)
    cpdef _count(self, protocols, change)
    cpdef set_waiter(self, Member member, waiter)
    cpdef update(self, Member member, protocols, rebalance_timeout_ms, session_timeout_ms)
    cpdef can_become(self, state)
    cpdef become(self, state, now_ms)
