"""A consumer group as people ask for it: members, what they read, how far behind they are in records and in time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli import client as clients
from ottla.cli import group_requests
from ottla.cli.client import wait
from ottla.cli.exits import FAILED, UNREACHABLE, CommandFailed
from ottla.cli.group_requests import Answer, Place
from ottla.cli.interrupts import in_thread

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CLOSE_S = 2.0
AGE_TIMEOUT_S = 10.0
"""How long to wait for the records whose timestamps give the lag in seconds; what does not come stays unknown."""

INACTIVE = ("Empty", group_requests.DEAD)


@dataclass
class Member:
    """One consumer of a group."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    places: list[Place] = field(default_factory=list)


@dataclass
class Progress:
    """How far a group is in one partition. `None` is unknown: no commit, no leader, or a topic that is gone."""

    topic: str
    partition: int
    committed: int | None = None
    start: int | None = None
    end: int | None = None
    lag_s: float | None = None
    """Seconds since the timestamp of the oldest record that is not committed; 0 when there is none."""
    member_id: str | None = None

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the end, as Kafka's tools count."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass
class Group:
    """A group at one moment."""

    name: str
    state: str
    kind: str
    assignor: str
    coordinator: str | None
    members: list[Member]
    progress: list[Progress] = field(default_factory=list)

    @property
    def lag(self) -> int | None:
        """Records in all partitions, None where there is no partition to count."""
        known = [each.lag for each in self.progress if each.lag is not None]
        return sum(known) if known else None

    @property
    def lag_s(self) -> float | None:
        """Seconds of the partition that is furthest behind."""
        return max((each.lag_s for each in self.progress if each.lag_s is not None), default=None)

    def as_json(self, *, partitions: bool = True) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "group": self.name,
            "state": self.state,
            "type": self.kind,
            "assignor": self.assignor or None,
            "coordinator": self.coordinator,
            "lag": self.lag,
            "lag_seconds": self.lag_s,
        }
        if not partitions:
            return {"group": self.name, "state": self.state, "type": self.kind, "members": len(self.members)} | {
                "topics": len({each.topic for each in self.progress}),
                "lag": self.lag,
            }
        fields["members"] = [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "partitions": [{"topic": topic, "partition": number} for topic, number in member.places],
            }
            for member in self.members
        ]
        fields["partitions"] = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": each.committed,
                "start_offset": each.start,
                "end_offset": each.end,
                "lag": each.lag,
                "lag_seconds": each.lag_s,
                "member_id": each.member_id,
            }
            for each in self.progress
        ]
        return fields


def groups(bootstrap: str, client: AdminClient, names: Sequence[str], *, known: bool = False) -> list[Group]:
    """Members, commits and ends of the named groups. Raises CommandFailed for one that is not there.

    `known` groups may vanish in between, and are left out then.
    """
    if not names:
        return []
    if "" in names:
        raise CommandFailed("the id of a group is not empty\n  see the groups with: ottla group list")
    answers = group_requests.ask(bootstrap, names)
    found = []
    for name in names:
        group = _group(name, answers[name])
        if group.state == group_requests.DEAD and not group.progress:
            if known:
                continue
            raise CommandFailed(f"there is no group {name!r}\n  see the groups with: ottla group list")
        found.append(group)
    _add_ends(client, found)
    return found


def _group(name: str, answer: Answer) -> Group:
    row = answer.described
    members = [_newer_member(each) if answer.is_newer else _member(each) for each in row["members"]]
    members.sort(key=lambda each: (each.client_id, each.host, each.member_id))
    return Group(
        name,
        row["group_state"],
        "consumer" if answer.is_newer else "classic",
        row["assignor_name"] if answer.is_newer else row["protocol_data"],
        answer.coordinator,
        members,
        _progress(members, answer.committed),
    )


def _member(row: Mapping[str, Any]) -> Member:
    return Member(
        row["member_id"],
        row["client_id"],
        row["client_host"].removeprefix("/"),
        row["group_instance_id"],
        group_requests.assigned_places(row["member_assignment"]),
    )


def _newer_member(row: Mapping[str, Any]) -> Member:
    """Of a group of the protocol of KIP-848."""
    return Member(
        row["member_id"],
        row["client_id"],
        row["client_host"].removeprefix("/"),
        row["instance_id"],
        sorted(
            (each["topic_name"], number)
            for each in row["assignment"]["topic_partitions"]
            for number in each["partitions"]
        ),
    )


