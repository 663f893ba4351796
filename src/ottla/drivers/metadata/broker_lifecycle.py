"""The life of this node's broker as the controller hears of it (Kafka's `BrokerLifecycleManager`).

It registers, and its heartbeats say how far it has followed the metadata: so it is unfenced, stays so, and is let go in
a controlled shutdown. All of it goes through the channel, the same whether the controller is in this process or not; if
it is, a heartbeat that changes nothing is a call, and writes no record.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.image import Endpoint
from ottla.model import NodeId, Offset, random_uuid
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import BrokerHeartbeatRequest

_LOG = logging.getLogger("ottla.node")

_RETRIED: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.broker_not_available,
        ErrorCode.duplicate_broker_registration,
    }
)
"""Errors that may be over a moment later. All others will be the same next time."""

RETRY_BACKOFF_S: Final = 0.1
"""Between two tries of what failed, as in Kafka's `ExponentialBackoff` at its beginning."""

SHUTDOWN_TIMEOUT_S: Final = 30.0
"""How long a controlled shutdown may take before the broker goes without it. Kafka waits for five minutes; who stops a
process seldom does."""

SHUTDOWN_ANSWER_S: Final = 1.0
"""How long a controller is waited for meanwhile."""


def listeners_and_features(endpoints: Mapping[str, Endpoint]) -> dict[str, Any]:
    """What the registrations of a broker and of a controller have in common: `endpoints` by the names of listeners, and
    the levels of features that this software supports."""
    return {
        "listeners": [
            {"name": name, "host": end.host, "port": end.port, "security_protocol": end.security_protocol}
            for name, end in endpoints.items()
        ],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in features.SUPPORTED.items()
        ],
    }


class BrokerSettings(NamedTuple):
    """A broker's registration data and heartbeat intervals."""

    node_id: NodeId
    cluster_id: str
    rack: str | None
    heartbeat_interval_s: float
    registration_timeout_s: float
    directory_failure_timeout_s: float = 30.0
    """For how long the controller may not hear of a failed log directory."""
    incarnation_id: UUID | None = None
    """Under which the broker's id was taken for this process; a new one unless given."""


