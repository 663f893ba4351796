"""A simulated client's connection: requests of Kafka's protocol in order, each with its answer."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from random import Random
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.simulation.world import PORT
from ottla.testing.network import HostNetwork

REQUEST_SECONDS_MAX = 3.0
"""Then the client gives the connection up; far above what a healthy node takes."""

RETRIABLE = frozenset({
    ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out,
    ErrorCode.kafka_storage_error, ErrorCode.unknown_topic_or_partition, ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress, ErrorCode.not_controller,
    ErrorCode.broker_not_available, ErrorCode.network_exception, ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append, ErrorCode.rebalance_in_progress, ErrorCode.offset_not_available,
})  # fmt: skip


OF_CLUSTERS = frozenset({ErrorCode.invalid_replication_factor, ErrorCode.topic_already_exists})
"""Errors as in Kafka if no broker is unfenced, or if a broker repeated a forwarded request whose answer was lost."""


class Disconnected(Exception):
    """The connection is gone, or the answer did not come in time."""


class Wire(asyncio.Protocol):
    """One connection: requests in order, each with its answer."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, ApiKey, int, asyncio.Future[Any]]] = deque()
        self._received = bytearray()
        self._number = 0
        self.host = ""
        """The host that is asked."""
        self.transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, network: HostNetwork, host: str, port: int = PORT) -> Wire:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                _, wire = await network.connect(cls, host, port)
        except OSError as error:  # TimeoutError is one
            raise Disconnected(f"{type(error).__name__}") from error
        assert isinstance(wire, cls)
        wire.host = host
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        for *_, future in self._waiting:
            if not future.done():
                future.set_exception(Disconnected(f"{error!r}"))
                future.exception()  # it may be that nobody waits
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < size + 4:
                break
            frame = bytes(self._received[4 : size + 4])
            del self._received[: size + 4]
            number, key, version, future = self._waiting.popleft()
            found, response = messages.decode_response(key, version, frame)
            assert found == number, "answers are in the order of requests"
            if not future.done():
                future.set_result(messages.plain(response))

    def send(
        self, key: ApiKey, version: int, values: Mapping[str, Any], *, answered: bool = True
    ) -> asyncio.Future[Any]:
        """`answered`: whether an answer comes, which acks=0 does not get."""
        if self.transport is None:
            raise Disconnected("not connected")
        self._number += 1
        frame = messages.encode_request(key, version, self._number, "simulation", values)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if answered:
            self._waiting.append((self._number, key, version, future))
        self.transport.write(struct.pack(">i", len(frame)) + frame)
        return future

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await future
        except TimeoutError as error:
            self.close()
            raise Disconnected("no answer in time") from error

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        return await self.answer(self.send(key, version, values))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


async def leader_of(network: HostNetwork, servers: Sequence[str], random: Random, key: tuple[str, int]) -> str:
    """The host of a partition's leader, as one of the brokers knows. Raises Disconnected."""
    topic, number = key
    asked = {"topics": ({"name": topic, "topic_id": None},), "allow_auto_topic_creation": False}
    with closing(await Wire.connect(network, random.choice(servers))) as wire:
        response = await wire.ask(ApiKey.METADATA, 9, asked)
    hosts = {broker["node_id"]: str(broker["host"]) for broker in response["brokers"]}
    (found,) = response["topics"]
    leaders = {each["partition_index"]: each["leader_id"] for each in found["partitions"]}
    host = hosts.get(leaders.get(number, -1))
    if host is None:
        raise Disconnected(f"nobody leads {key}")
    return host


async def coordinator_of(network: HostNetwork, servers: Sequence[str], random: Random, name: str, kind: int = 0) -> str:
    """The host that coordinates a group (`kind` 1: a transactional id), as a broker knows. Raises Disconnected."""
    with closing(await Wire.connect(network, random.choice(servers))) as wire:
        response = await wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [name]})
    (found,) = response["coordinators"]
    if found["error_code"]:
        raise Disconnected(f"no coordinator: {ErrorCode(found['error_code']).name}")
    return str(found["host"])
