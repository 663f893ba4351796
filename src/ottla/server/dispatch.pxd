# C types for `dispatch.py`; see there.
cimport cython

from ottla.server.api cimport Api, ApiSet, Call, Deferred, RequestContext
from ottla.server.connections.outbox cimport EncodedResponse


@cython.locals(apis=ApiSet, loaded=Api, call=Call, context=RequestContext)
cpdef begin(node, connection, frame)


@cython.locals(context=RequestContext)
cpdef encode(Call call, response)
