# C types for `produce_shortcut.py`; see there.
cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from ottla.replication.partition cimport Partition
from ottla.storage.log.append_info cimport AppendInfo

cdef long long _FLEXIBLE_SINCE


cdef class Envelope:
    cdef public long long acks
    cdef public long long guard
    cdef public object layout
    cdef public Partition partition
    cdef public bytes prefix
    cdef public object size
    cdef public bytes suffix
    cdef public object timeout_ms
    cdef public object topic
    cdef public object topic_id


cdef class ProduceShortcut:
    cdef public object _clock
    cdef public object _context
    cdef public dict _envelopes
    cdef public list _lengths
    cdef public long long _version
    cdef public object _waiting

    @cython.locals(
        data="const char *", size=cython.Py_ssize_t, length_at=cython.Py_ssize_t, start=cython.Py_ssize_t,
        stop=cython.Py_ssize_t, version=cython.longlong, envelope=Envelope, partition=Partition,
        info=AppendInfo,
    )
    cpdef answer(self, frame, long long correlation_id)


@cython.locals(
    data="const unsigned char *", size=cython.Py_ssize_t, length=cython.longlong, shift=cython.int,
    byte=cython.longlong, stop=cython.Py_ssize_t,
)
cpdef (Py_ssize_t, Py_ssize_t) sole_records(frame, Py_ssize_t position, bint flexible)
