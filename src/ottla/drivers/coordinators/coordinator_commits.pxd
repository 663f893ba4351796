# C types for `coordinator_commits.py`; see there.


cdef class Commits:
    cdef public list _records
    cdef public Py_ssize_t _size
    cdef public Py_ssize_t count
    cdef public list entries
    cdef public object now_ms
