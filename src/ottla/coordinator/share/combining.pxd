# C types for `combining.py`; see there.
cimport cython


@cython.locals(
    first_offset=cython.longlong, last_offset=cython.longlong, until=cython.longlong, behind=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
)
cpdef combine_into(list known, new, long long start_offset)


@cython.locals(combined=list, end=cython.longlong, first=cython.longlong, last=cython.longlong)
cpdef tuple combine(known, new, long long start_offset)


@cython.locals(
    found=list, first=cython.longlong, last=cython.longlong, until=cython.longlong, is_first=cython.bint,
)
cpdef tuple _joined(batches, long long start_offset)


cpdef _append(list combined, first, last, state, count)
