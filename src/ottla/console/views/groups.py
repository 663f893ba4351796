"""Groups of all four kinds: a list, and one of them with its members and how far it is in each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.client.assignments import assigned_places
from ottla.console.asking import Asking, NotFound
from ottla.console.behind import behind_of, behind_of_groups, furthest
from ottla.console.cluster import LATEST, read_offsets
from ottla.console.groups import (
    KINDS,
    SHARE,
    InFlight,
    Listed,
    Place,
    Progress,
    read_described,
    read_in_flight,
    read_progress,
)
from ottla.console.history import Trend
from ottla.console.views.paging import Paging, paged
from ottla.console.views.topics import text
from ottla.model import TopicPartition

SORTS: Final = ("name", "lag", "members", "state")
PLACES_MAX: Final = 1_000
MEMBERS_MAX: Final = 500
LIST_FRESH_S: Final = 10.0


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
    behind_s: int | None
    """Seconds since the first unread record was written, of the partition that is furthest behind; None where it is not
    known. Of a share group it is the first record that is not done with."""
    behind_trend: Trend | None
    """The same over the last minutes, while somebody looks."""


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
    behind = _behind_of_all(asking, shown, progress)
    return GroupList(
        [_row(asking, each, progress, described, behind) for each in shown],
        paging,
        kinds,
        not found.failures,
    )


def _behind_of_all(asking: Asking, shown: Iterable[Listed], progress: Progress | None) -> Mapping[str, int]:
    """What the list shows; empty while it is being read."""
    if progress is None:
        return {}
    mine = {each.name: progress.by_group.get(each.name, {}) for each in shown}
    if not mine:
        return {}
    asking.trends.follow([each.name for each in shown if each.kind != SHARE])
    found = asking.soon(
        ("behind", tuple(mine)),
        LIST_FRESH_S,
        lambda: behind_of_groups(asking, mine),
        lambda found: not any(isinstance(each, OSError) for each in found.failures),
    )
    if found is None:
        return {}
    asking.fail_all("behind", found.failures)
    return found.by_group


def _progress_of(asking: Asking, shown: Iterable[Listed]) -> Progress | None:
    cluster = asking.cluster()
    found = asking.attempt("lag", lambda: read_progress(asking.brokers, cluster, shown), None)
    if found is not None:
        asking.fail_all("lag", [*found.failures.values(), *found.unread])
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


def _row(
    asking: Asking, listed: Listed, progress: Progress | None, described: Mapping[str, Any], behind: Mapping[str, int]
) -> GroupRow:
    row = described.get(listed.name)
    state = (row.get("group_state") if isinstance(row, Mapping) else None) or listed.state
    mine = None if progress is None else progress.by_group.get(listed.name)
    return GroupRow(
        listed.name,
        listed.kind,
        state,
        _members_of(row),
        None if progress is None else text(progress.lag(listed.name)),
        None if mine is None else len({at.topic for at in mine}),
        listed.coordinator,
        asking.trends.lag_of_group(listed.name),
        behind.get(listed.name),
        asking.trends.behind_of_group(listed.name),
    )


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
    """Seconds since the first record was written that is not read, or of a share group not done with; None where it is
    not known."""
    member: str | None
    """Id of the member that reads the partition."""
    in_flight: str | None = None
    """Records of a share group that members have; None where the leader does not tell, as the next three."""
    redelivered: str | None = None
    """Records that were delivered more than once and are not done with."""
    waiting: str | None = None
    """Records that may not be delivered yet: a back-off, a time of delivery, or the order by key."""
    archived: str | None = None
    """Records that were given up since the leader has begun to serve the group."""


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
    behind_trend: Trend | None
    """Lag in time over the last minutes, while somebody looks."""


def group(asking: Asking) -> GroupPage:
    name = asking.text("group")
    found = asking.groups()
    listed = found.by_name.get(name)
    if listed is None and found.failures:
        why = "; ".join(map(str, found.failures.values()))
        raise NotFound(f"There is no group {name} at the brokers that answer. Another one may have it: {why}.")
    if listed is None:
        raise NotFound(f"There is no group {name}, or you may not see it (Describe on Group {name}).")
    described = read_described(asking.brokers, [listed]).get(name)
    if isinstance(described, Exception):
        asking.fail("members", described)
    row: Mapping[str, Any] = described if isinstance(described, Mapping) else {}
    members = [_member(listed.kind, each) for each in row.get("members") or ()]
    progress = _progress_of(asking, [listed])
    mine = {} if progress is None else progress.by_group.get(name, {})
    owners = (
        {at: each["member_id"] for each in row.get("members") or () for at in _partitions_of(listed.kind, each)}
        if listed.kind != SHARE
        else {}
    )
    unread = dict.fromkeys((at for at in owners if at not in mine), LATEST)
    ends = read_offsets(asking.brokers, asking.cluster(), unread).found if unread else {}
    mine = {**mine, **{at: Place(-1, ends.get(at), None) for at in unread}}
    in_flight: Mapping[TopicPartition, InFlight] = {}
    if listed.kind == SHARE:
        in_flight, failures = read_in_flight(asking.brokers, asking.cluster(), name)
        asking.fail_all("flight", failures)
        for at, told in in_flight.items():
            place = mine.get(at, Place(-1, None, None))
            mine[at] = place._replace(committed=max(place.committed, told.start_offset))
    else:
        asking.trends.follow([name])
    behind = behind_of(asking, mine)
    rows = [
        _place_row(at, place, behind.get(at), owners.get(at), in_flight.get(at))
        for at, place in sorted(mine.items())[:PLACES_MAX]
    ]
    epoch = row.get("group_epoch")
    return GroupPage(
        name,
        listed.kind,
        row.get("group_state") or listed.state,
        row.get("assignor_name") or row.get("protocol_data") or "",
        listed.coordinator,
        epoch,
        members[:MEMBERS_MAX],
        len(members),
        rows,
        len(mine),
        None if progress is None else text(progress.lag(name)),
        furthest(mine, behind),
        asking.trends.lag_of_group(name),
        asking.trends.behind_of_group(name),
    )


def _place_row(
    at: TopicPartition, place: Place, behind_s: int | None, owner: str | None, told: InFlight | None
) -> PlaceRow:
    committed = text(place.committed) if place.committed >= 0 else None
    row = PlaceRow(at.topic, at.partition, committed, text(place.end), text(place.lag), behind_s, owner)
    if told is None:
        return row
    counts = [text(each) for each in (told.acquired, told.redelivered, told.waiting, told.archived)]
    return replace(row, in_flight=counts[0], redelivered=counts[1], waiting=counts[2], archived=counts[3])


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
        row["member_id"],
        row.get("client_id") or "",
        (row.get("client_host") or "").removeprefix("/"),
        row.get("group_instance_id") or row.get("instance_id"),
        row.get("member_epoch"),
        assigned,
    )


def _partitions_of(kind: str, row: Mapping[str, Any]) -> list[TopicPartition]:
    if kind == "classic":
        return [TopicPartition(*at) for at in assigned_places(bytes(row.get("member_assignment") or b""))]
    topics = (row.get("assignment") or {}).get("topic_partitions") or ()
    return [TopicPartition(each["topic_name"], number) for each in topics for number in each["partitions"]]
