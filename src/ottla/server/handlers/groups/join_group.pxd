# C types for `join_group.py`; see there.
cimport cython

from ottla.server.api cimport RequestContext
from ottla.server.coordinators.coordinator_replies cimport EncodedReply
from ottla.server.coordinators.known_requests cimport Known


@cython.locals(reply=EncodedReply)
cpdef _ask(RequestContext context, asked)
cpdef _ask_again(RequestContext context, Known known)