class BrokerLifecycle:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        channel: ControllerChannel,
        random: random_module.Random,
        settings: BrokerSettings,
        published: Callable[[], Offset],
    ) -> None:
        """`published`: up to where this node has followed the metadata."""
        self._channel = channel
        self._settings = settings
        self._published = published
        self._incarnation_id = settings.incarnation_id or random_uuid(random)
        self.broker_epoch = -1
        """Epoch of this process's registration; -1 before it."""
        self.fenced = True
        """Whether the broker is fenced, according to the controller's last answer."""
        self._timer: asyncio.Handle | None = None
        self._task: asyncio.Task[None] | None = None
        """A heartbeat under way."""
        self._failing = False
        """The last heartbeat was not taken."""
        self._failed_dirs: dict[UUID, asyncio.Event] = {}
        """Log directories that failed since the registration; set once the controller took a heartbeat that names the
        directory."""
        self.on_unreported: Callable[[UUID], None] = lambda directory_id: None
        """Called when the controller has not heard of a failed directory for `directory_failure_timeout_s`."""
        self.cordoned: Callable[[], tuple[UUID, ...] | None] = lambda: None
        """The log directories that are to get no new partitions; None where the controller need not hear of it."""
        self._beat_again = False
        """The next heartbeat has news, and is sent at once."""
        self._stopping = False

    async def register(
        self, endpoints: Mapping[str, Endpoint], log_dirs: Mapping[str, UUID], *, previous_epoch: int = -1
    ) -> None:
        """Register under the endpoints (listener name to endpoint) and with the ids of the log directories that can be
        used. Raises KafkaError when the controller refuses, or cannot be reached for `registration_timeout_s`."""
        request = {
            "broker_id": self._settings.node_id,
            "cluster_id": self._settings.cluster_id,
            "incarnation_id": self._incarnation_id,
            **listeners_and_features(endpoints),
            "rack": self._settings.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": tuple(log_dirs.values()),
            "previous_broker_epoch": previous_epoch,
        }
        response = await self._retrying(ApiKey.BROKER_REGISTRATION, request)
        self.broker_epoch = response["broker_epoch"]

    async def unfence(self) -> None:
        """Send heartbeats until the controller lets clients come; returns then, and goes on sending them.

        Raises KafkaError as `register`.
        """
        loop = asyncio.get_running_loop()
        while True:
            response = await self._retrying(ApiKey.BROKER_HEARTBEAT, self._heartbeat())
            self.fenced = response["is_fenced"]
            if not self.fenced:
                break
            await asyncio.sleep(RETRY_BACKOFF_S)
        self._timer = loop.call_later(self._settings.heartbeat_interval_s, self._on_timer)

    async def _retrying(self, api_key: ApiKey, request: Mapping[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._settings.registration_timeout_s
        while True:
            try:
                response = await self._send(api_key, request)
            except KafkaError as error:
                if error.code not in _RETRIED or self._stopping or loop.time() >= give_up_s:
                    raise
                _LOG.info("retrying a request to the controller", extra=fields(request=api_key.name, error=str(error)))
                await asyncio.sleep(RETRY_BACKOFF_S)
                request = self._heartbeat() if api_key is ApiKey.BROKER_HEARTBEAT else request
            else:
                return response

    async def _send(self, api_key: ApiKey, request: Mapping[str, Any]) -> dict[str, Any]:
        """The response. Raises KafkaError for the error code in it, too."""
        response = await self._channel.send(api_key, request)
        if response["error_code"]:
            raise KafkaError(ErrorCode(response["error_code"]), response.get("error_message") or None)
        for directory_id in request.get("offline_log_dirs", ()):
            self._failed_dirs[directory_id].set()
        return response

    def _heartbeat(self, *, shut_down: bool = False) -> BrokerHeartbeatRequest:
        beat: BrokerHeartbeatRequest = {
            "broker_id": self._settings.node_id,
            "broker_epoch": self.broker_epoch,
            "current_metadata_offset": self._published(),
            "want_fence": False,
            "want_shut_down": shut_down,
            "offline_log_dirs": tuple(self._failed_dirs),
        }
        cordoned = self.cordoned()
        if cordoned is not None:
            beat["cordoned_log_dirs"] = cordoned
        return beat

    def directory_failed(self, directory_id: UUID) -> None:
        """A log directory can be used no more: let the controller hear of it at once, so that others lead what this
        broker led from there (KIP-858). A broker without any directory left is fenced. `on_unreported` is called where
        the controller does not hear of it in time."""
        if directory_id not in self._failed_dirs:
            self._failed_dirs[directory_id] = asyncio.Event()
            timeout_s = self._settings.directory_failure_timeout_s
            asyncio.get_running_loop().call_later(timeout_s, self._ensure_reported, directory_id)
        self.say_now()

    def _ensure_reported(self, directory_id: UUID) -> None:
        if not (self._failed_dirs[directory_id].is_set() or self._stopping):
            self.on_unreported(directory_id)

    async def reported(self, directory_id: UUID) -> None:
        """Waits until the controller has heard of a failed log directory."""
        await self._failed_dirs[directory_id].wait()

    def say_now(self) -> None:
        """Send a heartbeat at once: something that it reports has changed."""
        self._beat_again = True
        if self._timer is not None and not self._stopping:
            self._begin_beat()

    def _on_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._settings.heartbeat_interval_s, self._on_timer)
        self._begin_beat()

    def _begin_beat(self) -> None:
        if self._task is None or self._task.done():  # a channel that hangs has timeouts of its own
            self._task = asyncio.get_running_loop().create_task(self._beat_on())

    async def _beat_on(self) -> None:
        await self._beat()
        while self._beat_again and not self._failing:
            await self._beat()

    async def _beat(self) -> None:
        self._beat_again = False
        try:
            response = await self._send(ApiKey.BROKER_HEARTBEAT, self._heartbeat())
        except KafkaError as error:
            if not self._failing:  # the next ones will say the same
                _LOG.warning("a heartbeat to the controller failed", extra=fields(error=str(error)))
            self._failing = True
            return
        except Exception as error:  # a bug must not end the heartbeats
            _LOG.error("internal error in heartbeats", exc_info=error)
            self._failing = True
            return
        self._failing = False
        if response["is_fenced"] != self.fenced:
            self.fenced = response["is_fenced"]
            _LOG.warning("the controller has fenced this broker" if self.fenced else "this broker is unfenced")

    async def assign_directories(self, directories: Mapping[tuple[UUID, int], UUID]) -> None:
        """Tell in which log directory this node keeps its replicas: (topic id, partition) to directory id (KIP-858).

        What cannot be told of, since it is gone meanwhile, is passed over. Raises KafkaError.
        """
        from ottla.controller.directories import assignment_request  # for a broker with several directories

        request = assignment_request(self._settings.node_id, self.broker_epoch, directories)
        await self._send(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request)

    async def stop(self, deserted: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """A controlled shutdown: others lead what this broker led, where they can, and the next start need not wait for
        its session to end. Without a controller it is over after a moment, or when `deserted` returns, as there is none
        any more that could answer; the second time at once. Raises nothing."""
        if self._stopping:
            return
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self.broker_epoch < 0:
            return
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._shut_down())]
        if deserted is not None:
            tasks.append(loop.create_task(deserted()))
        try:
            await asyncio.wait(tasks, timeout=SHUTDOWN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _shut_down(self) -> None:
        backoff_s = 0.0  # the first takes the leaderships away; alone, the second may go at once
        try:
            while not await self._may_shut_down():
                await asyncio.sleep(backoff_s)
                backoff_s = RETRY_BACKOFF_S
        except (KafkaError, TimeoutError) as error:  # the next start registers again anyhow
            _LOG.debug("controlled shutdown skipped", extra=fields(error=str(error)))

    async def _may_shut_down(self) -> bool:
        async with asyncio.timeout(SHUTDOWN_ANSWER_S):
            response = await self._send(ApiKey.BROKER_HEARTBEAT, self._heartbeat(shut_down=True))
        return bool(response["should_shut_down"])
