# C types for `index_file.py`; see there.


cdef class IndexFile:
    cdef public object _fs
    cdef public Py_ssize_t _written
    cdef public long long base_offset
    cdef public str path
