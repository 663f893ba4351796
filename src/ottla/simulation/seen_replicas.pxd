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


cdef class SeenReplicas:
    cdef public dict _states
    cdef public long long generation
    cdef public list rows

    @cython.locals(row=SeenReplica, partition=Partition)
    cpdef list changed(self, bint serves)
