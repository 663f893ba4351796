"""What a micro-batch takes: limits, and what was lost since the last one. Pure; as `KafkaMicroBatchStream` and
`KafkaOffsetReaderAdmin` of the connector.

Offsets here are resolved: none is `LATEST` or `EARLIEST`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ottla.model import Millis, Offset, TopicPartition
from ottla.spark.offsets import Offsets
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


def plan(start: PartitionOffsets, end: PartitionOffsets, earliest: PartitionOffsets) -> Plan:
    """What a batch from `start` to `end` reads, and what is lost. `earliest` has the log start offsets of all
    partitions there are now.

    A partition that `start` does not know is read from its beginning. Where the log begins behind `start`, retention
    was faster than the reader: what
    is left is read. Where `end` is before `start` the topic was recreated, and nothing of it is read in this batch;
    the next one goes on from `end`.
    """
    ranges, losses = [], []
    gone = sorted(partition for partition in start if partition not in end)
    losses += [f"partition {partition} is gone, at offset {start[partition]}" for partition in gone]
    for partition, stop in sorted(end.items()):
        first = earliest.get(partition)
        begin = start.get(partition, first)
        if begin is None:
            losses.append(f"new partition {partition} is gone before its first offset was known")
            continue
        if partition not in start and begin > 0:
            losses.append(f"new partition {partition} begins at offset {begin}, not at 0")
        if stop < begin:
            losses.append(f"partition {partition} went from offset {begin} to {stop}: its topic was recreated")
            continue
        if first is None and stop > begin:
            losses.append(f"partition {partition} is gone, at offset {begin} of {stop}")
            continue
        if first is not None and first > begin and stop > begin:
            losses.append(f"partition {partition} begins at offset {first}, behind {begin} where reading was to go on")
            begin = min(first, stop)
        ranges.append(Range(partition.topic, partition.partition, begin, stop))
    return Plan(ranges, losses)


def loss_text(losses: list[str]) -> str:
    """What a query that fails on lost data says."""
    return (
        f"Records may have been lost: {'; '.join(losses)}. They were deleted, by retention or with"
        " their topic, before they were read. To go on without them set failOnDataLoss to false."
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
            losses.append(f"partition {partition} begins at offset {first}, behind {begin} where reading was to begin")
        if stop > last:
            losses.append(f"partition {partition} ends at offset {last}, before {stop} where reading was to end")
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
