"""Reading one partition for a fetch: what a consumer may see, errors in the result.

Compiled, with C types in `partition_read.pxd`: a fetch of many partitions does this for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.instruments import TopicTraffic
from ottla.model import NO_LEADER_EPOCH, LeaderEpoch, Millis, NodeId, Offset
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition, FetchPartition
from ottla.protocol.fetch_plain import Row
from ottla.replication.fetch_session import CachedPartition, FetchSession
from ottla.replication.partition import Partition
from ottla.replication.replica_log import ReplicaLog
from ottla.replication.throttle import Throttle
from ottla.storage.segments.segment_files import ColdRead

if TYPE_CHECKING:
    from ottla.server.replicas.replica_manager import ReplicaManager

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

INLINE_BYTES_MAX = 65_536
"""Slices up to this are read and sent together with their headers, by two system calls instead of four; above, sendfile
saves more than it costs."""

WARM_STEP_BYTES = 1 << 20
"""How much a disk thread reads at once to bring a range into the page cache."""


class Read(Row):
    """The result of a fetch of one partition. `records` is a slice of the log, None for nothing."""

    __slots__ = ("aborted", "diverging", "error", "log", "preferred", "traffic", "unreadable_at")

    def __init__(self, error: ErrorCode = ErrorCode.none) -> None:
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.records = None
        self.error = error
        self.aborted: Sequence[Any] | None = None
        """(producer id, first offset) pairs for read_committed; None says that the question does not arise."""
        self.diverging: tuple[int, Offset] | None = None
        """(epoch, end offset) where the fetcher's log left the leader's (KIP-595)."""
        self.preferred: NodeId = -1
        """The replica to read from instead (KIP-392), -1 for none."""
        self.traffic: TopicTraffic | None = None
        """Where `records` are to be counted once they are sent."""
        self.log: ReplicaLog | None = None
        """The log of `records`."""
        self.unreadable_at: Offset = -1
        """The offset of records that the disk does not give; -1 for none."""

    def fail(self) -> None:
        """The disk does not give `records`."""
        records: Any = self.records
        self.error, self.records, self.unreadable_at = ErrorCode.kafka_storage_error, None, records.first_offset


class Found:
    """The reads of a fetch so far."""

    __slots__ = ("count", "reads", "size", "urgent")

    def __init__(self) -> None:
        self.reads: list[Read | None] = []
        """The read of each entry; None for a session's partition with nothing to report."""
        self.count = 0
        """Number of entries that are not None."""
        self.size = 0
        """Bytes of records."""
        self.urgent = False
        """Whether something is to be answered at once."""


def field_of(asked: FetchPartition, number: int) -> int:
    """A field of what is asked for: 0 the partition, 1 the fetch offset, 2 the most bytes, 3 the current leader epoch,
    4 the last fetched epoch, 5 the log start offset. Compiled, an index would make an object of its number."""
    if cython.compiled:
        return cython.cast(object, PyTuple_GET_ITEM(asked, number))  # type: ignore[name-defined, no-any-return] # noqa: F821
    else:
        return asked[number]  # type: ignore[return-value]


def partition_of(replicas: ReplicaManager, key: Any) -> Partition | ErrorCode:
    """The partition of a (topic name or id, number)."""
    topic, number = key
    partitions = replicas.by_name.get(topic) if isinstance(topic, str) else replicas.by_id.get(topic)
    if partitions is None:
        return ErrorCode.unknown_topic_or_partition if isinstance(topic, str) else ErrorCode.unknown_topic_id
    found = partitions.get(number)
    if found is None and replicas.missing:
        name = topic if isinstance(topic, str) else replicas.names[topic]
        if (name, number) in replicas.missing:
            return ErrorCode.kafka_storage_error
    return found or ErrorCode.unknown_topic_or_partition


