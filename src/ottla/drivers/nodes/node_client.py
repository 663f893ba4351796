"""Kafka requests to other nodes: one connection for each destination, made when it is needed and again when it is lost.

Each part of a node that talks to others has a client of its own (metadata fetches, heartbeats, forwarded requests,
replication), because a node answers the requests of a connection in order and a fetch may wait. A destination that
cannot be reached is tried again after a time that doubles with every failure, with jitter, as Kafka's clients do
(`reconnect.backoff.ms`, `reconnect.backoff.max.ms`, KIP-144).
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.drivers.cooperative import run_yielding
from ottla.drivers.nodes.node_connection import NodeConnection, decoded
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.model import MeantNode
from ottla.network import Address, Network
from ottla.protocol import messages
from ottla.protocol.messages import MalformedRequest

if TYPE_CHECKING:
    from ottla.drivers.nodes.sasl_client import NodeLogin

_LOG = logging.getLogger("ottla.nodes")

JITTER = 0.2
"""Nodes that lost the same peer do not come back in step."""


class Answer(NamedTuple):
    version: int
    response: Any
    """An object of the response's class (`protocol/schemas`)."""


class OtherNode(KafkaError):
    """NETWORK_EXCEPTION: another node, perhaps of another cluster, answers at the address."""


class Timing(NamedTuple):
    """Times in milliseconds."""

    request_timeout_ms: int = 30_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    setup_timeout_ms: int = 10_000
    """`socket.connection.setup.timeout.ms`: to connect and to learn the versions."""


@dataclass(slots=True)
class _Destination:
    address: Address
    connection: NodeConnection | None = None
    connecting: asyncio.Task[NodeConnection] | None = None
    failures: int = 0
    """Consecutive failures."""
    retry_at: float = 0.0
    is_other: bool = False
    """Whether another node answered there when it was last tried."""


