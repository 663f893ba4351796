# C types for `listener_state.py`; see there.

from ottla.metrics.instruments cimport NodeMetrics


cdef class ListenerState:
    cdef public object answering
    cdef public double began_s
    cdef public object loop
    cdef public NodeMetrics metrics
    cdef public bytearray receive_buffer
    cdef public object receive_view
    cdef public object served
    cdef public long long served_bytes
    cdef public double slow_s
    cdef public long long tick
