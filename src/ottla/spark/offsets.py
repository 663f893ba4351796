"""Offsets by partition as JSON, in the form in which Spark's Kafka connector takes them and keeps them in checkpoints.

`{"topic": {"0": 23, "1": -2}}`; in options -1 is the latest offset and -2 the earliest. As `JsonUtils` of the
connector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from ottla.model import Offset, TopicPartition

LATEST = -1
EARLIEST = -2

Offsets: TypeAlias = dict[TopicPartition, Offset]
OffsetsByTopic: TypeAlias = dict[str, dict[str, Offset]]

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


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
