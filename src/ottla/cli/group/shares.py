"""Share groups (KIP-932): offsets that their coordinator tells and takes, and what only the leaders of their partitions
know: which records members hold, and which were delivered more than once. No request of Kafka's asks for that; a node
tells it at its HTTP port, whose address is a setting that every node tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli import client_security, wire
from ottla.cli.exits import CommandFailed
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.client.security import Security

Place = tuple[str, int]
"""A topic and a partition's number."""

HTTP_TIMEOUT_S = 5.0
NODES_AT_ONCE = 16
_LISTENER = "ottla.http.listener"
_PROTOCOL = "ottla.http.security.protocol"
_ANY_HOST = ("", "0.0.0.0", "::", "[::]")
_SAMPLE = re.compile(
    r'ottla_share_partition_(acquired_records|redelivered_records|start_offset)\{group="((?:[^"\\]|\\.)*)",'
    r'topic="([^"]*)",partition="(\d+)"\} (\d+)'
)
_ESCAPED = re.compile(r"\\(.)")


class Shared(NamedTuple):
    """Where a share group is in one partition."""

    start_offset: int
    """The first that is not done with; -1 before anybody has read."""
    backlog: int | None
    """Records that are not done with."""


class InFlight(NamedTuple):
    """Records of one partition."""

    held: int
    """Records acquired by members and not acknowledged yet."""
    redelivered: int
    """Delivered more than once, and not done with."""
    start_offset: int = -1
    """The first that is not done with now; what the coordinator tells is a little older."""


def offsets(link: wire.Link, names: Sequence[str]) -> dict[str, Mapping[Place, Shared]]:
    """How far share groups are, of their coordinator. Raises OSError."""
    answer = link.ask(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [{"group_id": name, "topics": None} for name in names]}
    )
    return {
        row["group_id"]: {
            (topic["topic_name"], part["partition_index"]): Shared(
                part["start_offset"], part["lag"] if part["lag"] >= 0 else None
            )
            for topic in row["topics"]
            for part in topic["partitions"]
        }
        for row in answer["groups"]
    }


def alter_offsets(bootstrap: str, group: str, moves: Mapping[Place, int]) -> None:
    """Move the start offsets of an empty group. Raises CommandFailed."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, number), offset in moves.items():
        topics.setdefault(topic, []).append({"partition_index": number, "start_offset": offset})
    values = {
        "group_id": group,
        "topics": [{"topic_name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
    answer = wire.ask(wire.coordinator(bootstrap, group), ApiKey.ALTER_SHARE_GROUP_OFFSETS, values)
    wire.ensure_none(answer, f"group {group!r}")
    for each in answer["responses"]:
        for part in each["partitions"]:
            wire.ensure_none(part, f"group {group!r}, {each['topic_name']} partition {part['partition_index']}")


def delete_offsets(bootstrap: str, group: str, topics: Iterable[str]) -> None:
    """Raises CommandFailed."""
    values = {"group_id": group, "topics": [{"topic_name": topic} for topic in topics]}
    answer = wire.ask(wire.coordinator(bootstrap, group), ApiKey.DELETE_SHARE_GROUP_OFFSETS, values)
    wire.ensure_none(answer, f"group {group!r}")
    for each in answer["responses"]:
        wire.ensure_none(each, f"group {group!r}, {each['topic_name']}")


# What leaders know


def in_flight(bootstrap: str) -> dict[tuple[str, str, int], InFlight]:
    """Records in flight by group, topic and partition, from all nodes that report them."""
    from concurrent.futures import ThreadPoolExecutor

    try:
        metadata = wire.ask(bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    except CommandFailed:
        return {}
    addresses = wire.broker_addresses(metadata)
    nodes = [(each["node_id"], each["host"], addresses[each["node_id"]]) for each in metadata["brokers"]]
    found: dict[tuple[str, str, int], dict[str, int]] = {}
    known = client_security.current()
    with ThreadPoolExecutor(NODES_AT_ONCE) as pool:
        for page in pool.map(lambda node: _metrics(node, known), nodes):
            for kind, group, topic, number, value in _SAMPLE.findall(page):
                place = _ESCAPED.sub(_unescape, group), topic, int(number)
                found.setdefault(place, {})[kind] = int(value)
    return {
        place: InFlight(each["acquired_records"], each["redelivered_records"], each["start_offset"])
        for place, each in found.items()
        if len(each) == len(InFlight._fields)
    }


def _unescape(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _metrics(node: tuple[int, str, str], known: Security) -> str:
    """The answer of a node's /metrics; empty if it has no HTTP port, or none that can be asked from here."""
    from http.client import HTTPException

    from ottla.client import http
    from ottla.client.security import SecurityFailure

    node_id, host, address = node
    listener = wire.broker_setting(address, node_id, _LISTENER, HTTP_TIMEOUT_S)
    own, _, number = (listener or "").rpartition(":")
    if not number.isdecimal():
        return ""
    protocol = wire.broker_setting(address, node_id, _PROTOCOL, HTTP_TIMEOUT_S) or ""
    place = host if own in _ANY_HOST else own.strip("[]")
    try:
        answer = http.get(
            place, int(number), "/metrics", known, HTTP_TIMEOUT_S, is_https=protocol in ("SSL", "SASL_SSL")
        )
    except (OSError, HTTPException, SecurityFailure):
        return ""
    return answer.body.decode("utf-8", "replace") if answer.status == 200 else ""