def has_nothing_new(cached: CachedPartition, partition: Partition, leader_only: bool) -> bool:
    """Whether a partition of a consumer's session has neither records nor anything else to tell: cheap, and False in
    doubt.

    Most partitions of most fetches are like that.
    """
    asked: FetchPartition = cached.request
    if leader_only and not partition.is_leader:
        return False
    epoch = partition.leader_epoch
    if (field_of(asked, 3) >= 0 and field_of(asked, 3) != epoch) or (
        field_of(asked, 4) >= 0 and field_of(asked, 4) != epoch
    ):
        return False
    log = partition.log
    if not log.holds_nothing(field_of(asked, 1), cached.high_watermark, cached.log_start_offset):
        return False
    partition.traffic.fetches += 1
    return True


def have_undecided(partitions: Sequence[Partition]) -> bool:
    """Whether one of them has committed bytes of a transaction that is not decided."""
    return any(partition.log.last_stable_offset < partition.log.high_watermark for partition in partitions)


def read(
    partition: Partition,
    asked: FetchPartition,
    max_bytes: int,
    isolation: int,
    min_one_batch: bool,
    nowait: bool,
    leader_only: bool,
) -> Read:
    """What a consumer may read; errors are in the result, not raised. Who knows of `preferred` replicas may read from
    a follower too, up to the high watermark that it knows of (KIP-392).

    Raises only ColdRead, and only with `nowait`, where even finding the records needs the disk.
    """
    log = partition.log
    traffic = partition.traffic
    traffic.fetches += 1
    found = Read()
    try:
        if not partition.is_leader or field_of(asked, 3) >= 0:
            claimed = max(field_of(asked, 3), NO_LEADER_EPOCH)  # any negative one claims nothing here
            if leader_only:
                partition.check_leader(claimed)
            else:
                partition.check_epoch(claimed)
        high_watermark = found.high_watermark = log.high_watermark
        stable = found.last_stable_offset = log.last_stable_offset
        found.log_start_offset = log.log_start_offset
        if field_of(asked, 4) >= 0:
            found.diverging = _divergence(partition, field_of(asked, 4), field_of(asked, 1))
            if found.diverging is not None:
                return found
        up_to = stable if isolation == READ_COMMITTED else high_watermark
        found.records = log.read(field_of(asked, 1), max_bytes, up_to, min_one_batch, nowait)
        if isolation == READ_COMMITTED:
            part = found.records
            found.aborted = log.aborted_transactions(field_of(asked, 1), up_to, part) if part is not None else []
        found.traffic, found.log = traffic, log
        return found
    except KafkaError as error:
        traffic.failed_fetches += 1
        code = error.code
        if (
            code is ErrorCode.offset_out_of_range
            and not partition.is_leader
            and field_of(asked, 1) > log.log_end_offset
        ):
            # The leader may have it. A consumer that has not heard yet who leads would start over or skip (Kafka's
            # would), where this replica is fetched again and was asked before.
            code = ErrorCode.not_leader_or_follower
        return Read(code)


class Follower:
    """The replica that fetches."""

    __slots__ = ("broker_epoch", "is_retry", "node_id", "now_ms", "throttle", "traffic")

    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: int,
        now_ms: Millis,
        traffic: TopicTraffic,
        throttle: Throttle | None = None,
    ) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.now_ms = now_ms
        """When the fetch came."""
        self.traffic = traffic
        """Where the bytes that it gets are counted."""
        self.throttle = throttle
        self.is_retry = False
        """The fetch was looked at before: that it came is noted, and not to be noted again."""


def read_as_follower(
    partition: Partition, asked: FetchPartition, max_bytes: int, by: Follower, min_one_batch: bool, nowait: bool
) -> Read:
    """What a follower gets: everything up to the log end. Takes note of how far it is; errors as `read`."""
    found = Read()
    log = partition.log
    try:
        partition.check_leader(max(field_of(asked, 3), NO_LEADER_EPOCH))
        offset = field_of(asked, 1)
        if offset < log.log_start_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if field_of(asked, 4) >= 0:
            found.diverging = _divergence(partition, field_of(asked, 4), offset)
        if found.diverging is None and not by.is_retry:
            partition.on_follower_fetch(
                by.node_id,
                offset,
                field_of(asked, 3),
                by.now_ms,
                broker_epoch=by.broker_epoch,
                log_start_offset=field_of(asked, 5),
            )
        found.high_watermark = log.high_watermark
        found.last_stable_offset = log.last_stable_offset
        found.log_start_offset = log.log_start_offset
        if found.diverging is None:
            end = log.log_end_offset
            found.records = log.read(offset, max_bytes, end, min_one_batch, nowait)
            found.traffic, found.log = by.traffic, log
            if by.throttle is not None and found.records is not None:
                by.throttle.hold_back(partition, by.node_id, found)
        return found
    except KafkaError as error:
        partition.traffic.failed_fetches += 1
        return Read(error.code)


