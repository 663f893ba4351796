# C types for `seen_replicas.py`; see there.
cimport cython

from ottla.replication.partition cimport Partition


cdef class SeenReplica:
    cdef public long long _committed
    cdef public long long _leader_epoch
    cdef public bint _leads
    cdef public long long _partition_epoch
    cdef public Partition partition
    cdef public tuple state

    @cython.locals(partition=Partition)
    cpdef bint has_changed(self, bint serves) except -1


cdef class SeenReplicas:
    cdef public dict _states
    cdef public long long generation
    cdef public list rows

    @cython.locals(row=SeenReplica)
    cpdef list changed(self, bint serves)

    @cython.locals(row=SeenReplica)
    cpdef bint is_same(self, bint serves) except -1


cdef class SeenNode:
    cdef public object _core
    cdef public object _high_watermark
    cdef public object _image
    cdef public object _newest
    cdef public object _node
    cdef public object _publisher
    cdef public object _replicas
    cdef public object _role
    cdef public object _stored
    cdef public SeenReplicas replicas

    cpdef bint is_same(self, bint serves) except -1
