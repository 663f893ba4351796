"""Where reading begins and ends: what the options name, asked of the cluster. As `KafkaOffsetReaderAdmin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.cluster import Cluster, Leader
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.spark.offsets import EARLIEST, LATEST, Offsets
from ottla.spark.options import Bound, SourceOptions, Subscription


def subscribed(cluster: Cluster, subscription: Subscription) -> dict[TopicPartition, Leader]:
    """The partitions that are to be read and that there are now. Raises KafkaError, OSError."""
    names = cluster.topics() if subscription.pattern is not None else ()
    found = cluster.partitions(subscription.chosen(names))
    if subscription.partitions:
        return {at: found[at] for at in subscription.partitions if at in found}
    return found


def all_subscribed(cluster: Cluster, subscription: Subscription) -> dict[TopicPartition, Leader]:
    """Like `subscribed`; raises KafkaError as well if a topic or partition that is named does not exist."""
    found = subscribed(cluster, subscription)
    topics = {at.topic for at in found}
    missing: list[object] = [topic for topic in subscription.topics if topic not in topics]
    missing += [at for at in subscription.partitions if at not in found]
    if missing:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no {', '.join(map(str, missing))}")
    return found


def latest(cluster: Cluster, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    """Ends as they are now; of what is committed, if only that is read."""
    return _ask(cluster, dict.fromkeys(partitions, LATEST), options)


def earliest(cluster: Cluster, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    return _ask(cluster, dict.fromkeys(partitions, EARLIEST), options)


def starting(cluster: Cluster, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    """Raises ValueError for partitions without an offset, and where no record is as young as a timestamp."""
    return _resolve(cluster, "starting", options.starting, list(partitions), options)


def ending(cluster: Cluster, partitions: Iterable[TopicPartition], options: SourceOptions) -> Offsets:
    """Raises ValueError for partitions without an offset."""
    return _resolve(cluster, "ending", options.ending, list(partitions), options)


def _resolve(
    cluster: Cluster, which: str, bound: Bound, partitions: list[TopicPartition], options: SourceOptions
) -> Offsets:
    if bound.offset is not None:
        return _ask(cluster, dict.fromkeys(partitions, bound.offset), options)
    if bound.offsets is not None:
        _check_all_named(f"{which}Offsets", bound.offsets, partitions)
        moving = {at: offset for at, offset in bound.offsets.items() if offset < 0}
        return bound.offsets | _ask(cluster, moving, options)
    if bound.timestamps_ms is not None:
        _check_all_named(f"{which}OffsetsByTimestamp", bound.timestamps_ms, partitions)
        wanted = bound.timestamps_ms
    else:
        assert bound.timestamp_ms is not None
        wanted = dict.fromkeys(partitions, bound.timestamp_ms)
    found = _ask(cluster, wanted, options)
    unmatched = sorted(at for at, offset in found.items() if offset < 0)
    if unmatched and which == "starting" and options.no_match == "error":
        raise ValueError(
            f"no record of {', '.join(map(str, unmatched))} has a timestamp at or after the starting timestamp "
            f"{wanted[unmatched[0]]}; with startingOffsetsByTimestampStrategy latest, reading begins at the end there"
        )
    return found | latest(cluster, unmatched, options)


def _check_all_named(option: str, named: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> None:
    others = sorted(map(str, named.keys() ^ set(partitions)))
    if others:
        raise ValueError(
            f"{option}: must name exactly the partitions that are read (-1 is the latest offset, -2 the earliest); "
            f"it differs in {', '.join(others)}"
        )


def _ask(cluster: Cluster, wanted: Mapping[TopicPartition, int], options: SourceOptions) -> Offsets:
    if not wanted:
        return {}
    found = cluster.offsets(wanted, read_committed=options.client.read_committed)
    return {at: one.offset for at, one in found.items()}
