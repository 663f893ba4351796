"""Names the leader and its address to a client that asked a node which does not lead a partition (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.metadata.image import PartitionRegistration
from ottla.server.api import RequestContext

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import LeaderIdAndEpoch, ProduceResponseNodeEndpoint

LEADER_ERRORS = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
"""Errors that come with a hint at the leader (KIP-951)."""


def known_leader(
    context: RequestContext, registration: PartitionRegistration | None, node_ids: set[int]
) -> LeaderIdAndEpoch | None:
    """The leader to name to a client, which is added to `node_ids`; None where its process seems to be gone."""
    if registration is None or registration.leader in context.node.lost:
        return None
    node_ids.add(registration.leader)
    return {"leader_id": registration.leader, "leader_epoch": registration.leader_epoch}


def endpoints_of(context: RequestContext, node_ids: set[int]) -> list[ProduceResponseNodeEndpoint]:
    """Where the clients of this listener reach those nodes."""
    found: list[ProduceResponseNodeEndpoint] = []
    for node_id in sorted(node_ids):
        broker = context.node.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(context.listener_name)
        if broker is not None and endpoint is not None:
            found.append({"node_id": node_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack})
    return found
