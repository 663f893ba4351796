# C types for `connection.py`; see there.
cimport cython

from ottla.clock cimport elapsed_s
from ottla.drivers.cooperative cimport Scheduler
from ottla.metrics.instruments cimport ApiStats, NodeMetrics
from ottla.server.api cimport Call, Deferred, RequestContext, Slot
from ottla.server.connections.listener_state cimport ListenerState
from ottla.server.connections.outbox cimport EncodedResponse, Outbox
from ottla.server.connections.receiving cimport keep

cdef long long BYTES_COST_SHIFT
cdef Py_ssize_t HEAD_BYTES_MAX
cdef Py_ssize_t KEEP_BYTES_MIN
cdef long long OUTBOX_BYTES_MAX
cdef Py_ssize_t PENDING_MAX
cdef Py_ssize_t RECEIVE_AHEAD_BYTES
cdef long long RECORDS_COST_SHIFT
cdef long long REQUEST_COST
cdef long long SLICE
cdef long long TURN_BYTES_MAX


@cython.locals(value=cython.longlong)
cdef long long _int32(bytearray data, Py_ssize_t at) except? -1


cdef class CompiledConnection


cdef class _Suspended(Slot):
    cdef public CompiledConnection _connection

    cpdef complete(self, result)


cdef class CompiledConnection:
    cdef public Py_ssize_t _end
    cdef public bint _ended
    cdef public long long _fast
    cdef public long long _fast_head
    cdef public Py_ssize_t _growth
    cdef public bytes _head
    cdef public bint _holding
    cdef public object _lent
    cdef public object _linger
    cdef public bint _muted
    cdef public double _muted_until_s
    cdef public object _unmuting
    cdef public ListenerState _listener
    cdef public bytearray _own
    cdef public object _own_view
    cdef public bint _paused
    cdef public object _pending
    cdef public bint _queued
    cdef public Scheduler _scheduler
    cdef public Py_ssize_t _start
    cdef public bint _starved
    cdef public object _transport
    cdef public long long _unsent
    cdef public object _waiting
    cdef public object answer_together
    cdef public object apis
    cdef public object client_host
    cdef public bint closed
    cdef public bint closing
    cdef public long long frame_bytes_max
    cdef public object listener_name
    cdef public object login
    cdef public Outbox outbox
    cdef public object principal
    cdef public object quotas
    cdef public dict shortcuts
    cdef public long long tick

    @cython.locals(listener=ListenerState)
    cpdef buffer_updated(self, Py_ssize_t nbytes)

    cdef bint _blocked(self) except -1

    @cython.locals(
        need=cython.longlong, size=cython.longlong, scheduler=Scheduler, began=cython.longlong, spent=cython.longlong,
        cost=cython.longlong, is_whole=cython.bint
    )
    cdef _consume(self, bytearray data, view, Py_ssize_t start, Py_ssize_t end)

    cdef bint _must_hold(self, long long key) except -1

    @cython.locals(head=cython.longlong, stats=ApiStats, metrics=NodeMetrics, listener=ListenerState)
    cdef _count_fast(self)

    @cython.locals(head=cython.longlong, slot=Slot, last=RequestContext)
    cdef _request(self, bytearray data, view, Py_ssize_t start, Py_ssize_t stop)

    @cython.locals(slot=Slot, deferred=Deferred)
    cpdef _take(self, Call call, outcome)

    @cython.locals(slot=Slot)
    cdef _append_ready(self, Call call, response)

    @cython.locals(slot=Slot)
    cdef Slot _suspend(self, Call call)

    cpdef _completed(self, Slot slot, result)

    @cython.locals(done=Slot)
    cpdef _answer_ready(self)

    cpdef send(self)

    @cython.locals(
        length=cython.longlong, context=RequestContext, seconds=cython.double, metrics=NodeMetrics,
        listener=ListenerState
    )
    cpdef _write(self, Call call, response, double began_s)

    @cython.locals(data=bytearray)
    cpdef _advance(self)

    cpdef _drop_own(self)

    @cython.locals(
        rest=cython.Py_ssize_t, room=cython.Py_ssize_t, head_bytes_max=cython.Py_ssize_t, own=bytearray,
        is_blocked=cython.bint,
    )
    cdef _keep(self, bytearray data, view, Py_ssize_t start, Py_ssize_t end, long long need)
