# C types for `group_coordinator.py`; see there.


from ottla.drivers.coordinators.coordinator_effects cimport CoordinatorClock


cdef class GroupCoordinatorDriver:
    cdef public object _by_number
    cdef public CoordinatorClock _clock
    cdef public object _codec
    cdef public object _config
    cdef public object _counted_in
    cdef public object _effects
    cdef public object _epoch_log
    cdef public object _linger_ms
    cdef public object _node
    cdef public object _open
    cdef public object _partitions
    cdef public object _resolving
    cdef public object _shards
    cdef public object initialize_shares

    cpdef partition_of(self, group_id)
    cpdef _now(self)
    cpdef _shard_of(self, group_id, starts_waiting=*, reads_offsets=*, flushes=*)
    cpdef ask(self, waiter, request)
    cpdef heartbeat(self, group_id, member_id, instance_id, generation)
