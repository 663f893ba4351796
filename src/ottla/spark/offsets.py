"""Offsets by partition as JSON, in the form in which Spark's Kafka connector takes them and keeps them in checkpoints.

`{"topic": {"0": 23, "1": -2}}`; in options -1 is the latest offset and -2 the earliest. As `JsonUtils` of the
connector.

A checkpoint of Ottla also has the ids of the topics, `{"topic": {"0": 23}, "topic#AbC...": {}}`: a "topic" without
partitions, whose name no topic can have, behind the `#` the id as Kafka writes it. The connector, and builds of Ottla
that do not know of ids, read a map of partitions for each topic and find none here. Checkpoints of these have no ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.model import Offset, TopicId, TopicPartition, uuid_from_base64, uuid_to_base64

LATEST = -1
EARLIEST = -2

Offsets: TypeAlias = dict[TopicPartition, Offset]
OffsetsByTopic: TypeAlias = dict[str, dict[str, Offset]]
TopicIds: TypeAlias = Mapping[str, TopicId]

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_ID_MARK: Final = "#"
"""Before the id in a key of a checkpoint. Names of topics have letters, digits, `.`, `_` and `-` only."""


class Position(NamedTuple):
    """How far a stream has read: the offsets, and the ids of their topics as far as they are known."""

    offsets: Offsets
    ids: TopicIds


def of_topics(offsets: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Offsets out of a decoded JSON object. Raises `ValueError` where it has another shape."""
    found: Offsets = {}
    for topic, partitions in offsets.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f"{topic} has no object of partitions")
        for partition, offset in partitions.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or abs(offset) > _INT64_MAX:
                raise ValueError(f"{topic}-{partition} has no whole number")
            found[TopicPartition(topic, _partition(partition))] = offset
    return found


def to_topics(offsets: Mapping[TopicPartition, Offset]) -> OffsetsByTopic:
    """What `json.dumps` takes, sorted: equal offsets give equal text."""
    topics: OffsetsByTopic = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return topics


def of_checkpoint(offsets: Mapping[str, Mapping[str, Any]]) -> Position:
    """A position out of a checkpoint's decoded JSON, with or without ids. Raises `ValueError` as `of_topics` does."""
    ids: dict[str, UUID] = {}
    for key in offsets:
        topic, mark, text = key.partition(_ID_MARK)
        if mark:
            ids[topic] = uuid_from_base64(text)
    return Position(of_topics(offsets), ids)


def to_checkpoint(position: Position) -> OffsetsByTopic:
    """What `json.dumps` takes; equal positions give equal text. Ids of topics without offsets are left out."""
    topics = to_topics(position.offsets)
    named = {f"{topic}{_ID_MARK}{uuid_to_base64(position.ids[topic])}" for topic in topics if topic in position.ids}
    return topics | {key: {} for key in sorted(named)}


def parse_offsets(option: str, text: str, example: str) -> Offsets:
    """The offsets, or timestamps, that an option gives for partitions. Raises `ValueError` that names the option."""
    try:
        decoded = json.loads(text)
        if not isinstance(decoded, dict):
            raise ValueError("not an object")
        return of_topics(decoded)
    except ValueError as error:
        raise ValueError(f"{option}: expected e.g. {example}, got {text} ({error})") from None


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The partitions of `{"topic": [0, 1]}`, sorted, each once. Raises `ValueError` that names the option."""
    try:
        decoded = json.loads(text)
        if not isinstance(decoded, dict):
            raise ValueError("not an object")
        found: set[TopicPartition] = set()
        for topic, partitions in decoded.items():
            if not isinstance(partitions, list):
                raise ValueError(f"{topic} has no list of partitions")
            found.update(TopicPartition(topic, _partition(partition)) for partition in partitions)
        return tuple(sorted(found))
    except ValueError as error:
        raise ValueError(f'{option}: expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text} ({error})') from None


def _partition(text: object) -> int:
    number = int(str(text))
    if not 0 <= number <= _INT32_MAX:
        raise ValueError(f"no partition is {text}")
    return number
