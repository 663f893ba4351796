"""Requests that are for another node: those of clients that are the controller's to decide (KIP-590), and those about
the quorum that name another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.drivers.controller.controller_channel import LocalControllerChannel, Requester
from ottla.drivers.cooperative import run_yielding
from ottla.protocol.messages import ApiKey, plain_in_steps

if TYPE_CHECKING:
    from ottla.server.api import RequestContext
    from ottla.server.ports import Member


def has_other_cluster(node: Member, cluster_id: str | None) -> bool:
    """A request without a cluster id is of any."""
    return cluster_id is not None and cluster_id != node.cluster_id


def forwards_quorum_request(context: RequestContext) -> bool:
    """Whether a request about the quorum is for another node: the leader answers, and a controller that does not lead
    says so to who asks it as a controller."""
    node = context.node
    return not node.metadata.quorum.is_leader and context.listener_name not in node.controller_endpoints


async def to_controller(context: RequestContext, asked: Mapping[str, Any]) -> Any:
    """The active controller's answer to a client's request, as mappings. Raises KafkaError.

    Who asks at a controller's own listener, for itself or in an Envelope, wants that controller: NOT_CONTROLLER sends
    them on to the one that is active. `asked` is freed here in steps, if the caller has no name for it.
    """
    node = context.node
    if context.listener_name in node.controller_endpoints:
        channel = node.channel
        assert isinstance(channel, LocalControllerChannel)
        answer = await channel.call(
            ApiKey(context.api_key), asked, version=context.api_version, requester=_requester(context)
        )
    else:
        answer = await node.channel.send(
            ApiKey(context.api_key), asked, version=context.api_version, requester=_requester(context)
        )
    from ottla.server.connections.incremental_free import free_in_steps  # an idle node does without

    held = [asked]
    del asked
    await run_yielding(free_in_steps(held))
    delay_ms = answer.get("throttle_time")
    if delay_ms and context.session is not None and context.session.quotas is not None:
        context.session.quotas.delayed_by_controller(context, delay_ms)
    return answer


async def forwarded(context: RequestContext, request: Any) -> Any:
    """The active controller's answer to a client's request as it came. Raises KafkaError."""
    return await to_controller(context, await run_yielding(plain_in_steps(request)))


def _requester(context: RequestContext) -> Requester:
    return Requester(context.principal, context.client_host, context.client_id)
