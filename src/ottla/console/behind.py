"""Lag in time: how long ago the first record was written that a group has not read.

The head of a batch says when it was written, so a Fetch of some bytes at the committed offset is enough. That is the
batch's first time: a record in its middle may be a little younger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.console.asking import Asking
from ottla.console.cluster import leader_of
from ottla.console.groups import Place
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.records.record_batch import HEADER_SIZE, MAGIC, unpack_header

TIMED_MAX: Final = 200
"""Partitions whose first unread record is looked at for its time, of all groups of a page together."""
TIMED_BYTES: Final = 1024
"""Bytes that are fetched of each: the head of a batch."""
ROUNDS_MAX: Final = 5
"""Requests to one leader: a request names a partition once, and several groups may read it."""

Timed = tuple[str, TopicPartition]
"""A group and a partition that it reads."""


class Behind(NamedTuple):
    by_group: dict[str, int]
    """Seconds of the partition that is furthest behind."""
    failures: list[KafkaError | OSError]


def behind_of(asking: Asking, mine: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
    """Seconds of each partition of one group."""
    found, failures = _seconds(asking, {"": mine})
    asking.fail_all("behind", failures)
    return {at: value for (_, at), value in found.items()}


def behind_of_groups(asking: Asking, groups: Mapping[str, Mapping[TopicPartition, Place]]) -> Behind:
    """The partition of each group that is furthest behind; where there are too many groups, of those with most
    unread records."""
    found, failures = _seconds(asking, groups)
    by_group: dict[str, int] = {}
    for group, mine in groups.items():
        value = furthest(mine, {at: seconds for at in mine if (seconds := found.get((group, at))) is not None})
        if value is not None:
            by_group[group] = value
    return Behind(by_group, failures)


def furthest(mine: Mapping[TopicPartition, Place], seconds: Mapping[TopicPartition, int]) -> int | None:
    """The lag in time of a group. None where nothing is known, or only of partitions that it has read to their end."""
    value = max(seconds.values(), default=None)
    if value == 0 and any(place.lag for at, place in mine.items() if at not in seconds):
        return None
    return value


def to_look_at(groups: Mapping[str, Mapping[TopicPartition, Place]]) -> list[tuple[Timed, int]]:
    """What to look at, with the committed offset: the same number of each group, those with most unread records."""
    late = {
        group: sorted(
            (at for at, place in mine.items() if place.lag and place.committed >= 0),
            key=lambda at, mine=mine: -(mine[at].lag or 0),  # type: ignore[misc]
        )
        for group, mine in groups.items()
    }
    each_max = max(1, TIMED_MAX // max(1, sum(1 for some in late.values() if some)))
    wanted = [((group, at), groups[group][at].committed) for group, some in late.items() for at in some[:each_max]]
    return wanted[:TIMED_MAX]


def _seconds(
    asking: Asking, groups: Mapping[str, Mapping[TopicPartition, Place]]
) -> tuple[dict[Timed, int], list[KafkaError | OSError]]:
    cluster, now_ms = asking.cluster(), time.time() * 1000
    rounds: dict[tuple[int, int], dict[TopicPartition, tuple[Timed, int]]] = {}
    for timed, offset in to_look_at(groups):
        leader = leader_of(cluster, timed[1])
        for number in range(ROUNDS_MAX if leader >= 0 else 0):
            mine = rounds.setdefault((leader, number), {})
            if timed[1] not in mine:
                mine[timed[1]] = timed, offset
                break

    def asked(node: int, wanted: Mapping[TopicPartition, tuple[Timed, int]]) -> Callable[[], FetchResponse]:
        by_topic: dict[str, list[FetchPartition]] = {}
        for at, (_, offset) in wanted.items():
            by_topic.setdefault(at.topic, []).append(FetchPartition(at.partition, offset, TIMED_BYTES))
        topics = [FetchTopic(name, cluster.topics[name].id, rows) for name, rows in by_topic.items()]
        return lambda: asking.brokers.fetch(node, FetchRequest(0, 0, TIMED_BYTES * len(wanted), topics))

    found = {(group, at): 0 for group, mine in groups.items() for at, place in mine.items() if place.lag == 0}
    names = {each.id: each.name for each in cluster.topics.values()}
    failures: list[KafkaError | OSError] = []
    calls = [asked(node, wanted) for (node, _), wanted in rounds.items()]
    for wanted, answer in zip(rounds.values(), asking.brokers.gather(calls), strict=True):
        if isinstance(answer, Exception):
            failures.append(answer)
            continue
        for at, written_ms in _times(answer, names).items():
            if at in wanted:
                found[wanted[at][0]] = max(0, int((now_ms - written_ms) / 1000))
    return found, failures


def _times(answer: FetchResponse, names: Mapping[UUID, str]) -> dict[TopicPartition, int]:
    """When the first batch of each partition was written."""
    found = {}
    for topic in answer.topics:
        name = topic.name or (names.get(topic.topic_id) if topic.topic_id is not None else None)
        for part in topic.partitions:
            data = memoryview(part.records) if part.records else memoryview(b"")  # type: ignore[arg-type]
            if name is None or part.error_code or len(data) < HEADER_SIZE:
                continue
            head = unpack_header(data)
            if head.magic == MAGIC and head.base_timestamp >= 0:
                found[TopicPartition(name, part.partition_index)] = head.base_timestamp
    return found
