# C types for `coordinator_answers.py`; see there.


cdef class Answers:
    cdef public bint _is_sending
    cdef public object _later
    cdef public object due

    cpdef send(self)
    cpdef send_soon(self)
    cpdef send_later(self, answer)
