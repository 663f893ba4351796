"""A consumer group as people ask for it: members, what they read, how far behind they are in records and in time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli import client as clients
from ottla.cli.client import wait
from ottla.cli.exits import FAILED, UNREACHABLE, CommandFailed
from ottla.cli.group import requests as group_requests
from ottla.cli.group import shares as group_shares
from ottla.cli.group import streams as group_streams
from ottla.cli.group.requests import Answer
from ottla.cli.group.shares import InFlight, Place, Shared
from ottla.cli.group.streams import MemberTasks
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
    epoch: int | None = None
    """Member epoch, for a member of a newer protocol."""
    pending: list[Place] = field(default_factory=list)
    """Partitions that it gets once other members have revoked them."""
    revoking: list[Place] = field(default_factory=list)
    """Partitions that it must revoke."""
    tasks: MemberTasks | None = None
    """Tasks, for a member of a streams group."""


@dataclass
class Progress:
    """How far a group is in one partition. `None` is unknown: no commit, no leader, or a topic that is gone.

    Of a share group `committed` is the first offset that is not done with."""

    topic: str
    partition: int
    committed: int | None = None
    start: int | None = None
    end: int | None = None
    lag_s: float | None = None
    """Seconds since the timestamp of the oldest record that is not committed; 0 when there is none."""
    member_id: str | None = None
    shared: Shared | None = None
    """Progress, for a share group."""
    in_flight: InFlight | None = None
    """Records in flight, for a share group; None where no node reports them."""
    member_ids: list[str] = field(default_factory=list)
    """Members of a share group that read the partition; there may be many."""

    @property
    def done(self) -> int | None:
        """Progress as an offset, as if the group had read in order."""
        if self.shared is None:
            return self.committed
        return None if self.lag is None or self.end is None else self.end - self.lag

    @property
    def lag(self) -> int | None:
        """Records from the committed offset to the end, as Kafka's tools count; of a share group those that are not
        done with."""
        if self.shared is not None:
            return self.shared.backlog
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
    epoch: int | None = None
    """Epoch of a group of a newer protocol; it grows when the members or their topics change."""
    assignment_epoch: int | None = None
    """The epoch that its assignment was made for."""

    @property
    def is_shared(self) -> bool:
        return self.kind == group_requests.SHARE

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
        if self.epoch is not None:
            fields |= {"epoch": self.epoch, "assignment_epoch": self.assignment_epoch}
        if self.is_shared:
            fields |= _in_flight_as_json(self.in_flight)
        fields["members"] = [self._member_as_json(each) for each in self.members]
        fields["partitions"] = [self._progress_as_json(each) for each in self.progress]
        return fields

    @property
    def in_flight(self) -> InFlight | None:
        """Records in flight in all partitions of a share group; None if one is unknown."""
        known = [each.in_flight for each in self.progress if each.in_flight is not None]
        if len(known) < len(self.progress):
            return None
        return InFlight(
            sum(each.held for each in known),
            sum(each.redelivered for each in known),
            sum(each.waiting for each in known),
            sum(each.archived for each in known),
        )

    def _member_as_json(self, member: Member) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            "instance_id": member.instance_id,
            "partitions": _places_as_json(member.places),
        }
        if member.epoch is not None:
            fields["epoch"] = member.epoch
        if self.kind == group_requests.CONSUMER:
            fields |= {"pending": _places_as_json(member.pending), "revoking": _places_as_json(member.revoking)}
        if member.tasks is not None:
            fields |= {"process_id": member.tasks.process_id, **member.tasks.as_json()}
        return fields

    def _progress_as_json(self, each: Progress) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "topic": each.topic,
            "partition": each.partition,
            "committed_offset": each.committed,
            "start_offset": each.start,
            "end_offset": each.end,
            "lag": each.lag,
            "lag_seconds": each.lag_s,
        }
        if not self.is_shared:
            return fields | {"member_id": each.member_id}
        return fields | _in_flight_as_json(each.in_flight) | {"member_ids": each.member_ids}


def _in_flight_as_json(found: InFlight | None) -> dict[str, int | None]:
    names = {"in_flight": "held", "redelivered": "redelivered", "waiting": "waiting", "archived": "archived"}
    return {name: None if found is None else getattr(found, attribute) for name, attribute in names.items()}


def _places_as_json(places: Iterable[Place]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": number} for topic, number in places]


def groups(bootstrap: str, client: AdminClient, names: Sequence[str], *, known: bool = False) -> list[Group]:
    """Members, commits and ends of the named groups. Raises CommandFailed for one that is not there.

    `known` groups may vanish in between, and are left out then.
    """
    if not names:
        return []
    if "" in names:
        raise CommandFailed("a group id must not be empty\n  see the groups with: ottla group list")
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
    if any(group.is_shared and group.progress for group in found):
        _add_in_flight(bootstrap, [group for group in found if group.is_shared])
    return found


def _group(name: str, answer: Answer) -> Group:
    row, is_newer = answer.described, answer.kind != group_requests.CLASSIC
    if answer.kind == group_requests.STREAMS:
        members = _streams_members(row)
    else:
        members = [_newer_member(each) if is_newer else _member(each) for each in row["members"]]
    members.sort(key=lambda each: (each.client_id, each.host, each.member_id))
    is_shared = answer.kind == group_requests.SHARE
    return Group(
        name,
        row["group_state"],
        answer.kind,
        row.get("assignor_name", "") if is_newer else row["protocol_data"],
        answer.coordinator,
        members,
        _shared_progress(members, answer.shared) if is_shared else _progress(members, answer.committed),
        row["group_epoch"] if is_newer else None,
        row["assignment_epoch"] if is_newer else None,
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
    """A member of a consumer group (KIP-848) or share group; a share member's target assignment is its assignment."""
    places = _assigned(row["assignment"])
    target = _assigned(row["target_assignment"]) if "target_assignment" in row else places
    return Member(
        row["member_id"],
        row["client_id"],
        row["client_host"].removeprefix("/"),
        row.get("instance_id"),
        sorted(places),
        row["member_epoch"],
        sorted(target - places),
        sorted(places - target),
    )


