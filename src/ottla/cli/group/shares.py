"""Share groups (KIP-932): offsets that their coordinator tells and takes, and what only the leaders of their partitions
know: which records members hold, and which were delivered more than once. No request of Kafka's asks for that; brokers
of Ottla have one of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli import client_security, wire
from ottla.cli.exits import CommandFailed
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.client.security import Security

Place = tuple[str, int]
"""A topic and a partition's number."""

ASK_TIMEOUT_S = 5.0
NODES_AT_ONCE = 16


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
    waiting: int = 0
    """Not delivered yet for the group's settings: a back-off, a time of delivery, or the order by key."""
    archived: int = 0
    """Given up since the leader has begun to serve the group: rejected, or delivered as often as they may be."""
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


def in_flight(bootstrap: str, groups: Sequence[str]) -> dict[tuple[str, str, int], InFlight]:
    """Records in flight by group, topic and partition, of all brokers of Ottla that answer."""
    from concurrent.futures import ThreadPoolExecutor

    if not groups:
        return {}
    try:
        metadata = wire.ask(bootstrap, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    except CommandFailed:
        return {}
    known = client_security.current()
    with ThreadPoolExecutor(NODES_AT_ONCE) as pool:
        answers = pool.map(lambda address: _led(address, groups, known), wire.broker_addresses(metadata).values())
        return {
            (row["group_id"], row["topic"], row["partition"]): InFlight(
                row["acquired_records"],
                row["redelivered_records"],
                row["waiting_records"],
                row["archived_records"],
                row["start_offset"],
            )
            for rows in answers
            for row in rows
        }


def _led(address: str, groups: Sequence[str], known: Security) -> Sequence[Mapping[str, Any]]:
    """What a broker leads; nothing of one that does not answer, or is none of Ottla."""
    try:
        with closing(wire.Link(address, ASK_TIMEOUT_S, known)) as link:
            if link.version_max(ApiKey.DESCRIBE_SHARE_PARTITIONS) < 0:
                return ()
            found: Sequence[Mapping[str, Any]] = link.ask(ApiKey.DESCRIBE_SHARE_PARTITIONS, {"groups": groups})[
                "partitions"
            ]
            return found
    except (OSError, CommandFailed):
        return ()
