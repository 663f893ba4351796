"""What a micro-batch takes: limits, and what was lost since the last one. Pure; as `KafkaMicroBatchStream` and
`KafkaOffsetReaderAdmin` of the connector.

Offsets here are resolved: none is `LATEST` or `EARLIEST`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.model import Millis, Offset, TopicPartition
from ottla.spark.offsets import Offsets, Position, TopicIds
from ottla.spark.ranges import Range

PartitionOffsets = Mapping[TopicPartition, Offset]


class Plan(NamedTuple):
    """What to read, and what cannot be read any more: a sentence for each loss."""

    ranges: list[Range]
    losses: list[str]


def rate_limit(limit: int, start: PartitionOffsets, earliest: PartitionOffsets, latest: PartitionOffsets) -> Offsets:
    """The end of a batch of about `limit` records, shared among partitions in proportion to what waits there.

    No partition starves: each with records gets one at least, so that there may be a few more than `limit`.
    `earliest` has where partitions begin that
    `start` does not know. A partition that is in neither, or has nothing new, goes to its end, for `plan` to judge.
    """
    begins = {partition: start.get(partition, earliest.get(partition)) for partition in latest}
    sizes = {
        partition: end - begin
        for partition, end in latest.items()
        if (begin := begins[partition]) is not None and end > begin
    }
    total = sum(sizes.values())
    ends = dict(latest)
    for partition, size in sizes.items():
        share = limit * (size / total)
        begin = begins[partition]
        assert begin is not None
        ends[partition] = min(latest[partition], begin + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def waits(
    minimum: int, start: PartitionOffsets, latest: PartitionOffsets, waited_ms: Millis, delay_ms_max: Millis
) -> bool:
    """Whether a batch waits for more records (`minOffsetsPerTrigger`), since the last one is not `delay_ms_max` ago."""
    return waited_ms < delay_ms_max and sum(end - start.get(at, 0) for at, end in latest.items()) < minimum


def recreated(before: TopicIds, now: TopicIds) -> set[str]:
    """Topics of which there is another one now. Where an id is not known, nothing is said."""
    return {topic for topic, topic_id in now.items() if before.get(topic, topic_id) != topic_id}


def of_present(position: Position, now: TopicIds) -> Offsets:
    """The offsets of topics that are still the same: those of a deleted topic say nothing about its successor, which
    is read from its beginning."""
    others = recreated(position.ids, now)
    return {at: offset for at, offset in position.offsets.items() if at.topic not in others}


def plan(
    start: Position,
    end: Position,
    earliest: PartitionOffsets,
    now: TopicIds,
    latest: PartitionOffsets = MappingProxyType({}),
) -> Plan:
    """What a batch from `start` to `end` reads, and what is lost. `earliest` has the log start offsets of all
    partitions there are now, `now` the ids of their topics, and `latest` where they end, if `end` is of another moment.

    A partition that `start` does not know is read from its beginning. Where the log begins behind `start`, retention
    was faster than the reader: what is left is read.
    A topic that was recreated between `start` and `end` is read from its beginning. If that happened after `end` was
    found, nothing of it is read in this batch: its `end` has the old id, and the next batch reads it from its
    beginning. Where ids are not known (checkpoints of Spark's connector, clusters without ids), only an `end` before
    `start` shows it.
    """
    replaced = recreated(end.ids, now)
    ids = {**now, **end.ids}
    fresh = recreated(start.ids, ids) - replaced
    losses = [f"topic {topic} was deleted and created again" for topic in sorted(fresh | replaced)]
    ranges = []
    losses += [
        f"partition {partition} is gone, at offset {start.offsets[partition]}"
        for partition in sorted(start.offsets.keys() - end.offsets.keys())
        if partition.topic not in fresh | replaced
    ]
    for partition, stop in sorted(end.offsets.items()):
        if partition.topic in replaced:
            continue
        last = latest.get(partition, stop)
        if last < stop:
            losses.append(f"partition {partition} ends at offset {last}, before the batch's end {stop}")
            stop = last
        begin = None if partition.topic in fresh else start.offsets.get(partition)
        range_, lost = _range(partition, begin, stop, earliest.get(partition), is_same=partition.topic in start.ids)
        ranges += [range_] if range_ is not None else []
        losses += [lost] if lost else []
    return Plan(ranges, losses)


def _range(
    partition: TopicPartition, begin: Offset | None, stop: Offset, first: Offset | None, *, is_same: bool
) -> tuple[Range | None, str]:
    """What to read of a partition, None for nothing, and what is lost of it. `begin` is None for a new one; `is_same`
    says that its topic is known to be the one that was read before."""
    lost = ""
    if begin is None:
        if first is None:
            return None, f"new partition {partition} was deleted before its first offset was known"
        if first > 0:
            lost = f"new partition {partition} begins at offset {first}, not at 0"
        begin = min(first, stop)
    elif stop < begin and is_same:
        return None, f"partition {partition} ends at offset {stop}, before {begin}, where reading should resume"
    elif stop < begin:
        lost = f"partition {partition} went from offset {begin} to {stop}: its topic was recreated"
        if first is None:
            return None, lost
        begin = min(first, stop)
    elif first is None and stop > begin:
        return None, f"partition {partition} is gone, at offset {begin} of {stop}"
    elif first is not None and first > begin and stop > begin:
        lost = f"partition {partition} begins at offset {first}, behind {begin}, where reading should resume"
        begin = min(first, stop)
    return Range(partition.topic, partition.partition, begin, stop), lost


def loss_text(losses: list[str]) -> str:
    """What a query that fails on lost data says."""
    return f"{_lost(losses)} To continue without them set failOnDataLoss to false."


def warning_text(losses: list[str]) -> str:
    """What a query that goes on without lost data logs."""
    return f"{_lost(losses)} Recreated topics are read from their beginning."


def _lost(losses: list[str]) -> str:
    return (
        f"Records may have been lost: {'; '.join(losses)}. They were deleted, by retention or with"
        " their topic, before they were read."
    )


def plan_batch(
    start: PartitionOffsets, end: PartitionOffsets, earliest: PartitionOffsets, latest: PartitionOffsets
) -> Plan:
    """What a batch read takes: nothing of a partition whose end is before its start.

    A loss is what the log does not have any more, or not yet: an end that is given can be behind the log's.
    """
    ranges, losses = [], []
    for partition, stop in sorted(end.items()):
        begin, first, last = start[partition], earliest[partition], latest[partition]
        if begin >= stop:
            continue
        if begin < first:
            losses.append(f"partition {partition} begins at offset {first}, behind {begin}, where reading should start")
        if stop > last:
            losses.append(f"partition {partition} ends at offset {last}, before {stop}, where reading should end")
        begin, stop = max(begin, first), min(stop, last)
        if begin < stop:
            ranges.append(Range(partition.topic, partition.partition, begin, stop))
    return Plan(ranges, losses)


class DataLoss(Exception):
    """Records are gone before they were read, and failOnDataLoss is not false."""

    def __init__(self, losses: list[str]) -> None:
        super().__init__(loss_text(losses))
        self.losses = losses

    def __reduce__(self) -> tuple[type[DataLoss], tuple[list[str]]]:
        return DataLoss, (self.losses,)
