"""The Metadata response, versions 0-13, written by hand.

Through kio, a response of 10,000 partitions keeps the event loop busy for more than a tenth of a second, whenever some
client lists all topics; this takes a tenth of that. Rows of partitions differ in little more than their number, so that
the rest of a row is encoded once and kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, NodeId
from ottla.protocol.varint import uvarint

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(">hii")
_ROW_WITH_EPOCH = struct.Struct(">hiii")

FLEXIBLE_SINCE = 9
ROWS_KEPT_MAX = 4096
"""Encoded lists of nodes that are remembered: more than there are ways to place replicas on one rack of brokers."""


class Broker(NamedTuple):
    node_id: NodeId
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    error_code: ErrorCode
    number: int
    leader_id: NodeId
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]


class Topic(NamedTuple):
    error_code: ErrorCode
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Collection[Partition]
    authorized_operations: int


TOPICS_PER_STEP = 256
PARTITIONS_PER_STEP = 1024
"""Either takes about a millisecond."""


def encode_in_steps(
    version: int,
    *,
    brokers: Sequence[Broker],
    cluster_id: str | None,
    controller_id: NodeId,
    topics: Iterable[Topic],
    topic_count: int,
    cluster_authorized_operations: int,
    error_code: ErrorCode = ErrorCode.none,
) -> Generator[None, None, bytes]:
    """The body of a response, without its header. At each yield others may run."""
    flexible = version >= FLEXIBLE_SINCE
    string = _compact_string if flexible else _string
    tags = b"\0" if flexible else b""
    out = [b"\0\0\0\0" if version >= 3 else b"", _length(len(brokers), flexible)]
    for broker in brokers:
        out += (_INT32.pack(broker.node_id), string(broker.host), _INT32.pack(broker.port))
        if version >= 1:
            out.append(string(broker.rack))
        out.append(tags)
    if version >= 2:
        out.append(string(cluster_id))
    if version >= 1:
        out.append(_INT32.pack(controller_id))
    out.append(_length(topic_count, flexible))
    parts: list[bytes] = []
    """Joined at each yield: a million pieces at the end would take a tenth of a second to join and to free."""
    partitions = 0
    for number, topic in enumerate(topics, start=1):
        _append_start(out, topic, version, string)
        rows = iter(topic.partitions)
        while some := list(islice(rows, PARTITIONS_PER_STEP)):
            out += _rows(some, version)
            partitions += len(some)
            if len(some) == PARTITIONS_PER_STEP:
                parts.append(b"".join(out))
                out.clear()
                yield
        _append_end(out, topic, version)
        if number % TOPICS_PER_STEP == 0 or partitions > PARTITIONS_PER_STEP:
            partitions = 0
            parts.append(b"".join(out))
            out.clear()
            yield
    if 8 <= version <= 10:
        out.append(_INT32.pack(cluster_authorized_operations))
    if version >= 13:
        out.append(_INT16.pack(error_code))
    out.append(tags)
    return b"".join([*parts, *out])


def _append_start(out: list[bytes], topic: Topic, version: int, string: Callable[[str | None], bytes]) -> None:
    flexible = version >= FLEXIBLE_SINCE
    # Before version 12 a name cannot be null, and by then no topic without a name is answered.
    out += (_INT16.pack(topic.error_code), string(topic.name if version >= 12 else topic.name or ""))
    if version >= 10:
        out.append((topic.topic_id or ZERO_UUID).bytes)
    if version >= 1:
        out.append(b"\1" if topic.is_internal else b"\0")
    out.append(_length(len(topic.partitions), flexible))


def _append_end(out: list[bytes], topic: Topic, version: int) -> None:
    if version >= 8:
        out.append(_INT32.pack(topic.authorized_operations))
    if version >= FLEXIBLE_SINCE:
        out.append(b"\0")


def _rows(partitions: Iterable[Partition], version: int) -> list[bytes]:
    rest = _flexible_rest if version >= FLEXIBLE_SINCE else _rest if version >= 5 else _rest_without_offline
    if version >= 7:
        with_epoch = _ROW_WITH_EPOCH.pack
        return [
            with_epoch(code, number, leader, epoch) + rest(replicas, isr, offline)
            for code, number, leader, epoch, replicas, isr, offline in partitions
        ]
    row = _ROW.pack
    return [
        row(code, number, leader) + rest(replicas, isr, offline)
        for code, number, leader, _, replicas, isr, offline in partitions
    ]


Nodes = tuple[NodeId, ...]


@lru_cache(ROWS_KEPT_MAX)
def _flexible_rest(replicas: Nodes, isr: Nodes, offline: Nodes) -> bytes:
    return b"".join(_nodes(nodes, flexible=True) for nodes in (replicas, isr, offline)) + b"\0"


@lru_cache(ROWS_KEPT_MAX)
def _rest(replicas: Nodes, isr: Nodes, offline: Nodes) -> bytes:
    return b"".join(_nodes(nodes, flexible=False) for nodes in (replicas, isr, offline))


@lru_cache(ROWS_KEPT_MAX)
def _rest_without_offline(replicas: Nodes, isr: Nodes, offline: Nodes) -> bytes:
    return b"".join(_nodes(nodes, flexible=False) for nodes in (replicas, isr))


def _nodes(nodes: Nodes, *, flexible: bool) -> bytes:
    return _length(len(nodes), flexible) + struct.pack(f">{len(nodes)}i", *nodes)


def _length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return uvarint(len(data) + 1) + data
