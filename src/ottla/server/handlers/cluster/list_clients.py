"""ListClients, version 0, an API that Kafka does not have (`tools/protocol_schemas.py`): who is connected to a broker.

Behind `ottla client list` and the console's page of a topic, which ask each broker. The connection of the asker is
among them, except where only producers are asked for: connections over which an idempotent or transactional producer
writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clock import elapsed_s
from ottla.errors import ErrorCode
from ottla.model import NO_PRODUCER_ID, ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation
from ottla.server.api import Handling, RequestContext, api
from ottla.server.connections.client_facts import connections_of, peer_port_of, tls_of, traffic_of
from ottla.server.security.permissions import cluster

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ListClientsRequest
    from ottla.protocol.schemas.sent import ListClientsResponse, ListedClient
    from ottla.server.connections.connection import CompiledConnection
    from ottla.server.ports import ClientFacts, NodeListener
    from ottla.telemetry.clients import Clients

LOOK_COST = 1
ROW_COST = 15
"""The kernel is asked for each connection that is shown."""


@api(ApiKey.LIST_CLIENTS, versions=(0, 0), needs=(cluster(Operation.DESCRIBE),))
def handle(context: RequestContext, request: ListClientsRequest) -> Handling[ListClientsResponse]:
    node = context.node
    telemetry = vars(node).get("telemetry")
    clients: Clients | None = None if telemetry is None else telemetry.clients
    rows: list[ListedClient] = []
    now_s = elapsed_s()
    for listener, connection, facts in connections_of(node, request.principal, request.client_id):
        yield LOOK_COST
        if request.only_producers and (facts is None or facts.producer_id == NO_PRODUCER_ID):
            continue
        if facts is not None and not connection.closed:
            rows.append(_row(listener, connection, facts, clients, now_s))
            yield ROW_COST
    return {"error_code": ErrorCode.none, "error_message": None, "node_id": node.node_id, "clients": rows}


def _row(
    listener: NodeListener, connection: CompiledConnection, facts: ClientFacts, clients: Clients | None, now_s: float
) -> ListedClient:
    traffic = traffic_of(connection)
    version, cipher = tls_of(connection)
    pushed = None if clients is None or facts.instance_id is None else clients.pushed.get(facts.instance_id)
    return {
        "principal": connection.principal,
        "client_id": facts.client_id,
        "software_name": facts.software_name,
        "software_version": facts.software_version,
        "host": connection.client_host,
        "port": peer_port_of(connection),
        "listener": listener.name,
        "security_protocol": listener.protocol,
        "tls_version": version,
        "tls_cipher": cipher,
        "mechanism": None if connection.login is None else connection.login.mechanism,
        "connected_ms": round((now_s - facts.connected_s) * 1000),
        "idle_ms": -1 if traffic is None else traffic.idle_ms,
        "bytes_in": -1 if traffic is None else traffic.bytes_in,
        "bytes_out": -1 if traffic is None else traffic.bytes_out,
        "client_instance_id": facts.instance_id or ZERO_UUID,
        "pushed_metrics": 0 if pushed is None else len(pushed.points),
        "producer_id": facts.producer_id,
    }
