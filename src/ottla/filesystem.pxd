# C types for `filesystem.py`; see there. Its classes stay Python's (tests put methods of their own into `OsFile`).
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno as c_errno
from posix.uio cimport iovec
from posix.unistd cimport pwrite

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, long fd, iovec *vectors, long count, long low, long high, long flags)

cdef extern from "<sys/syscall.h>":
    const long SYS_preadv2

cdef long _NOWAIT
cdef Py_ssize_t _PIECE


@cython.locals(
    view=Py_buffer, base="const char *", written=cython.Py_ssize_t, total=cython.Py_ssize_t, size=cython.Py_ssize_t,
    step=cython.Py_ssize_t, number=cython.int,
)
cdef Py_ssize_t _write_pieces(int fd, data, long long position) except -1


@cython.locals(data=bytes, vector=iovec, got=cython.long, number=cython.int)
cdef _read_nowait(int fd, Py_ssize_t length, long long position)
