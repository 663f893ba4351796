# C types for `ranges.py`; see there.
cimport cython

from ottla.metrics.instruments cimport Histogram
from ottla.replication.share.aborted cimport ReadBatch


@cython.locals(found=cython.longlong, first=cython.longlong, last=cython.longlong, row=tuple)
cpdef long long count_records(ranges) except -1


@cython.locals(batch=ReadBatch, last_offset=cython.longlong)
cpdef bint has_shorter(batches, long long records) except -1


@cython.locals(
    length=cython.longlong, times=cython.longlong, each=cython.longlong, first=cython.longlong,
    last=cython.longlong, row=tuple,
)
cpdef add_lengths(Histogram histogram, ranges)


@cython.locals(
    found=list, start=cython.longlong, until=cython.longlong, first=cython.longlong, last=cython.longlong, row=tuple,
)
cpdef list spans(ranges, long long near)


@cython.locals(guess=cython.longlong)
cpdef Py_ssize_t index_of(marks, long long offset) except -1


@cython.locals(
    type_=cython.longlong, records=cython.longlong, said=cython.longlong, first=cython.longlong,
    last=cython.longlong, row=tuple,
)
cpdef count_types(dict counts, ranges)
