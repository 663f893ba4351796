"""DisconnectClients, version 0, an API that Kafka does not have (`tools/protocol_schemas.py`): closes connections.

Behind `ottla user disconnect` and `ottla client disconnect`, which ask each broker. What a client has asked for is
answered still, and nothing more is begun. The connection of the asker stays. A client may come back: what keeps it away
is that its user or its ACLs are gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.connections.client_facts import connections_of
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import DisconnectClientsRequest
    from ottla.protocol.schemas.sent import DisconnectClientsResponse

_NETWORK = logging.getLogger("ottla.network")

LOOK_COST = 1
CLOSE_COST = 50
ANSWER_SECONDS_MAX = 1.0
"""How long a client has to take the answers that are due to it."""


@api(ApiKey.DISCONNECT_CLIENTS, versions=(0, 0), needs=(cluster(Operation.ALTER),))
def handle(context: RequestContext, request: DisconnectClientsRequest) -> Handling[DisconnectClientsResponse]:
    node = context.node
    if request.principal is None and request.client_id is None:
        raise KafkaError(ErrorCode.invalid_request, "Name a principal, a client id or both")
    closed = 0
    for listener, connection, facts in connections_of(node, request.principal, request.client_id):
        yield LOOK_COST
        if facts is None or connection is context.session:
            continue
        closed += 1
        connection.finish()
        listener.loop.call_later(ANSWER_SECONDS_MAX, connection.abort)
        yield CLOSE_COST
    if closed:
        _NETWORK.info(
            "clients disconnected",
            extra=fields(
                principal=request.principal, client_id=request.client_id, connections=closed, by=context.principal
            ),
        )
    return {"error_code": ErrorCode.none, "error_message": None, "node_id": node.node_id, "closed": closed}
