# C types for `coordinator_effects.py`; see there.
cimport cython

from ottla.clock cimport wall_ms
from ottla.coordinator.effects cimport Now, Reply, Write
from ottla.drivers.coordinators.coordinator_answers cimport Answers
from ottla.drivers.coordinators.coordinator_shard cimport Batch, Pending, Shard, bytes_of


cdef class CoordinatorClock:
    cdef public object _clock
    cdef public object _loop_s

    @cython.locals(seconds=cython.double, now=Now)
    cpdef Now now(self)


cdef class Effects:
    cdef public object _kind
    cdef public object _logger
    cdef public object _node
    cdef public Answers answers
    cdef public CoordinatorClock clock

    cpdef Now now(self)
    cpdef work(self, Shard shard)
    @cython.locals(answered=cython.Py_ssize_t, index=cython.Py_ssize_t, write=Write)
    cpdef _run(self, Shard shard, effects)
    @cython.locals(encoded=list, size=cython.Py_ssize_t, batch=Batch)
    cpdef _collect(self, Shard shard, Write write, rest)
    cpdef bint _write(self, Shard shard, Write write, rest, encoded=*)
    @cython.locals(write=Write)
    cpdef _committed(self, Shard shard, Pending pending)
    cpdef arm(self, Shard shard)
