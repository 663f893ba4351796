# C types for `api.py`; see there.
cimport cython


cdef class Slot:
    cdef public double began_s
    cdef public object call
    cdef public object deferred
    cdef public bint ready
    cdef public object response
    cdef public object task

    cpdef complete(self, result)


cdef class Deferred:
    cdef public bint cancelled
    cdef public bint done
    cdef public object on_cancel
    cdef public object on_complete
    cdef public object result
    cdef public Slot slot

    @cython.locals(slot=Slot)
    cpdef complete(self, result)


cdef class RequestContext:
    cdef public object api_key
    cdef public object api_version
    cdef public Py_ssize_t body_offset
    cdef public object client_host
    cdef public object client_id
    cdef public object correlation_id
    cdef public object in_steps
    cdef public object listener_name
    cdef public object node
    cdef public object principal
    cdef public object session

    @cython.locals(other=RequestContext)
    cpdef RequestContext of_another(self, correlation_id)
    cpdef count_error(self, error, times=*)


cdef class Api:
    cdef public object cost_shift
    cdef public object decode
    cdef public object decode_in_steps
    cdef public object handle
    cdef public object key
    cdef public object learn
    cdef public long long long_bytes
    cdef public object max_version
    cdef public object min_version
    cdef public object needs
    cdef public object on_error
    cdef public bint pipelined


cdef class ApiSet:
    cdef public dict _loaded
    cdef public object _loader
    cdef public object advertised
    cdef public bint of_clients
    cdef public dict table

    cpdef Api load(self, key)


cdef class Call:
    cdef public Api api
    cdef public object context
    cdef public object request
