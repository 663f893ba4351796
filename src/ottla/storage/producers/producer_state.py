"""What a partition knows of the producers that write to it.

For every producer id it keeps the epoch and the last five batches, which is what makes a retry harmless and a gap
visible (KIP-98), and which transactions are open, which bounds what read_committed consumers see. The order of use:
`check` a batch before it is written, write it, `update` with the same batch. Behaviour follows Kafka's
ProducerStateManager and ProducerAppendInfo. Snapshot files are in `producer_snapshot.py`.
"""

from __future__ import annotations

import posixpath
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import (
    NO_GUARD,
    NO_PRODUCER_EPOCH,
    Buffer,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicPartition,
)
from ottla.protocol.records.record_batch import EndMarker, crc_is_valid, increment_sequence
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.log.validation import Origin
from ottla.storage.producers.producer_entry import SEQUENCE_MAX, Duplicate, ProducerEntry, Verifications
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.refused_batches import RefusedBatches, idempotent_batch

if TYPE_CHECKING:
    from ottla.protocol.records.record_batch import BatchHeader

SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

RECALL_MS = 10 * 60 * 1000
"""How long after its last batch a producer may still retry: five times the default of delivery.timeout.ms."""

PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Default of producer.id.expiration.ms."""


EPOCH_MAX = 2**15 - 1
"""A producer's last epoch; after it comes another producer id."""

EPOCH_PER_TRANSACTION = 2
"""The transaction.version from which on every transaction ends in an epoch of its own (KIP-890)."""


class ProducerSettings:
    """What all partitions of a node have in common; they share one object."""

    __slots__ = ("expiration_ms", "refused", "verifies_transactions")

    def __init__(self, expiration_ms: Millis = PRODUCER_ID_EXPIRATION_MS, verifies_transactions: bool = False) -> None:
        self.expiration_ms = expiration_ms
        """producer.id.expiration.ms"""
        self.verifies_transactions = verifies_transactions
        """transaction.partition.verification.enable"""
        self.refused = RefusedBatches()


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended at `last_offset`. `last_stable_offset` goes to the transaction index."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool
    last_stable_offset: Offset


