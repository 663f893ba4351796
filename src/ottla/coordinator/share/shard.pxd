# C types for `shard.py`; see there.
cimport cython

from ottla.coordinator.effects cimport Now, Reply, Write
from ottla.coordinator.share.combining cimport combine, combine_into
from ottla.coordinator.timers cimport Timers

cpdef partition_of(key, partition_count)


cdef class _Entry:
    cdef public object combined
    cdef public object leader_epoch_max
    cdef public object state_epoch_max
    cdef public object updates
    cdef public object value


cdef class ShareShard:
    cdef public list _effects
    cdef public dict _entries
    cdef public object _last_deletion
    cdef public Now _now
    cdef public object _partition_count
    cdef public object _pruned
    cdef public dict _snapshots
    cdef public Timers _timers
    cdef public dict _waiting
    cdef public object config

    cpdef list take(self)
    cpdef next_deadline(self)
    @cython.locals(entry=_Entry)
    cpdef replay(self, record, offset=*, producer_id=*)
    @cython.locals(entry=_Entry)
    cpdef _replay_update(self, key, value, offset)
    cpdef ask(self, token, request, Now now)
    cpdef _decide(self, token, request)
    @cython.locals(entry=_Entry)
    cpdef _change(self, token, request)
    cpdef _record(self, _Entry entry, change, leader_epoch)
    cpdef _error(self, key)
    cpdef _go_on(self, key)
    cpdef _failed(self, key, error)
    cpdef _reply(self, token, response)


cpdef _result(key, error=*, message=*)


cpdef _negative(key, leader_epoch=*, state_epoch=*)


cpdef _fenced(key, _Entry entry, leader_epoch=*, state_epoch=*)
