# C types for `selection.py`; see there.
cimport cython

from ottla.replication.share.in_flight cimport Counts, InFlightBatch, Run, counted, may_close, may_take, new_run
from ottla.replication.share.key_order cimport KeyOrder
from ottla.replication.share.ranges cimport index_of
from ottla.replication.share.waits cimport Waits, hold_until, look_at
from ottla.replication.share.window cimport Window

# Members of an enumeration that are compared for each run: found at once, not by name.
cdef object _AVAILABLE
cdef object _ARCHIVED


cdef class Selection:
    cdef public Run _first_run
    cdef public long long _free
    cdef public KeyOrder _keys
    cdef public list _ready
    cdef public long long _scanned
    cdef public long long _waited
    cdef public long long _waiting_left
    cdef public Window _window
    cdef public list ahead
    cdef public object config
    cdef public bint goes_on
    cdef public long long marked_until
    cdef public Waits waits

    @cython.locals(
        offset=cython.longlong, left=cython.longlong, first=cython.longlong,
        last=cython.longlong, until=cython.longlong, count=cython.longlong, scan_from=cython.longlong,
    )
    cpdef list parts(self, long long records_max)

    @cython.locals(
        ready=list, scanned=cython.longlong, start=cython.longlong, offset=cython.longlong, window=Window,
        index=cython.Py_ssize_t, batch=InFlightBatch, run=Run,
    )
    cpdef InFlightBatch _first_ready(self)

    @cython.locals(window=Window, counts=Counts, batch=InFlightBatch)
    cpdef _room(self)

    @cython.locals(free=cython.longlong, waiting_runs=cython.longlong)
    cpdef bint _has_room(self) except -1

    @cython.locals(
        offset=cython.longlong, index=cython.Py_ssize_t, left=cython.longlong, end=cython.longlong, until=cython.longlong, batch=InFlightBatch,
        run=Run, part=Run, not_read=list, taken=list, window=Window, first=cython.longlong, last=cython.longlong,
        count=cython.longlong, throttled_from=cython.longlong, part_first=cython.longlong, part_last=cython.longlong,
        is_throttled=cython.bint,
    )
    cpdef list _take(self, wanted, parts, deadline_ms)

    @cython.locals(
        window=Window, offset=cython.longlong, first=cython.longlong, last=cython.longlong, index=cython.Py_ssize_t,
        behind=cython.Py_ssize_t, batch=InFlightBatch, run=Run,
    )
    cpdef _scan(self, long long until, marks, aborted, long long records, times)

    @cython.locals(run=Run, batch=InFlightBatch, runs=list)
    cpdef _scan_new(self, long long first, long long last, marks, aborted, times)

    @cython.locals(
        offset=cython.longlong, part=Run, piece=Run, wait_ms=cython.longlong, now_ms=cython.longlong,
    )
    cpdef _scan_known(self, InFlightBatch batch, Run run, long long first, long long last, marks, times)

    @cython.locals(
        found=list, wall_ms=cython.longlong, offset=cython.longlong, keys=KeyOrder, is_held=cython.bint, start=cython.longlong,
        following=cython.longlong, end=cython.Py_ssize_t, index=cython.Py_ssize_t, at=cython.longlong,
        is_behind=cython.bint, due_ms=cython.longlong,
    )
    cpdef list _pieces(self, long long first, long long last, marks, long long wait_ms, times)

    cpdef _begin(self, Run run)

    cpdef _wait(self, Run run, hold)

    cpdef _go_on(self, Run run, hold, times)

    @cython.locals(
        window=Window, offset=cython.longlong, index=cython.Py_ssize_t, batch=InFlightBatch, run=Run,
    )
    cpdef done(self, long long first, long long last, times)

    @cython.locals(part=Run, run=Run, batch=InFlightBatch)
    cpdef _leave(self, long long first, long long last, times)

    @cython.locals(window=Window, first=cython.longlong, last=cython.longlong, folded=cython.longlong)
    cpdef done_all(self, rows, times)
