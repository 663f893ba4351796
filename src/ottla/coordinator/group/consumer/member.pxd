# C types for `member.py`; see there.
cimport cython


@cython.locals(head=tuple)
cdef _in_epoch(tuple row, epoch)
