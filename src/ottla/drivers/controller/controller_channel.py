"""The way from a broker to the active controller, wherever that is: requests and responses in Kafka's own messages.

Handlers and the broker's own life know this and nothing else of the controller. In the controller's process it is a
call; from another one the request goes over the wire, a client's in an Envelope (KIP-590).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.drivers.controller.active_controller import ActiveController, Heard
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.metadata.metadata_publisher import MetadataPublisher
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.drivers.controller.controller_ports import Watch
    from ottla.quotas.usage import Permits

NEWEST_VERSION = -1


class Requester(NamedTuple):
    """The client on whose behalf a broker asks, as named in an Envelope."""

    principal: str = "User:ANONYMOUS"
    client_host: str = "127.0.0.1"
    client_id: str | None = None


THE_BROKER = Requester()
"""The broker itself: its registration, heartbeats, producer ids."""


class ControllerChannel(Protocol):
    async def send(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        *,
        version: int = NEWEST_VERSION,
        requester: Requester = THE_BROKER,
    ) -> dict[str, Any]:
        """The controller's response. Mappings have the names of the newest version; `version` is the one in which the
        client asked, and in which the request travels.

        When it returns, what it says is committed; where the controller is in this process, this node's own image and
        logs show it already. Raises KafkaError for what is refused as a whole, NOT_CONTROLLER where there is none.
        """
        ...


class LocalControllerChannel:
    """Sends to the controller in this process while it is the active one, else to another node."""

    def __init__(
        self,
        controller: ActiveController,
        publisher: MetadataPublisher,
        elsewhere: Callable[[], ControllerChannel | None] = lambda: None,
    ) -> None:
        """`elsewhere`: the way to the other controllers, None while there are none."""
        self._controller = controller
        self._publisher = publisher
        self._elsewhere = elsewhere
        self.permits_of: Callable[[ApiKey, int, Requester], Permits | None] | None = None
        """The quotas of mutations, once there are any."""
        self.watch: Callable[[ApiKey, Mapping[str, Any], Requester], Watch | None] | None = None
        """The audit log, where there is one."""

    @property
    def is_open(self) -> bool:
        """Whether the controller in this process is the active one."""
        return self._controller.active

    async def send(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        *,
        version: int = NEWEST_VERSION,
        requester: Requester = THE_BROKER,
    ) -> dict[str, Any]:
        """See `ControllerChannel`."""
        if self._controller.active:
            try:
                return await self.call(api_key, request, version=version, requester=requester)
            except KafkaError as error:
                if error.code is not ErrorCode.not_controller or (elsewhere := self._elsewhere()) is None:
                    raise
        elif (elsewhere := self._elsewhere()) is None:
            return await self.call(api_key, request, version=version, requester=requester)
        return await elsewhere.send(api_key, request, version=version, requester=requester)

    async def call(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        *,
        version: int = NEWEST_VERSION,
        requester: Requester = THE_BROKER,
    ) -> dict[str, Any]:
        """Ask the controller in this process and no other. A client that is told of its new topic can use it at once.

        Raises KafkaError as `ControllerChannel.send`.
        """
        watch = None if self.watch is None else self.watch(api_key, request, requester)
        if watch is None:
            return await self._call(api_key, request, version, requester)
        try:
            response = await self._call(api_key, request, version, requester, watch.heard)
        except BaseException as error:  # also where whoever asked is gone: the decision may stand
            watch.failed(error)
            raise
        await run_yielding(watch.answering(response))
        return response

    async def _call(
        self,
        api_key: ApiKey,
        request: Mapping[str, Any],
        version: int,
        requester: Requester,
        heard: Heard | None = None,
    ) -> dict[str, Any]:
        permits = None if self.permits_of is None else self.permits_of(api_key, version, requester)
        if permits is None:
            response: dict[str, Any]
            response, offset = await self._controller.request(
                api_key, request, heard=heard, requester=requester.principal
            )
        else:
            response, offset = await self._controller.request(
                api_key, request, permits.take, heard, requester.principal
            )
            response = {**response, "throttle_time": permits.delay_ms()}
        await self._publisher.wait_published(offset)
        return response
