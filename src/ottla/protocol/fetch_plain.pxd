# C types for `fetch_plain.py`; see there.
cimport cython
from cpython.bytearray cimport PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from ottla.protocol.fetch cimport FetchRequest

cdef Py_ssize_t _ROWS_MAX
cdef Py_ssize_t _NAME_MAX
cdef long long _TWO_31
cdef long long _TWO_32
cdef object _new
cdef Py_ssize_t _PIECE_BYTES
cdef Py_ssize_t _ROW_BYTES_MAX
cdef bytes _END


cdef class Row:
    cdef public long long high_watermark
    cdef public long long last_stable_offset
    cdef public long long log_start_offset
    cdef public object records


@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *data, Py_ssize_t position) noexcept


@cython.locals(high=cython.longlong, low=cython.longlong)
cdef long long _int64(const unsigned char *data, Py_ssize_t position) noexcept


@cython.locals(byte=cython.int)
cdef (long long, Py_ssize_t) _count(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, bint flexible
) noexcept


@cython.locals(length=cython.longlong)
cdef (long long, Py_ssize_t) _name_length(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t end, bint flexible
) noexcept


@cython.locals(length=cython.Py_ssize_t)
cdef tuple _plain_topic_key(
    int version, const unsigned char *data, Py_ssize_t position, Py_ssize_t end
)


@cython.locals(
    flexible=cython.bint, size=cython.Py_ssize_t, epoch=cython.longlong, last_epoch=cython.longlong,
    start_offset=cython.longlong, number=cython.longlong, offset=cython.longlong, bytes_max=cython.longlong,
    row=tuple, _=cython.Py_ssize_t,
)
cdef Py_ssize_t _plain_rows(
    int version, const unsigned char *data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count, list into
) except -2


@cython.locals(
    flexible=cython.bint, count=cython.Py_ssize_t, rows=cython.Py_ssize_t, row=cython.Py_ssize_t,
    length=cython.Py_ssize_t, _=cython.Py_ssize_t, forgotten=list,
)
cdef Py_ssize_t _plain_end(
    int version, const unsigned char *data, Py_ssize_t position, Py_ssize_t end, FetchRequest request
) except -2


@cython.locals(
    flexible=cython.bint, fixed=cython.Py_ssize_t, count=cython.Py_ssize_t, rows=cython.Py_ssize_t,
    left=cython.Py_ssize_t, level=cython.int, _=cython.Py_ssize_t, topics=list, partitions=list, request=FetchRequest,
)
cdef FetchRequest _decode(
    int version, const unsigned char *data, Py_ssize_t position, Py_ssize_t end
)


@cython.locals(whole=memoryview, data="const unsigned char *")
cpdef FetchRequest decode_plain(int version, frame, Py_ssize_t position)


@cython.locals(
    flexible=cython.bint, parts=list, out=bytearray, size=cython.Py_ssize_t, count=cython.Py_ssize_t,
    left=cython.Py_ssize_t, at=cython.Py_ssize_t, length=cython.Py_ssize_t, number=cython.Py_ssize_t, data=bytes, by_name=cython.bint, row=Row,
    key=tuple,
)
cpdef tuple encode_plain(int version, long long correlation_id, long long session_id, list rows)


@cython.locals(found=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef Py_ssize_t _topics_of(list rows, Py_ssize_t count) except -1


@cython.locals(at=cython.Py_ssize_t)
cdef Py_ssize_t _same_topic(list rows, Py_ssize_t start, Py_ssize_t count) except -1


cdef Py_ssize_t _put_row(
    bytearray out, Py_ssize_t at, int version, long long partition, long long high, long long stable, long long start
) except -1


cdef _make_room(bytearray out, Py_ssize_t at, Py_ssize_t size)


cdef _cut(bytearray out, Py_ssize_t at)


@cython.locals(number=cython.Py_ssize_t)
cdef Py_ssize_t _put_bytes(bytearray out, Py_ssize_t at, bytes data) except -1


cdef Py_ssize_t _put_length(bytearray out, Py_ssize_t at, long long length, bint flexible) except -1


cdef Py_ssize_t _put_int16(bytearray out, Py_ssize_t at, long long value) except -1


cdef Py_ssize_t _put_int32(bytearray out, Py_ssize_t at, long long value) except -1


cdef Py_ssize_t _put_int64(bytearray out, Py_ssize_t at, long long value) except -1