def refused(exception: Any, name: str) -> CommandFailed:
    """The broker's error about a group as a sentence."""
    sentence, unreachable = clients.explain(exception, f"group {name!r}: ")
    return CommandFailed(sentence, UNREACHABLE if unreachable else FAILED)


def _progress(members: Iterable[Member], committed: Mapping[Place, int]) -> list[Progress]:
    """Partitions with a commit, and those that a member reads and has not committed in yet."""
    owners = {place: member.member_id for member in members for place in member.places}
    return [
        Progress(topic, number, committed.get((topic, number)), member_id=owners.get((topic, number)))
        for topic, number in sorted(committed.keys() | owners.keys())
    ]


def _add_ends(client: AdminClient, found: Iterable[Group]) -> None:
    places = {(each.topic, each.partition) for group in found for each in group.progress}
    bounds = watermarks(client, places)
    for group in found:
        for each in group.progress:
            each.start, each.end = bounds[each.topic, each.partition]


def watermarks(client: AdminClient, places: Iterable[Place]) -> dict[Place, tuple[int | None, int | None]]:
    """The first offset and the end of every partition, None for what cannot be had."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    wanted = list(places)
    if not wanted:
        return {}

    def ask(spec: Any) -> dict[Place, int | None]:
        offsets: dict[Place, int | None] = {}
        futures = client.list_offsets({TopicPartition(*place): spec for place in wanted})
        for partition, future in futures.items():
            try:
                offsets[partition.topic, partition.partition] = int(wait(future).offset)
            except KafkaException as exception:
                if clients.explain(exception)[1]:
                    raise
                offsets[partition.topic, partition.partition] = None
        return offsets

    spec: Any = OffsetSpec
    starts, ends = ask(spec.earliest()), ask(spec.latest())
    return {place: (starts[place], ends[place]) for place in wanted}


class Ages:
    """Reads how old the record at an offset is. Keeps a consumer, and the timestamps that it has read already."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: Any = None
        self._read: dict[Place, tuple[int, int | None]] = {}
        """Place to (offset, timestamp of the record there); None where no record follows, only markers."""

    def add(self, found: Iterable[Group], now_ms: int | None = None) -> None:
        """Fill in `lag_s` of every partition."""
        behind = [each for group in found for each in group.progress if each.lag]
        missing = {
            (each.topic, each.partition): each.committed
            for each in behind
            if each.committed is not None
            and self._read.get((each.topic, each.partition), (None, None))[0] != each.committed
        }
        if missing:
            self._fetch(missing)
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        for group in found:
            for each in group.progress:
                each.lag_s = self._age_s(each, now_ms)

    def _age_s(self, each: Progress, now_ms: int) -> float | None:
        if not each.lag:
            return None if each.lag is None else 0.0
        offset, timestamp_ms = self._read.get((each.topic, each.partition), (None, None))
        if offset != each.committed:
            return None
        if timestamp_ms is None:
            return 0.0
        return None if timestamp_ms < 0 else max(0.0, (now_ms - timestamp_ms) / 1000)

    def _fetch(self, wanted: dict[Place, int]) -> None:
        """One record of each partition, or the news that there is none."""
        from confluent_kafka import KafkaError, TopicPartition

        consumer = self._opened()
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in wanted.items()])
        deadline = time.monotonic() + AGE_TIMEOUT_S
        left = dict(wanted)
        while left and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None or message.topic() is None:
                continue
            place = (message.topic(), message.partition())
            error = message.error()
            if place not in left or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                left.pop(place, None)
                continue
            self._read[place] = (left.pop(place), message.timestamp()[1] if error is None else None)
            consumer.incremental_unassign([TopicPartition(*place)])
        consumer.unassign()

    def _opened(self) -> Any:
        if self._consumer is None:
            settings = {
                "group.id": "ottla-cli-ages",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # the record may have been deleted: the oldest one there counts
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "fetch.message.max.bytes": 1,  # brokers send at least one batch
                "fetch.wait.max.ms": 50,
                "queued.min.messages": 1,
            }
            self._consumer = clients.consumer(self._bootstrap, settings)
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            with suppress(TimeoutError):
                in_thread(self._consumer.close, limit_s=CLOSE_S)