def _streams_members(row: Mapping[str, Any]) -> list[Member]:
    """They read what their active tasks do."""
    topics = group_streams.sources(row)
    found = []
    for each in row["members"]:
        tasks = group_streams.tasks_of(each)
        places = sorted(
            (topic, number) for subtopology, number in tasks.active for topic in topics.get(subtopology, ())
        )
        host = each["client_host"].removeprefix("/")
        found.append(
            Member(
                each["member_id"],
                each["client_id"],
                host,
                each["instance_id"],
                places,
                each["member_epoch"],
                tasks=tasks,
            )
        )
    return found


def _assigned(assignment: Mapping[str, Any]) -> set[Place]:
    return {(each["topic_name"], number) for each in assignment["topic_partitions"] for number in each["partitions"]}


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


def _shared_progress(members: Iterable[Member], shared: Mapping[Place, Shared]) -> list[Progress]:
    """Partitions whose state is kept, and those that members read."""
    readers: dict[Place, list[str]] = {}
    for member in members:
        for place in member.places:
            readers.setdefault(place, []).append(member.member_id)
    found = []
    for topic, number in sorted(shared.keys() | readers.keys()):
        each = shared.get((topic, number), Shared(-1, None))
        start = each.start_offset if each.start_offset >= 0 else None
        member_ids = readers.get((topic, number), [])
        found.append(Progress(topic, number, start, shared=each, member_ids=member_ids))
    return found


def _add_in_flight(bootstrap: str, found: Sequence[Group]) -> None:
    known = group_shares.in_flight(bootstrap, [group.name for group in found])
    for group in found:
        for each in group.progress:
            if each.shared is None:
                continue
            each.in_flight = known.get((group.name, each.topic, each.partition))
            if each.in_flight is not None:
                each.committed = max(each.committed or 0, each.in_flight.start_offset)


def _add_ends(client: AdminClient, found: Iterable[Group]) -> None:
    places = {(each.topic, each.partition) for group in found for each in group.progress}
    bounds = watermarks(client, places)
    for group in found:
        for each in group.progress:
            each.start, each.end = bounds[each.topic, each.partition]
        if group.kind == group_requests.STREAMS:  # a task reads topics with fewer partitions too, but nothing of them
            group.progress = [each for each in group.progress if each.end is not None or each.committed is not None]


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
