"""Requests of a broker to the active controller, wherever that is (Kafka's NodeToControllerChannelManager).

What clients ask for goes in an Envelope, which says on whose behalf (KIP-590); what the broker itself asks for goes
plain. A controller that is gone, or leads no more, is looked for again until the request's time is over, so that a
change of controller is a pause and no error. A request may thus be done twice, as with Kafka's brokers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.drivers.controller.controller_channel import NEWEST_VERSION, THE_BROKER, LocalControllerChannel, Requester
from ottla.drivers.controller.controller_nodes import ControllerNodes
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.nodes.node_client import NodeClient
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.network import Address
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest, plain_in_steps
from ottla.protocol.principal import encode_principal

OWN: Mapping[int, tuple[int, int]] = {
    ApiKey.BROKER_REGISTRATION: (1, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.CONTROLLER_REGISTRATION: (0, 0),
}
"""Requests of a node for itself, with the versions that this node speaks."""

NEWEST_FORWARDED: Mapping[int, int] = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.ADD_RAFT_VOTER: 1,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_FEATURES: 2,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.UNREGISTER_CONTROLLER: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
}
"""Versions of requests that no client made: topics that are created because a client asked for them."""

_LOG = logging.getLogger("ottla.controller")

_AGAIN = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.not_leader_or_follower,
    }
)


class RemoteControllerChannel:
    """A `ControllerChannel`. All methods belong to the event loop's thread."""

    def __init__(
        self,
        controllers: ControllerNodes,
        own: NodeClient,
        forwarding: NodeClient,
        *,
        own_timeout_ms: int,
        forward_timeout_ms: int,
        retry_backoff_ms: int,
        changed: Callable[[], Awaitable[None]],
        here: LocalControllerChannel | None = None,
    ) -> None:
        """`own` and `forwarding` are clients of this channel alone: no heartbeat waits for a client's request.

        The timeouts are for a request with all its tries: of this broker itself, and of a client. `changed` is waited
        for before a client is answered whose request may have changed the metadata. `here` is the controller of this
        process, if it has one.
        """
        self._controllers = controllers
        self._own = own
        self._forwarding = forwarding
        self._own_timeout_s = own_timeout_ms / 1000
        self._forward_timeout_s = forward_timeout_ms / 1000
        self._changed = changed
        self._here = here
        self._closed = False
        self._looking: list[asyncio.Future[None]] = []
        """Requests that wait for an active controller."""
        self._backoff_s = retry_backoff_ms / 1000

    async def send(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        *,
        version: int = NEWEST_VERSION,
        requester: Requester = THE_BROKER,
    ) -> dict[str, Any]:
        """See `ControllerChannel`. Raises KafkaError: REQUEST_TIMED_OUT if no controller answered in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._own_timeout_s if api_key in OWN else self._forward_timeout_s)
        last: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    address = await self._active_controller()
            except TimeoutError:
                why = "no active controller is known" if last is None else str(last)
                raise KafkaError(ErrorCode.request_timed_out, f"the controller did not answer in time: {why}") from last
            try:
                timeout_ms = max(1, round((deadline - loop.time()) * 1000))
                if address is None:
                    assert self._here is not None
                    return await self._here.call(api_key, request, version=version, requester=requester)
                if api_key in OWN:
                    return await self._send_own(address, api_key, request, timeout_ms)
                if requester is THE_BROKER:
                    return await self._send_as_broker(address, api_key, request, timeout_ms)
                return await self._forward(address, api_key, request, version, requester, timeout_ms)
            except KafkaError as error:
                if error.code not in _AGAIN or self._closed:
                    raise
                last = error
            if address is not None:
                self._controllers.lost(address)
            await asyncio.sleep(min(self._backoff_s, max(deadline - loop.time(), 0)))

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """APIs of the active controller elsewhere; empty while there is no connection to it."""
        leader = self._controllers.leader
        return {} if leader is None else self._own.versions_of(leader)

    def activated(self) -> None:
        """The controller of this process is the active one now."""
        looking, self._looking = self._looking, []
        for each in looking:
            if not each.done():
                each.set_result(None)

    async def _active_controller(self) -> Address | None:
        """Where the active controller is, once there is one; None for this process."""
        here, controllers = self._here, self._controllers
        if here is not None and here.is_open:
            return None
        if here is None or controllers.leader is not None:
            return await controllers.wait_leader()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[None] = loop.create_future()
        self._looking.append(found)

        def there(task: asyncio.Task[Address]) -> None:
            if not found.done():
                found.set_result(None)

        remote = loop.create_task(controllers.wait_leader())
        remote.add_done_callback(there)
        try:
            await found
        finally:
            remote.cancel()
            if found in self._looking:
                self._looking.remove(found)
        return remote.result() if remote.done() and not remote.cancelled() else None

    async def _send_own(
        self, address: Address, api_key: ApiKey, request: Mapping[str, Any], timeout_ms: int
    ) -> dict[str, Any]:
        answer = await self._own.ask(address, api_key, request, versions=OWN[api_key], timeout_ms=timeout_ms)
        response: dict[str, Any] = await run_yielding(plain_in_steps(answer.response))
        if response.get("error_code") in _AGAIN:
            raise KafkaError(ErrorCode(response["error_code"]))
        return response

    async def _send_as_broker(
        self, address: Address, api_key: ApiKey, request: Mapping[str, Any], timeout_ms: int
    ) -> dict[str, Any]:
        """A request that clients make too, of this broker itself: plain, so that the controller authorizes the broker
        (the topics of coordinators)."""
        version = NEWEST_FORWARDED[api_key]
        answer = await self._forwarding.ask(
            address, api_key, request, versions=(version, version), timeout_ms=timeout_ms
        )
        response: dict[str, Any] = await run_yielding(plain_in_steps(answer.response))
        rows = response.get("topics", ())
        if any(row.get("error_code") == ErrorCode.not_controller for row in (response, *rows)):
            raise KafkaError(ErrorCode.not_controller)
        await self._changed()
        return response

    async def _forward(
        self,
        address: Address,
        api_key: ApiKey,
        request: Mapping[str, Any],
        version: int,
        requester: Requester,
        timeout_ms: int,
    ) -> dict[str, Any]:
        """Raises KafkaError for what the Envelope says; errors inside are the response's."""
        if version == NEWEST_VERSION:
            version = NEWEST_FORWARDED[api_key]
        encoding = messages.encode_request_in_steps(api_key, version, 0, requester.client_id, request)
        envelope = {
            "request_data": await run_yielding(encoding),
            "request_principal": encode_principal(requester.principal),
            "client_host_address": packed_host(requester.client_host),
        }
        answer = await self._forwarding.ask(address, ApiKey.ENVELOPE, envelope, versions=(0, 0), timeout_ms=timeout_ms)
        if answer.response.error_code:
            raise _refused(ErrorCode(answer.response.error_code), address)
        try:
            data = memoryview(answer.response.response_data or b"")
            inner = await run_yielding(messages.decode_response_in_steps(api_key, version, data))
        except MalformedRequest as error:
            raise KafkaError(
                ErrorCode.unknown_server_error, f"the controller's answer cannot be read: {error}"
            ) from error
        response: dict[str, Any] = await run_yielding(plain_in_steps(inner))
        if api_key != ApiKey.DESCRIBE_QUORUM:
            await self._changed()
        return response

    async def close(self) -> None:
        """Drop the connections; requests under way fail."""
        self._closed = True
        await self._own.close()
        await self._forwarding.close()


def _refused(code: ErrorCode, address: Address) -> KafkaError:
    """What the Envelope itself is refused with: that this broker may not forward is no fault of the client's, which
    hears of an internal error, as from Kafka (`ForwardingManager`)."""
    why = f"the controller at {address} refuses the request"
    if code in _AGAIN or code is ErrorCode.unsupported_version:
        return KafkaError(code, why)
    _LOG.error("the controller refuses an Envelope", extra=fields(controller=str(address), error=code.name))
    return KafkaError(ErrorCode.unknown_server_error, why)


def packed_host(host: str) -> bytes:
    """An address as its 4 or 16 bytes. What is no address (a name, a Unix socket) is told as loopback."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