class NodeClient:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        network: Network,
        client_id: str,
        random: random_module.Random,
        timing: Timing = Timing(),  # noqa: B008 - immutable
        *,
        whom: Callable[[Address], MeantNode | None] | None = None,
        receive_buffer_bytes: int = -1,
    ) -> None:
        """`whom` says which node is meant at an address, None where that is unknown: a connection to another one is not
        used. `receive_buffer_bytes` is SO_RCVBUF of its connections; a negative one leaves it to the system."""
        self._whom = whom
        self.timing = timing
        self._receive_buffer_bytes = receive_buffer_bytes
        self._network = network
        self._client_id = client_id
        self._random = random
        self._destinations: dict[Address, _Destination] = {}
        self._closed = False

    async def ask(
        self,
        address: Address,
        api_key: int,
        values: Mapping[str, Any],
        *,
        versions: tuple[int, int],
        timeout_ms: int | None = None,
    ) -> Answer:
        """Send one request, in the highest of `versions` (both inclusive) that the other node knows.

        Raises KafkaError: NETWORK_EXCEPTION if there is no connection or it is lost, REQUEST_TIMED_OUT,
        UNSUPPORTED_VERSION. An error inside the response is the caller's.
        """
        timeout_s = (self.timing.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self.connection(address)
        except TimeoutError:
            raise KafkaError(ErrorCode.request_timed_out, f"no connection to {address} in time") from None
        version = connection.version_of(api_key, versions)
        if messages.is_long(values):
            request = await run_yielding(
                messages.encode_request_in_steps(api_key, version, 0, connection.client_id, values)
            )
        else:
            request = connection.encode(api_key, version, values)
        frame = await connection.send(request, max(deadline - loop.time(), 0.0))
        if len(frame) <= messages.LONG_BYTES:
            return Answer(version, decoded(api_key, version, frame))
        return Answer(version, await decoded_in_steps(api_key, version, memoryview(bytes(frame))))

    def versions_of(self, address: Address) -> Mapping[int, tuple[int, int]]:
        """APIs of a connected node; empty without a connection."""
        destination = self._destinations.get(address)
        return {} if destination is None or destination.connection is None else destination.connection.versions

    async def connection(self, address: Address) -> NodeConnection:
        """The connection to a node, made if there is none; waits while the destination is in back-off.

        For callers with an encoding of their own: `NodeConnection.send`. Raises KafkaError.
        """
        if self._closed:
            raise KafkaError(ErrorCode.network_exception, "this node is shutting down")
        destination = self._destinations.get(address)
        if destination is None:
            destination = self._destinations[address] = _Destination(address)
        connection = destination.connection
        if connection is not None and connection.failure is None:
            return connection
        if destination.connecting is None:
            destination.connection = None
            task = asyncio.get_running_loop().create_task(self._connect(destination))
            destination.connecting = task
            task.add_done_callback(lambda task: _connected(destination, task))
        connecting = destination.connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not connecting.cancelled() or (caller is not None and caller.cancelling()):
                raise
            why = "this node is shutting down" if self._closed else f"{address}: given up"
            raise KafkaError(ErrorCode.network_exception, why) from None

    async def _connect(self, destination: _Destination) -> NodeConnection:
        loop = asyncio.get_running_loop()
        wait_s = destination.retry_at - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        connection = NodeConnection(loop, self._client_id, str(destination.address))
        setup_s = self.timing.setup_timeout_ms / 1000
        try:
            async with asyncio.timeout(setup_s):
                size = self._receive_buffer_bytes
                await self._network.connect(lambda: connection, *destination.address, receive_buffer_bytes=size)
                await connection.negotiate(setup_s, None if self._whom is None else self._whom(destination.address))
                login: NodeLogin | None = getattr(self._network, "login", None)
                if login is not None:
                    await login.log_in(connection, setup_s)
        except Exception as error:
            # Any other than these is a bug, or bytes that are no answer. Whoever asks handles KafkaError alone, and
            # would else end, with all who wait for it.
            if not isinstance(error, OSError | TimeoutError | KafkaError | MalformedRequest):
                _LOG.error("internal error in a connection", exc_info=error)
            why = "no connection in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
            failure = KafkaError(ErrorCode.network_exception, f"{destination.address}: {why}")
            if isinstance(error, KafkaError) and error.code is ErrorCode.rebootstrap_required:
                failure = OtherNode(failure.code, f"{destination.address}: {error.message}")
                if not destination.is_other:
                    _LOG.error("another node answers", extra=fields(address=str(destination.address), error=why))
            destination.is_other = isinstance(failure, OtherNode)
            connection.fail(failure)
            destination.failures += 1
            destination.retry_at = loop.time() + self._backoff_s(destination.failures)
            raise failure from error
        except BaseException:
            connection.fail(KafkaError(ErrorCode.network_exception, f"{destination.address}: given up"))
            raise
        destination.failures, destination.is_other = 0, False
        # One that is lost right away is not tried again and again without a pause.
        destination.retry_at = loop.time() + self._backoff_s(1)
        return connection

    def _backoff_s(self, failures: int) -> float:
        doubled = self.timing.backoff_ms * 2.0 ** min(failures - 1, 30)
        spread = 1 + JITTER * (2 * self._random.random() - 1)
        return min(doubled * spread, self.timing.backoff_ms_max) / 1000

    def drop(self, address: Address, why: str) -> bool:
        """End the connection to a node: what is in flight fails with NETWORK_EXCEPTION, and the next request makes
        another one. Returns whether there was a connection, or one was being made."""
        destination = self._destinations.get(address)
        if destination is None:
            return False
        if destination.connecting is not None:
            destination.connecting.cancel()
            return True
        if destination.connection is None or destination.connection.failure is not None:
            return False
        destination.connection.fail(KafkaError(ErrorCode.network_exception, f"{address}: {why}"))
        return True

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        """Drop all connections; what is in flight fails, and so does what is asked for from now on."""
        self._closed = True
        for destination in self._destinations.values():
            await cancelled(destination.connecting)
            if destination.connection is not None:
                destination.connection.fail(KafkaError(ErrorCode.network_exception, "this node is shutting down"))
        self._destinations.clear()


async def decoded_in_steps(api_key: int, version: int, frame: memoryview) -> Any:
    """The response entity in a long frame. Raises KafkaError (NETWORK_EXCEPTION) for bytes that are none."""
    try:
        return await run_yielding(messages.decode_response_in_steps(api_key, version, frame))
    except MalformedRequest as error:
        raise KafkaError(ErrorCode.network_exception, f"a response that cannot be read: {error}") from error


def _connected(destination: _Destination, task: asyncio.Task[NodeConnection]) -> None:
    destination.connecting = None
    if not task.cancelled() and task.exception() is None:
        destination.connection = task.result()
