# C types for `sync_group.py`; see there.
from ottla.server.api cimport RequestContext
from ottla.server.coordinators.known_requests cimport Known


cpdef _ask(RequestContext context, asked)
cpdef _ask_again(RequestContext context, Known known)