def keeps_up(cached: CachedPartition, partition: Partition, read: Read, by: Follower) -> bool:
    """Whether a follower in sync has everything, watermarks too: then its session watches the partition."""
    if read.records is not None or read.error or read.diverging is not None:
        return False
    if read.high_watermark != cached.high_watermark or read.log_start_offset != cached.log_start_offset:
        return False
    replica = partition.quiet_replica(by.node_id)
    return replica is not None and cached.watch(partition, replica)


def _divergence(partition: Partition, last_fetched_epoch: LeaderEpoch, offset: Offset) -> tuple[int, Offset] | None:
    """Where a fetcher whose last record is of this epoch must truncate to, None if it is in step (KIP-595)."""
    epoch, end = partition.end_of_epoch(last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch < last_fetched_epoch or end < offset:
        return epoch, end
    return None


def take_cached(reads: list[Read | None]) -> list[Read]:
    """Count what is read, and take small slices into memory; gives those whose slice is not in the page cache."""
    cold = []
    for read in reads:
        if read is None or read.records is None:
            continue
        records = read.records
        if read.traffic is not None:
            read.traffic.bytes_out += records.length
        if records.length <= INLINE_BYTES_MAX:
            try:
                data = records.read_nowait()
            except OSError:
                read.fail()
                continue
            if data is None:
                cold.append(read)
            else:
                read.records = data
        elif not records.file.is_cached(records.length, records.position):
            cold.append(read)
    return cold


def warm(cold: Sequence[Read]) -> None:
    """Read slices through, so that they are in the page cache; one that cannot be read becomes an error of its
    partition. Blocks; for a disk thread."""
    for read in cold:
        records: Any = read.records
        end = records.position + records.length
        try:
            for position in range(records.position, end, WARM_STEP_BYTES):
                records.file.pread(min(WARM_STEP_BYTES, end - position), position)
        except OSError:
            read.fail()


def warm_for(look_up: ColdRead) -> None:
    """The same for what a look-up needs. One that cannot be read is tried again, in the end without a thread, and only
    then it is known whose error it is."""
    with suppress(OSError):
        look_up.warm()


def is_news(session: FetchSession, cached: CachedPartition, read: Read) -> bool:
    """Whether an incremental answer must include the partition; one that gave data goes to the end of the session's
    order."""
    has_more = read.records is not None or read.diverging is not None or read.preferred >= 0
    if not cached.is_news(read.error, read.high_watermark, read.log_start_offset, has_more):
        return False
    if read.records is not None and cached.session is session:
        session.move_to_end(cached)
    return True


def is_plain(rows: list[tuple[Any, Read]]) -> bool:
    """Whether there is nothing in an answer but records and watermarks."""
    for _, read in rows:
        if read.error or read.aborted is not None or read.diverging is not None or read.preferred >= 0:
            return False
    return True


def fetched(number: int, read: Read) -> FetchedPartition:
    """The row of a partition; a log that could not be read is checked, so that another replica leads instead."""
    if read.unreadable_at >= 0 and read.log is not None:
        read.log.health.report(read.unreadable_at)
    answer = FetchedPartition(number, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset)
    if read.records is not None:
        answer.records = read.records
    if read.aborted is not None:
        answer.aborted_transactions = [(each.producer_id, each.first_offset) for each in read.aborted]
    if read.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(*read.diverging)
    answer.preferred_read_replica = read.preferred
    return answer
