# C types for `group_coordinator.py`; see there.
cimport cython

from ottla.coordinator.group.shard cimport GroupShard as TypedGroupShard
from ottla.coordinator.group.state cimport GroupState
from ottla.drivers.coordinators.coordinator_commits cimport Commits
from ottla.drivers.coordinators.coordinator_effects cimport CoordinatorClock, Effects
from ottla.drivers.coordinators.coordinator_shard cimport Pending, Shard


cdef class GroupLed(Shard):
    cdef public Commits commits
    cdef public TypedGroupShard groups


cdef class GroupCoordinatorDriver:
    cdef public dict _by_number
    cdef public CoordinatorClock _clock
    cdef public object _codec
    cdef public object _config
    cdef public Effects _effects
    cdef public object _epoch_log
    cdef public bint _follows
    cdef public object _linger_ms
    cdef public object _node
    cdef public dict _numbers
    cdef public dict _open
    cdef public object _resolving
    cdef public object _shards
    cdef public object initialize_shares

    cpdef partition_of(self, group_id)
    cpdef _look_up(self, group_id)
    cpdef _now(self)
    @cython.locals(shard=GroupLed, commits=Commits)
    cpdef GroupLed _shard_of(self, group_id, bint starts_waiting=*, bint reads_offsets=*, bint flushes=*)
    @cython.locals(shard=GroupLed)
    cpdef ask(self, waiter, request)
    @cython.locals(shard=GroupLed)
    cpdef heartbeat(self, group_id, member_id, instance_id, generation)
    @cython.locals(shard=GroupLed, state=GroupState)
    cpdef plain_heartbeat(self, heard, waiter)
