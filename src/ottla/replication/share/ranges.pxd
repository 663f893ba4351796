# C types for `ranges.py`; see there.
cimport cython

from ottla.metrics.instruments cimport Histogram


@cython.locals(found=cython.longlong, first=cython.longlong, last=cython.longlong)
cpdef long long count_records(ranges) except -1


@cython.locals(
    length=cython.longlong, times=cython.longlong, each=cython.longlong, first=cython.longlong,
    last=cython.longlong,
)
cpdef add_lengths(Histogram histogram, ranges)


@cython.locals(
    found=list, start=cython.longlong, until=cython.longlong, first=cython.longlong, last=cython.longlong,
)
cpdef list spans(ranges, long long near)


@cython.locals(guess=cython.longlong)
cpdef Py_ssize_t index_of(marks, long long offset) except -1


@cython.locals(
    type_=cython.longlong, records=cython.longlong, said=cython.longlong, first=cython.longlong,
    last=cython.longlong,
)
cpdef count_types(dict counts, ranges)
