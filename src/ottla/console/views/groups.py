"""Groups of all four kinds: a list, and one of them with its members and how far it is in each partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.assignments import assigned_places
from ottla.console.asking import Asking, NotFound
from ottla.console.cluster import LATEST, leader_of, read_offsets
from ottla.console.groups import KINDS, SHARE, Listed, Place, Progress, read_described, read_progress
from ottla.console.history import Trend
from ottla.console.views.paging import Paging, paged
from ottla.console.views.topics import text
from ottla.model import TopicPartition
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, unpack_header

SORTS: Final = ("name", "lag", "members", "state")
PLACES_MAX: Final = 1_000
MEMBERS_MAX: Final = 500
TIMED_MAX: Final = 200
"""Partitions whose first unread record is looked at for its time."""
TIMED_BYTES: Final = 1024
"""Bytes that are fetched of each: the head of a batch says when it was written."""


@dataclass(frozen=True)
class GroupRow:
    name: str
    kind: str
    state: str
    members: int | None
    """None where the coordinator does not say."""
    lag: str | None
    """Records that are not read yet; of a share group records that are not done with."""
    topics: int | None
    coordinator: int
    lag_trend: Trend | None
    """None until it is measured."""


@dataclass(frozen=True)
class GroupList:
    rows: list[GroupRow]
    paging: Paging
    kinds: dict[str, int]
    """Groups of each kind."""
    is_whole: bool
    """Whether every broker said which groups it has."""


def groups(asking: Asking) -> GroupList:
    found = asking.groups()
    wanted, kind, state = asking.text("q").lower(), asking.text("kind"), asking.text("state").lower()
    every = list(found.by_name.values())
    rows = [
        each
        for each in every
        if wanted in each.name.lower() and kind in ("", each.kind) and state in ("", each.state.lower())
    ]
    sort, descending = asking.text("sort"), asking.text("order") == "desc"
    progress: Progress | None = None
    described: Mapping[str, Any] = {}
    if sort == "lag":
        progress = asking.attempt("lag", lambda: asking.progress(wait=True), None)
    if sort == "members":
        described = read_described(asking.brokers, rows)
    rows.sort(key=_order(sort, progress, described), reverse=descending)
    shown, paging = paged(rows, asking.number("page"), len(every))
    if progress is None:
        progress = _progress_of(asking, shown)
    described = described or read_described(asking.brokers, shown)
    kinds = {each: sum(one.kind == each for one in every) for each in KINDS}
    return GroupList(
        [_row(each, progress, described, asking.trends.lag_of_group(each.name)) for each in shown],
        paging, kinds, not found.failures,
    )  # fmt: skip


def _progress_of(asking: Asking, shown: Iterable[Listed]) -> Progress | None:
    cluster = asking.cluster()
    found = asking.attempt("lag", lambda: read_progress(asking.brokers, cluster, shown), None)
    for error in () if found is None else list(found.failures.values())[:1]:
        asking.fail("lag", error)
    return found


def _order(sort: str, progress: Progress | None, described: Mapping[str, Any]) -> Callable[[Listed], Any]:
    def by_lag(each: Listed) -> tuple[int, str]:
        lag = None if progress is None else progress.lag(each.name)
        return (-1 if lag is None else lag, each.name)

    def by_members(each: Listed) -> tuple[int, str]:
        count = _members_of(described.get(each.name))
        return (-1 if count is None else count, each.name)

    if sort == "lag":
        return by_lag
    if sort == "members":
        return by_members
    return (lambda each: (each.state, each.name)) if sort == "state" else lambda each: each.name


def _members_of(row: Any) -> int | None:
    return len(row["members"]) if isinstance(row, Mapping) else None


def _row(listed: Listed, progress: Progress | None, described: Mapping[str, Any], lag_trend: Trend | None) -> GroupRow:
    row = described.get(listed.name)
    state = (row.get("group_state") if isinstance(row, Mapping) else None) or listed.state
    mine = None if progress is None else progress.by_group.get(listed.name)
    return GroupRow(
        listed.name, listed.kind, state, _members_of(row),
        None if progress is None else text(progress.lag(listed.name)),
        None if mine is None else len({at.topic for at in mine}),
        listed.coordinator, lag_trend,
    )  # fmt: skip


@dataclass(frozen=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    epoch: int | None
    assigned: list[str]
    """`orders: 0, 1`; the tasks of a streams group."""


@dataclass(frozen=True)
class PlaceRow:
    topic: str
    partition: int
    committed: str | None
    end: str | None
    lag: str | None
    behind_s: int | None
    """Seconds since the first unread record was written; None where it is not known."""
    member: str | None
    """Id of the member that reads the partition."""


@dataclass(frozen=True)
class GroupPage:
    name: str
    kind: str
    state: str
    protocol: str
    """The assignor."""
    coordinator: int
    epoch: int | None
    members: list[Member]
    member_count: int
    places: list[PlaceRow]
    place_count: int
    lag: str | None
    behind_s: int | None
    """The lag of the partition that is furthest behind."""
    lag_trend: Trend | None
    """None until it is measured."""


def group(asking: Asking) -> GroupPage:
    name = asking.text("group")
    listed = asking.groups().by_name.get(name)
    if listed is None:
        raise NotFound(f"There is no group {name}, or you may not see it (Describe on Group {name}).")
    described = read_described(asking.brokers, [listed]).get(name)
    if isinstance(described, Exception):
        asking.fail("members", described)
    row: Mapping[str, Any] = described if isinstance(described, Mapping) else {}
    members = [_member(listed.kind, each) for each in row.get("members") or ()]
    progress = _progress_of(asking, [listed])
    mine = {} if progress is None else progress.by_group.get(name, {})
    owners = {
        at: each["member_id"] for each in row.get("members") or () for at in _partitions_of(listed.kind, each)
    } if listed.kind != SHARE else {}  # fmt: skip
    unread = dict.fromkeys((at for at in owners if at not in mine), LATEST)
    ends = read_offsets(asking.brokers, asking.cluster(), unread).found if unread else {}
    mine = {**mine, **{at: Place(-1, ends.get(at), None) for at in unread}}
    behind = behind_of(asking, mine) if listed.kind != SHARE else {}
    rows = [
        PlaceRow(
            at.topic, at.partition, text(place.committed) if place.committed >= 0 else None, text(place.end),
            text(place.lag), behind.get(at), owners.get(at),
        )
        for at, place in sorted(mine.items())[:PLACES_MAX]
    ]  # fmt: skip
    epoch = row.get("group_epoch")
    return GroupPage(
        name, listed.kind, row.get("group_state") or listed.state,
        row.get("assignor_name") or row.get("protocol_data") or "", listed.coordinator, epoch,
        members[:MEMBERS_MAX], len(members), rows, len(mine),
        None if progress is None else text(progress.lag(name)), max(behind.values(), default=None),
        asking.trends.lag_of_group(name),
    )  # fmt: skip


def _member(kind: str, row: Mapping[str, Any]) -> Member:
    by_topic: dict[str, list[int]] = {}
    for at in _partitions_of(kind, row):
        by_topic.setdefault(at.topic, []).append(at.partition)
    assigned = [f"{topic}: {', '.join(map(str, sorted(numbers)))}" for topic, numbers in sorted(by_topic.items())]
    if kind == "streams":
        assigned = [
            f"tasks of {task['subtopology_id']}: {', '.join(map(str, task['partitions']))}"
            for task in (row.get("assignment") or {}).get("active_tasks") or ()
        ]
    return Member(
        row["member_id"], row.get("client_id") or "", (row.get("client_host") or "").removeprefix("/"),
        row.get("group_instance_id") or row.get("instance_id"), row.get("member_epoch"), assigned,
    )  # fmt: skip


def _partitions_of(kind: str, row: Mapping[str, Any]) -> list[TopicPartition]:
    if kind == "classic":
        return [TopicPartition(*at) for at in assigned_places(bytes(row.get("member_assignment") or b""))]
    topics = (row.get("assignment") or {}).get("topic_partitions") or ()
    return [TopicPartition(each["topic_name"], number) for each in topics for number in each["partitions"]]


def behind_of(asking: Asking, mine: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    """Seconds since the first unread record of each partition was written: one Fetch to each leader, of the heads of
    batches. That is the batch's first time, so a record in its middle may be a little younger."""
    cluster, now = asking.cluster(), time.time() * 1000
    late = [at for at, place in mine.items() if place.lag and place.committed >= 0][:TIMED_MAX]
    by_leader: dict[int, dict[str, list[FetchPartition]]] = {}
    for at in late:
        row = FetchPartition(at.partition, mine[at].committed, TIMED_BYTES)
        leader = leader_of(cluster, at)
        if leader >= 0:
            by_leader.setdefault(leader, {}).setdefault(at.topic, []).append(row)

    def asked(node: int) -> Callable[[], FetchResponse]:
        topics = [FetchTopic(name, cluster.topics[name].id, rows) for name, rows in by_leader[node].items()]
        return lambda: asking.brokers.fetch(node, FetchRequest(0, 0, TIMED_BYTES * len(late), topics))

    found: dict[TopicPartition, int] = {at: 0 for at, place in mine.items() if place.lag == 0}
    names = {each.id: each.name for each in cluster.topics.values()}
    for answer in asking.brokers.gather([asked(node) for node in by_leader]):
        if isinstance(answer, Exception):
            asking.fail("behind", answer)
            continue
        for topic in answer.topics:
            for part in topic.partitions:
                name = topic.name or names.get(topic.topic_id) if topic.topic_id is not None else topic.name
                data = memoryview(part.records) if part.records else memoryview(b"")  # type: ignore[arg-type]
                if name is None or part.error_code or len(data) < HEADER_SIZE:
                    continue
                head = unpack_header(data)
                if head.magic == MAGIC and head.base_timestamp >= 0:
                    found[TopicPartition(name, part.partition_index)] = max(0, int((now - head.base_timestamp) / 1000))
    return found