class ProducerStateManager:
    """The producers of one partition, and the snapshots of their state in its directory."""

    __slots__ = (
        "_completed",
        "_directory",
        "_first_unstable_offset",
        "_fs",
        "_last_snapshot_offset",
        "_ongoing",
        "_producers",
        "_settings",
        "_snapshots",
        "cut",
        "map_end_offset",
        "topic_partition",
        "verifications",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        *,
        settings: ProducerSettings | None = None,
        file_names: Iterable[str] | None = None,
    ) -> None:
        """No state yet: `truncate_and_reload` loads it. `file_names` saves listing `directory` a second time."""
        self._fs = fs
        self._directory = directory
        self.topic_partition = topic_partition
        self._settings = settings or ProducerSettings()
        self.verifications = Verifications()
        self._producers: dict[ProducerId, ProducerEntry] = {}
        self._ongoing: dict[Offset, ProducerId] = {}
        """Open transactions by first offset, ascending."""
        self._completed: dict[Offset, Offset] = {}
        """First to last offset of decided transactions whose marker the high watermark has not passed."""
        self._first_unstable_offset: Offset | None = None
        self.map_end_offset: Offset = 0
        """The state is that of the log up to here (exclusive). The log sets it after appends without a producer id."""
        self._last_snapshot_offset: Offset = 0
        self.cut: list[tuple[ProducerId, ProducerEpoch, Sequence, Sequence]] = []
        """Epoch, first and last sequence of batches that the log had before it was cut, for `take_over`."""
        self._snapshots: list[Offset] = []
        """Offsets of the snapshot files, ascending."""
        self._scan(fs.listdir(directory) if file_names is None else file_names)

    # Appending

    def find_duplicate(self, records: Buffer) -> Duplicate | None:
        """The batch that the records repeat, if they are one whole batch of a producer."""
        header = idempotent_batch(records)
        entry = None if header is None else self._producers.get(header.producer_id)
        if header is None or entry is None or not crc_is_valid(records, 0, header):
            return None
        return entry.duplicate_of(header)

    def note_refusal(self, records: Buffer, error: ErrorCode, now_ms: Millis) -> None:
        """A client's records are refused, and it may send them again."""
        self._settings.refused.note(self.topic_partition, records, error, now_ms)

    def start_verification(self, header: BatchHeader, *, begins_transaction: bool, now_ms: Millis) -> int:
        """A batch of a transaction is about to come: the guard to `check` it with, once the coordinator says that the
        partition is part of the transaction. NO_GUARD where that is known, and for what was written before: a retry
        that comes late would be refused, and leave a sequence behind that those of the next transaction are held to.
        Raises INVALID_PRODUCER_EPOCH."""
        entry = self._producers.get(header.producer_id)
        if entry is not None:
            if header.producer_epoch < entry.producer_epoch:
                raise self._stale_epoch(header, entry, "smaller than")
            if entry.has_open_transaction(header.producer_epoch) or entry.duplicate_of(header) is not None:
                return NO_GUARD
        return self.verifications.start(header, begins_transaction, now_ms)

    def check(
        self,
        header: BatchHeader,
        *,
        origin: Origin = Origin.CLIENT,
        marker: EndMarker | None = None,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
    ) -> Duplicate | None:
        """Whether a batch may be appended; changes nothing. The header has the offsets that the log will give it.

        Returns the earlier batch if this one is a retry of it. A control batch comes with its `marker` and the
        `transaction_version` of its transaction, the first batch of a transaction with the `guard` of its
        verification. Batches without a producer id need no check. Raises `KafkaError`: INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._producers.get(header.producer_id)
        if origin is Origin.CLIENT and entry is not None and (duplicate := entry.duplicate_of(header)) is not None:
            return duplicate
        if origin is not Origin.REPLICATION and entry is not None and header.producer_epoch < entry.producer_epoch:
            raise self._stale_epoch(header, entry, "smaller than")
        if header.is_control:
            if entry is not None and origin is not Origin.REPLICATION and marker is not None:
                self._check_marker(header, entry, marker, transaction_version)
            return None
        if header.is_transactional and origin is not Origin.REPLICATION and self._settings.verifies_transactions:
            is_open = entry is not None and entry.has_open_transaction(header.producer_epoch)
            if not is_open and not self.verifications.holds(header.producer_id, guard):
                raise KafkaError(
                    ErrorCode.invalid_txn_state,
                    f"Record of producer {header.producer_id} in partition {self.topic_partition} was not part of an "
                    "ongoing transaction",
                )
        if origin is Origin.CLIENT:
            self._check_sequence(header, entry)
        if entry is not None and entry.current_txn_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"Expected transactional write from producer {header.producer_id} at offset {header.base_offset} "
                f"in partition {self.topic_partition}",
            )
        return None

    def _stale_epoch(self, header: BatchHeader, entry: ProducerEntry, comparison: str) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_producer_epoch,
            f"Epoch of producer {header.producer_id} at offset {header.base_offset} in {self.topic_partition} is "
            f"{header.producer_epoch}, which is {comparison} the last seen epoch {entry.producer_epoch}",
        )

    def _check_sequence(self, header: BatchHeader, entry: ProducerEntry | None) -> None:
        first = header.base_sequence
        verification = self.verifications.of(header.producer_id) if self.verifications.entries else None
        if verification is not None:
            has_batches = entry is not None and entry.batches
            if first > verification.lowest_sequence or (
                verification.begins_transaction and first != 0 and not has_batches
            ):
                raise self._out_of_order(
                    header,
                    entry,
                    f"Out of order sequence number of producer {header.producer_id} in partition "
                    f"{self.topic_partition}: {first} (incoming seq. number), "
                    f"{verification.lowest_sequence if has_batches else 0} (expected first)",
                )
        if entry is None:
            if self._settings.refused.batches and self._error_behind(header, None) is not None:
                raise self._out_of_order(header, None, "")
            return
        place = f"of producer {header.producer_id} at offset {header.base_offset} in partition {self.topic_partition}"
        if header.producer_epoch != entry.producer_epoch:
            if first != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(
                    header,
                    entry,
                    f"Invalid sequence number for new epoch {place}: {header.producer_epoch} (request epoch), "
                    f"{first} (seq. number), {entry.producer_epoch} (current producer epoch)",
                )
            return
        last = entry.last_sequence
        in_sequence = first == last + 1 or (first == 0 and last == SEQUENCE_MAX)
        if not in_sequence and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise self._out_of_order(
                header,
                entry,
                f"Out of order sequence number {place}: {first} (incoming seq. number), {last} (current end sequence "
                "number)",
            )

    def _error_behind(self, header: BatchHeader, entry: ProducerEntry | None) -> ErrorCode | None:
        """The error of the batches before this one, if they were refused and nothing else is missing."""
        if entry is None or entry.producer_epoch == NO_PRODUCER_EPOCH:
            expected = None
        elif header.producer_epoch != entry.producer_epoch or not entry.batches:
            expected = 0
        else:
            expected = increment_sequence(entry.last_sequence, 1)
        return self._settings.refused.error_behind(self.topic_partition, header, expected)

    def _out_of_order(self, header: BatchHeader, entry: ProducerEntry | None, message: str) -> KafkaError:
        error = self._error_behind(header, entry)
        if error is None:
            return KafkaError(ErrorCode.out_of_order_sequence_number, message)
        return KafkaError(
            error,
            f"Sequence {header.base_sequence} of producer {header.producer_id} in partition {self.topic_partition} "
            f"comes behind batches that were refused with {error.name.upper()}",
        )

    def _check_marker(
        self, header: BatchHeader, entry: ProducerEntry, marker: EndMarker, transaction_version: int
    ) -> None:
        """A marker of transaction.version 2 has a new epoch. One with the same is late, and would end the transaction
        that came next; unless none is open, for then the coordinator repeats it, not having heard of the first."""
        if (
            transaction_version >= EPOCH_PER_TRANSACTION
            and header.producer_epoch == entry.producer_epoch != EPOCH_MAX
            and entry.current_txn_first_offset is not None
        ):
            raise self._stale_epoch(header, entry, "no larger than")
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"Invalid coordinator epoch for producerId {header.producer_id} at offset {header.base_offset} in "
                f"partition {self.topic_partition}: {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} "
                "(current)",
            )

    def update(self, header: BatchHeader, *, marker: EndMarker | None = None) -> CompletedTransaction | None:
        """Note a batch that is in the log now, without checks; the state then is that of the log up to its end.

        A control batch comes with its `marker`, None if compaction emptied it. Returns the transaction that the
        marker ended, whose abortion the caller writes to the transaction index.
        """
        producer_id = header.producer_id
        completed = None
        if producer_id >= 0 and not (header.is_control and marker is None):
            entry = self._producers.get(producer_id)
            if entry is None:
                entry = self._producers[producer_id] = ProducerEntry()
            if marker is not None and header.is_control:
                completed = self._end_transaction(header, entry, marker)
            else:
                entry.add_batch(header)
                if header.is_transactional and entry.current_txn_first_offset is None:
                    entry.current_txn_first_offset = header.base_offset
                    self._ongoing[header.base_offset] = producer_id
                    self._refresh_first_unstable_offset()
                if self._settings.refused.batches:
                    self._settings.refused.discard(self.topic_partition, producer_id)
            if self.verifications.entries and header.is_transactional:
                self.verifications.on_batch(header)
        self.map_end_offset = header.base_offset + header.last_offset_delta + 1
        return completed

    def _end_transaction(
        self, header: BatchHeader, entry: ProducerEntry, marker: EndMarker
    ) -> CompletedTransaction | None:
        first_offset = entry.current_txn_first_offset
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.current_txn_first_offset = None
        if first_offset is None:
            return None  # a marker without data changes nothing that a reader sees
        last_offset = header.base_offset
        others = (offset for offset, producer_id in self._ongoing.items() if producer_id != header.producer_id)
        stable = next(others, last_offset + 1)
        self._ongoing.pop(first_offset, None)
        self._completed[first_offset] = last_offset
        self._refresh_first_unstable_offset()
        return CompletedTransaction(header.producer_id, first_offset, last_offset, marker.is_abort, stable)

    # What is stable

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Start of the earliest transaction that is undecided, or decided above the high watermark. None: all stable.

        The last stable offset is the smaller of this and the high watermark.
        """
        return self._first_unstable_offset

    @property
    def first_undecided_offset(self) -> Offset | None:
        return next(iter(self._ongoing), None)

    def has_late_transaction(self, before_ms: Millis) -> bool:
        """Whether the producer of the earliest transaction that is open last wrote before then (Kafka's
        `hasLateTransaction`)."""
        producer_id = next(iter(self._ongoing.values()), None)
        entry = None if producer_id is None else self._producers.get(producer_id)
        return entry is not None and 0 < entry.last_timestamp < before_ms

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Markers below the high watermark decide their transactions for readers."""
        if self._completed:
            self._remove_completed_below(high_watermark)

    def _remove_completed_below(self, offset: Offset) -> None:
        for first in [first for first, last in self._completed.items() if last < offset]:
            del self._completed[first]
        self._refresh_first_unstable_offset()

    def _refresh_first_unstable_offset(self) -> None:
        ongoing = next(iter(self._ongoing), None)
        completed = min(self._completed, default=None)
        known = [offset for offset in (ongoing, completed) if offset is not None]
        self._first_unstable_offset = min(known, default=None)

    # Looking and expiring

    @property
    def producers(self) -> Mapping[ProducerId, ProducerEntry]:
        return self._producers

    def active_producers(self) -> Iterator[tuple[ProducerId, ProducerEntry]]:
        """What DescribeProducers answers from."""
        yield from self._producers.items()

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._completed

    def remove_expired(self, now_ms: Millis) -> None:
        """Forget producers that have not written for producer.id.expiration.ms and have no open transaction."""
        expired = [producer_id for producer_id, entry in self._producers.items() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.remove_expired(now_ms, self._settings.expiration_ms)
        self._settings.refused.remove_expired(now_ms)

    def _is_expired(self, entry: ProducerEntry, now_ms: Millis) -> bool:
        return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self._settings.expiration_ms

    # Log start, truncation, reload

    def on_log_start_offset(self, log_start_offset: Offset) -> None:
        """The log start moved up. Producers stay known although their batches are gone, so that retries still match.

        The log alone says so no more: there is to be a snapshot, at the log start too (where Kafka writes none).
        """
        self._remove_completed_below(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        without = log_start_offset if not self._producers else log_start_offset - 1
        self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else without

    def truncate_and_reload(self, log_start_offset: Offset, log_end_offset: Offset, now_ms: Millis) -> None:
        """Drop snapshots outside [start, end] and, unless the state is that of `log_end_offset`, load the latest one.

        One at the very start is kept, unlike in Kafka, so that a retry is recognised after retention took everything.
        Afterwards `map_end_offset` says up to where; the log feeds the batches from there to its end to `update`.
        """
        for offset in [offset for offset in self._snapshots if not log_start_offset <= offset <= log_end_offset]:
            self._delete_snapshot(offset)
        if self.map_end_offset == log_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load_latest_snapshot(log_start_offset, now_ms)

    def without_content(self) -> ProducerStateManager:
        """Another instance for the same log, to be loaded while this one is in use."""
        return ProducerStateManager(
            self._fs, self._directory, self.topic_partition, settings=self._settings, file_names=()
        )

    def find_snapshots(self) -> None:
        """Look which snapshots there are. Raises `OSError`."""
        self._scan(self._fs.listdir(self._directory))

    def take_over(self, other: ProducerStateManager) -> None:
        """Take over the state of `other`, which is not used afterwards: that of the truncated log. Running
        verifications are kept.
        """
        for producer_id, epoch, first, last in other.cut:
            where = self.topic_partition
            self._settings.refused.note_range(where, producer_id, epoch, first, last, ErrorCode.not_leader_or_follower)
        self._producers = other._producers
        self._ongoing = other._ongoing
        self._completed = other._completed
        self._first_unstable_offset = other._first_unstable_offset
        self._last_snapshot_offset = other._last_snapshot_offset
        self._snapshots = other._snapshots
        self.map_end_offset = other.map_end_offset

    def note_cut(self, log: ProducerStateManager, end_offset: Offset) -> None:
        """Batches of `log` above that offset are in it no more: their producers are told that it does not lead, and
        may have sent more behind them. Called in the thread that cuts the log."""
        for producer_id, entry in list(log._producers.items()):
            batches = entry.batches
            if batches and batches[-1].last_offset >= end_offset:
                first = next(batch.first_sequence for batch in batches if batch.last_offset >= end_offset)
                self.cut.append((producer_id, entry.producer_epoch, first, batches[-1].last_sequence))

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Clear everything, snapshots included; the log starts empty at `offset`."""
        self._clear()
        for snapshot in list(self._snapshots):
            self._delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._completed.clear()
        self._first_unstable_offset = None

    def _load_latest_snapshot(self, log_start_offset: Offset, now_ms: Millis) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                entries = decode_snapshot(self._snapshot_path(offset), self._fs.read_bytes(self._snapshot_path(offset)))
            except (CorruptFile, FileNotFoundError):
                self._delete_snapshot(offset)  # an older one, and more of the log, do as well
                continue
            self._producers = {
                producer_id: entry for producer_id, entry in entries if not self._is_expired(entry, now_ms)
            }
            open_transactions = (
                (entry.current_txn_first_offset, producer_id)
                for producer_id, entry in self._producers.items()
                if entry.current_txn_first_offset is not None
            )
            self._ongoing = dict(sorted(open_transactions))
            self._refresh_first_unstable_offset()
            self._last_snapshot_offset = self.map_end_offset = offset
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    def wants_recall(self, now_ms: Millis) -> bool:
        """Whether a producer whose batches came from a snapshot may still retry one of them."""
        return any(now_ms - entry.last_timestamp < RECALL_MS for entry in self._producers.values())

    def recall(self, headers: Iterable[BatchHeader]) -> None:
        """Complete what a snapshot brought back, given the headers of the batches before it, in the log's order.

        A snapshot has only the newest batch of a producer, so that after a restart Kafka refuses the retry of an
        older one as out of order. Reading the end of the log again keeps all five.
        """
        found: dict[ProducerId, ProducerEntry] = {}
        for header in headers:
            if header.producer_id in self._producers and not header.is_control:
                found.setdefault(header.producer_id, ProducerEntry()).add_batch(header)
        for producer_id, recalled in found.items():
            entry = self._producers[producer_id]
            same_epoch = recalled.producer_epoch == entry.producer_epoch
            if same_epoch and entry.batches and recalled.batches[-1][:3] == entry.batches[-1][:3]:
                entry.batches = recalled.batches

    # Snapshot files

    @property
    def snapshot_offsets(self) -> tuple[Offset, ...]:
        return tuple(self._snapshots)

    def take_snapshot(self, *, fsync: bool = True) -> str | None:
        """Write the state at `map_end_offset` unless that was done before. Returns the path if it wrote one.

        Without `fsync` the file may be lost or torn by a power failure, which its checksum then shows.
        """
        offset = self.map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self._snapshot_path(offset)
        self._fs.write_atomic(path, encode_snapshot(self._producers), fsync=fsync)
        if offset not in self._snapshots:
            insort(self._snapshots, offset)
        self._last_snapshot_offset = offset
        return path

    def remove_stray_snapshots(self, segment_base_offsets: Collection[Offset]) -> None:
        """Delete snapshots that belong to no segment, except the newest if it lies above all segments.

        That one was written by a clean shutdown. Lists the directory again.
        """
        self._scan(self._fs.listdir(self._directory))
        bases = frozenset(segment_base_offsets)
        strays = [offset for offset in self._snapshots if offset not in bases]
        if strays and strays[-1] >= max(bases, default=0):
            strays.pop()
        for offset in strays:
            self._delete_snapshot(offset)

    def mark_snapshot_for_deletion(self, offset: Offset) -> str | None:
        """Rename the snapshot at `offset` to `.deleted`, as its segment is. Returns the path to remove later."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = self._snapshot_path(offset)
        try:
            self._fs.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def _snapshot_path(self, offset: Offset) -> str:
        return posixpath.join(self._directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")

    def _delete_snapshot(self, offset: Offset) -> None:
        self._snapshots.remove(offset)
        try:
            self._fs.remove(self._snapshot_path(offset))
        except FileNotFoundError:
            pass

    def _scan(self, names: Iterable[str]) -> None:
        stems = (name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        self._snapshots = sorted(int(stem) for stem in stems if stem.isdecimal())
