# C types for `group.py`; see there.
cimport cython


cdef dict _of_topic(dict owned, topic_id)
@cython.locals(of_topic=dict)
cdef _renew(dict owned, assigned, before, epoch)
