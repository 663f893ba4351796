"""Groups of all four kinds: which there are, how far they have read, and who is in them.

A group is asked for at the broker that listed it, which coordinates it: no FindCoordinator, and one request to each
broker for any number of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.console.brokers import Brokers, ensure_none
from ottla.console.cluster import LATEST, Cluster, on_every_node, read_offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
KINDS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)
GROUPS_PER_REQUEST: Final = 1_000

_DESCRIBE: Final = {
    CLASSIC: (ApiKey.DESCRIBE_GROUPS, "groups"),
    CONSUMER: (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    SHARE: (ApiKey.SHARE_GROUP_DESCRIBE, "group_ids"),
    STREAMS: (ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids"),
}


class Listed(NamedTuple):
    name: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int


class Groups(NamedTuple):
    by_name: dict[str, Listed]
    failures: dict[int, KafkaError | OSError]
    """Nodes that did not say which groups they coordinate."""


class Place(NamedTuple):
    """How far a group is in one partition."""

    committed: int
    """Committed offset; of a share group the first offset that is not done with. -1: none yet."""
    end: int | None
    """None where the leader does not say."""
    lag: int | None


class InFlight(NamedTuple):
    """What the leader of a partition knows of a share group that reads it, in records."""

    start_offset: int
    """The first that is not done with; what the coordinator says is a little older."""
    acquired: int
    redelivered: int
    waiting: int
    archived: int


class Progress(NamedTuple):
    """How far groups are, by group and partition."""

    by_group: dict[str, dict[TopicPartition, Place]]
    failures: dict[str, KafkaError | OSError]
    """Groups whose offsets are not told."""
    unread: list[KafkaError | OSError]
    """Why ends of partitions, and so lags, are not known."""

    def lag(self, group: str) -> int | None:
        """Records behind, None where nothing is known."""
        known = [place.lag for place in self.by_group.get(group, {}).values() if place.lag is not None]
        return sum(known) if known else None


def read_groups(brokers: Brokers, cluster: Cluster) -> Groups:
    """All groups that the user may see."""
    found = Groups({}, {})
    values: dict[str, Any] = {"states_filter": [], "types_filter": []}
    for node, answer in on_every_node(brokers, cluster, ApiKey.LIST_GROUPS, values).items():
        if isinstance(answer, Exception):
            found.failures[node] = answer
            continue
        try:
            ensure_none(ApiKey.LIST_GROUPS, answer, f"groups of broker {node}")
        except KafkaError as error:
            found.failures[node] = error
            continue
        for row in answer["groups"]:
            kind = (row.get("group_type") or CLASSIC).lower()
            found.by_name[row["group_id"]] = Listed(
                row["group_id"], kind, row.get("group_state") or "", row["protocol_type"], node
            )
    return found


def _by_coordinator(groups: Iterable[Listed]) -> dict[tuple[int, bool], list[Listed]]:
    """Groups by node, and by whether they are share groups, in pieces of one request."""
    found: dict[tuple[int, bool], list[Listed]] = {}
    for each in groups:
        found.setdefault((each.coordinator, each.kind == SHARE), []).append(each)
    return found


def read_progress(brokers: Brokers, cluster: Cluster, groups: Iterable[Listed]) -> Progress:
    """How far groups are: one request to each coordinator, then one to each leader of what they read."""
    calls: list[tuple[bool, list[str], Callable[[], dict[str, Any]]]] = []
    for (node, is_share), some in _by_coordinator(groups).items():
        for begin in range(0, len(some), GROUPS_PER_REQUEST):
            names = [each.name for each in some[begin : begin + GROUPS_PER_REQUEST]]
            calls.append((is_share, names, _asking_offsets(brokers, node, is_share, names)))
    progress = Progress({}, {}, [])
    raw: dict[str, dict[TopicPartition, tuple[int, int | None]]] = {}
    for (is_share, names, _), answer in zip(calls, brokers.gather([call for *_, call in calls]), strict=True):
        if isinstance(answer, Exception):
            progress.failures.update(dict.fromkeys(names, answer))
            continue
        for row in answer["groups"]:
            try:
                ensure_none(
                    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS if is_share else ApiKey.OFFSET_FETCH, row, row["group_id"]
                )
            except KafkaError as error:
                if error.code is not ErrorCode.group_id_not_found:
                    progress.failures[row["group_id"]] = error
                continue
            raw[row["group_id"]] = dict(_places_of(row, is_share))
    wanted = dict.fromkeys((at for some in raw.values() for at in some), LATEST)
    ends, failures = read_offsets(brokers, cluster, wanted)
    progress.unread.extend({id(each): each for each in failures.values()}.values())
    for name, told in raw.items():
        progress.by_group[name] = {
            at: _place(committed, lag, ends.get(at)) for at, (committed, lag) in sorted(told.items())
        }
    return progress


def read_in_flight(
    brokers: Brokers, cluster: Cluster, group: str
) -> tuple[dict[TopicPartition, InFlight], list[KafkaError | OSError]]:
    """What leaders know of a share group, and why others did not say it. Brokers of Kafka have no such request."""
    found: dict[TopicPartition, InFlight] = {}
    failures: list[KafkaError | OSError] = []
    for answer in on_every_node(brokers, cluster, ApiKey.DESCRIBE_SHARE_PARTITIONS, {"groups": [group]}).values():
        if isinstance(answer, Exception):
            if not isinstance(answer, KafkaError) or answer.code is not ErrorCode.unsupported_version:
                failures.append(answer)
            continue
        for row in answer["partitions"]:
            found[TopicPartition(row["topic"], row["partition"])] = InFlight(
                row["start_offset"],
                row["acquired_records"],
                row["redelivered_records"],
                row["waiting_records"],
                row["archived_records"],
            )
    return found, failures


def _asking_offsets(brokers: Brokers, node: int, is_share: bool, names: Sequence[str]) -> Callable[[], dict[str, Any]]:
    rows = [{"group_id": name, "topics": None} for name in names]
    if is_share:
        return lambda: brokers.ask(node, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": rows})
    return lambda: brokers.ask(node, ApiKey.OFFSET_FETCH, {"groups": rows, "require_stable": False})


def _places_of(row: Mapping[str, Any], is_share: bool) -> Iterable[tuple[TopicPartition, tuple[int, int | None]]]:
    for topic in row["topics"]:
        for each in topic["partitions"]:
            if each.get("error_code"):
                continue
            if is_share:
                lag = each.get("lag", -1)
                at = TopicPartition(topic["topic_name"], each["partition_index"])
                yield at, (each["start_offset"], lag if lag >= 0 else None)
            elif each["committed_offset"] >= 0:
                yield TopicPartition(topic["name"], each["partition_index"]), (each["committed_offset"], None)


def _place(committed: int, lag: int | None, end: int | None) -> Place:
    if lag is None and end is not None and committed >= 0:
        lag = max(0, end - committed)
    return Place(committed, end, lag)


def read_described(brokers: Brokers, groups: Iterable[Listed]) -> dict[str, Mapping[str, Any] | KafkaError | OSError]:
    """What their coordinators tell of groups and their members: rows of the API of each kind."""
    by_place: dict[tuple[int, str], list[str]] = {}
    for each in groups:
        by_place.setdefault((each.coordinator, each.kind), []).append(each.name)
    calls: list[tuple[str, list[str], Callable[[], dict[str, Any]]]] = []
    for (node, kind), names in by_place.items():
        if kind in _DESCRIBE:
            for begin in range(0, len(names), GROUPS_PER_REQUEST):
                some = names[begin : begin + GROUPS_PER_REQUEST]
                calls.append((kind, some, _asking_description(brokers, node, kind, some)))
    found: dict[str, Mapping[str, Any] | KafkaError | OSError] = {}
    for (kind, names, _), answer in zip(calls, brokers.gather([call for *_, call in calls]), strict=True):
        if isinstance(answer, Exception):
            found.update(dict.fromkeys(names, answer))
            continue
        for row in answer["groups"]:
            try:
                ensure_none(_DESCRIBE[kind][0], row, row["group_id"])
            except KafkaError as error:
                found[row["group_id"]] = error
            else:
                found[row["group_id"]] = row
    return found


def _asking_description(brokers: Brokers, node: int, kind: str, names: Sequence[str]) -> Callable[[], dict[str, Any]]:
    key, field = _DESCRIBE[kind]
    return lambda: brokers.ask(node, key, {field: names, "include_authorized_operations": False})
