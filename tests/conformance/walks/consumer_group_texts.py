"""What the walk of consumer groups compares, as text: answers, records and members, in an order that does not depend on
Java's hash maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ottla.coordinator.group.consumer.consumer_protocol import decode_assignment
from ottla.protocol.internal.group_records import decode_record
from ottla.protocol.schemas import Message

Owned = Mapping[UUID, frozenset[int]]
MADE_ID = re.compile(
    r"(?:c|i\d)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![\w-])(?:A{8}QACA{8}[\w-]{3}|(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{22})(?![\w-])"
)


def described(member: Mapping[str, Any]) -> str:
    assignments = []
    for name in ("assignment", "target_assignment"):
        rows = member[name]["topic_partitions"]
        partitions = (f"{row['topic_name']}.{number}" for row in rows for number in row["partitions"])
        assignments.append("+".join(sorted(partitions)))
    fields = [
        member["member_id"],
        member["instance_id"],
        member["rack_id"],
        member["member_epoch"],
        member["client_id"],
        member["client_host"],
        "+".join(sorted(member["subscribed_topic_names"])),
        member["subscribed_topic_regex"],
        *assignments,
        member["member_type"],
    ]
    return ":".join("null" if each is None else str(each) for each in fields)


def places(owned: Owned) -> str:
    return ",".join(sorted(f"{topic.int}.{number}" for topic, numbers in owned.items() for number in numbers))


def read_places(text: str) -> Owned:
    found: dict[UUID, set[int]] = {}
    for place in filter(None, text.strip("[]").split(",")):
        topic, _, number = place.partition(".")
        found.setdefault(UUID(int=int(topic)), set()).add(int(number))
    return {topic: frozenset(numbers) for topic, numbers in found.items()}


def split(text: str) -> tuple[bytes, bytes | None]:
    key, _, value = text.partition(":")
    return bytes.fromhex(key), bytes.fromhex(value) if value else None


def shown(key: bytes, value: bytes | None, named: Callable[[str], str] = str) -> str:
    record = decode_record(key, value)
    assert record is not None
    return f"{named(str(record.key))}: {'gone' if record.value is None else plain(record.value, named)}"


def in_order(answer: str) -> str:
    """With members in the order of Ottla's ids, and topics by name."""
    if assigned := re.match(r"(T\d+:sync/NONE/)(.+)", answer):
        rows = decode_assignment(bytes.fromhex(assigned[2])).assigned_partitions
        return assigned[1] + ",".join(sorted(f"{row.topic}.{number}" for row in rows for number in row.partitions))
    found = re.match(r"(?:T\d+:join(?:/[^/]*){6}|\w+/\d+/\d+/\w+)/", answer)
    if found is None:
        return answer
    return found[0] + ",".join(sorted(answer[found.end() :].split(",")))


def only_assignments(records: list[str]) -> bool:
    """Whether there are some, and all are of target and current assignments."""
    return bool(records) and all(re.match(r"ModernKey\(type=[78],", each) for each in records)


def maker(member_id: str) -> str:
    """The first part of a member id, if it has two."""
    found = re.match(r"(?:c|i\d)-", member_id)
    return found[0] if found else ""


def without_leader(record: str) -> str:
    return re.sub("'leader': '[^']*'", "", record)


def without_order(records: list[str]) -> list[str]:
    """Drop the order of timers that expire at once: the member that goes first shows in the states in between."""
    last = {record.partition("}")[0].partition("{")[0]: record for record in records}
    return [
        record if last[key] == record else re.sub("'metadata_hash': .*", "", record)
        for record in records
        for key in [record.partition("}")[0].partition("{")[0]]
    ]


def plain(value: Any, named: Callable[[str], str]) -> Any:
    """With lists in order: Kafka's have that of hash maps."""
    if isinstance(value, Message):
        return {each.name: plain(getattr(value, each.name), named) for each in value._schema}
    if isinstance(value, tuple):
        return sorted((plain(each, named) for each in value), key=str)
    return named(value) if isinstance(value, str) else value
