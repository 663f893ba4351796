"""A copier, which is a Spark task or a thread: it copies records of some partitions to the same partitions of the
destination, and writes in the same transactions which offsets they had and have.

This is the consume-transform-produce loop of KIP-98 with the control topic in the place of a consumer group: where to
go on is what the last committed transaction says. A transactional id is fenced when it is taken over, so that nobody
copies twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ottla import arrow
from ottla.client.assigned_fetcher import AssignedFetcher
from ottla.client.cluster import LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import Chunk, FetchLimits
from ottla.client.producer import Producer
from ottla.client.security import PLAINTEXT, Security
from ottla.client.transactions import describe_transactions
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.control_topic import (
    TRANSACTION_TIMEOUT_MS,
    ControlTopic,
    Generation,
    MirrorError,
    rows,
    transactional_id,
)
from ottla.mirror.mapping import Place, Stretch, add_stretch, paired, stretches
from ottla.model import Offset, TopicPartition
from ottla.protocol.records.record_batch import CorruptBatch, iterate_batches

logger = logging.getLogger("ottla.mirror")

FIELDS: Final = arrow.schema(["key", "value", "partition", "offset", "timestamp", "headers"], headers=True)
LIMITS: Final = FetchLimits()
LITTLE_BYTES: Final = 64 * 1024
"""An answer with less has all that there was: what comes until the next transaction is fetched in one."""
TRANSACTION_S_MAX: Final = 0.5
"""Longest transaction while more records keep arriving."""
IDLE_S: Final = 1.0
FENCED: Final = frozenset({
    ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state,
    ErrorCode.invalid_producer_id_mapping,
})  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The work of one of several parallel copiers. Picklable."""

    source: str
    """Name of the source."""
    source_bootstrap: str
    destination_bootstrap: str
    prefix: str
    """Prefix of topics at the destination."""
    generation: Generation
    slot: int
    places: tuple[Place, ...]
    """Partitions, by their names at the source."""
    every_s: float
    """Seconds from the beginning of one transaction to the next."""
    targets: Mapping[Place, Offset] | None = None
    """Where each partition is done; None: never."""
    source_security: Security = PLAINTEXT
    destination_security: Security = PLAINTEXT


def copy(work: Work, stopping: threading.Event | None = None) -> None:
    """Copy until all targets are reached, `stopping` is set, or somebody else takes over.

    Raises MirrorError where the destination has records of somebody else, KafkaError and OSError for clusters that do
    not answer.
    """
    copier = _Copier(work, stopping or threading.Event())
    try:
        copier.run()
    except KafkaError as error:
        if error.code not in FENCED:
            raise
        logger.info("slot %d of the mirror of %s was taken over: %s", work.slot, work.source, error)
    finally:
        copier.close()


class _Copier:
    def __init__(self, work: Work, stopping: threading.Event) -> None:
        self._work = work
        self._stopping = stopping
        self._source = Cluster(
            ClientConfig(parse_addresses(work.source_bootstrap), "ottla-mirror", security=work.source_security)
        )
        self._control = ControlTopic(work.destination_bootstrap, work.source, work.destination_security)
        self._destination = self._control.client
        self._producer = Producer(
            self._destination,
            transactional_id=transactional_id(work.source, work.slot),
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            creates_topics=False,  # a deleted mirror would come back without its older records
        )
        self._producer.on_acknowledged = self._acknowledged
        self._names = {TopicPartition(*place): f"{work.prefix}{place[0]}" for place in work.places}
        self._there = {TopicPartition(name, at.partition): at for at, name in self._names.items()}
        self._read: dict[TopicPartition, list[Stretch]] = {}
        """Offsets that records of the open transaction had, by partition of the source."""
        self._written: dict[TopicPartition, list[Stretch]] = {}
        """Offsets at source and destination of acknowledged records."""
        self._ends: dict[TopicPartition, Offset] = {}
        """Where a partition of the destination ends behind what was committed last."""
        self._noted: dict[TopicPartition, Offset] = {}
        """Offset up to which the source was copied, according to the control topic."""

    def close(self) -> None:
        self._producer.close()
        self._source.close()
        self._control.close()

    def run(self) -> None:
        self._producer.start()  # whoever had this slot is fenced now, and has nothing open
        self._control.load(whole=True)
        if self._control.generation != self._work.generation:
            return
        known = self._control.offsets
        positions = {at: known[at.topic, at.partition].source_end() for at in self._names}
        self._noted = dict(positions)
        self._find_ends()
        fetcher = AssignedFetcher(self._source, positions, read_committed=True, limits=LIMITS)
        self._leave_out_done(fetcher)
        try:
            while fetcher.positions and not self._stopping.is_set():
                self._transaction(fetcher)
        except BaseException:
            self._give_up()
            raise
        finally:
            fetcher.close()

    def _give_up(self) -> None:
        """Readers of committed records need not wait for a timeout."""
        try:
            self._producer.abort()
        except (KafkaError, OSError) as error:
            logger.info("a transaction is left to time out: %s", error)

    # -- A transaction

    def _transaction(self, fetcher: AssignedFetcher) -> None:
        began = time.monotonic()
        chunks = self._receive(fetcher, IDLE_S)
        if not chunks:
            self._idle(fetcher)
            return
        self._producer.begin([TopicPartition(self._control.topic, 0)])
        while chunks:
            is_all = sum(len(chunk.records) for _, chunk in chunks) < LITTLE_BYTES
            if not is_all:
                fetcher.send()
            for at, chunk in chunks:
                self._produce(at, chunk)
            if is_all or time.monotonic() - began > TRANSACTION_S_MAX or self._stopping.is_set():
                break
            chunks = self._receive(fetcher, self._work.every_s)
        self._commit(fetcher)
        self._leave_out_done(fetcher)
        self._stopping.wait(max(0.0, began + self._work.every_s - time.monotonic()))

    def _receive(self, fetcher: AssignedFetcher, timeout_s: float) -> list[tuple[TopicPartition, Chunk]]:
        fetcher.send()
        chunks = fetcher.receive(timeout_s)
        self._skip_what_is_gone(fetcher)
        return chunks

    def _produce(self, at: TopicPartition, chunk: Chunk) -> None:
        topic = self._names[at]
        self._producer.compress(topic, _codec(chunk.records))
        read = self._read.setdefault(at, [])
        for batch in arrow.of_chunk(chunk, at.topic, at.partition, FIELDS):
            for stretch in _stretches(batch):
                add_stretch(read, stretch)
            self._producer.send(topic, batch)

    def _acknowledged(self, there: TopicPartition, offset: Offset, count: int) -> None:
        at = self._there.get(there)
        if at is None:
            return  # the control topic
        if offset < 0:
            # It had them already and does not say where; the next generation copies them again.
            raise KafkaError(ErrorCode.duplicate_sequence_number, str(there))
        written = self._written.setdefault(at, [])
        if not written and offset != self._ends[there]:
            self._refuse_others(there, self._ends[there], offset)
        add_stretch(written, Stretch(offset, count))

    def _commit(self, fetcher: AssignedFetcher) -> None:
        self._producer.flush()
        entries: list[tuple[list[Any], Any]] = []
        for at, read in self._read.items():
            if read:
                runs = paired(read, self._written.get(at, ()))
                key = ["runs", at.topic, at.partition, read[0].start]
                entries.append((key, {"runs": runs, "through": fetcher.positions[at]}))
        self._note(entries, fetcher)
        for at, written in self._written.items():
            # Behind them is the marker of the transaction.
            self._ends[TopicPartition(self._names[at], at.partition)] = written[-1].start + written[-1].records + 1
        self._read.clear()
        self._written.clear()

    def _note(self, entries: list[tuple[list[Any], Any]], fetcher: AssignedFetcher) -> None:
        """Write the entries in the open transaction, and commit it."""
        named = {(key[1], key[2]) for key, _ in entries}
        moved = {at: end for at, end in fetcher.positions.items() if end > self._noted[at]}
        entries += [(["through", *at], end) for at, end in moved.items() if at not in named]
        if entries:
            self._producer.send(self._control.topic, rows(entries))
        self._producer.commit()
        self._noted |= moved

    def _idle(self, fetcher: AssignedFetcher) -> None:
        """Say how far the source was looked at, where only markers were and what was aborted; and see whether somebody
        has taken over, which otherwise a transaction would show."""
        targets = self._work.targets
        if targets is not None:
            for at, end in fetcher.empty.items():
                if at in fetcher.positions and end >= targets[at.topic, at.partition]:
                    fetcher.positions[at] = max(fetcher.positions[at], targets[at.topic, at.partition])
        if any(end > self._noted[at] for at, end in fetcher.positions.items()):
            self._producer.begin()
            self._note([], fetcher)
        else:
            name = transactional_id(self._work.source, self._work.slot)
            known = describe_transactions(self._destination, [name]).get(name)
            if known is None or (known.producer_id, known.epoch) != (self._producer.producer_id, self._producer.epoch):
                raise KafkaError(ErrorCode.producer_fenced, f"transactional id {name}")
        self._leave_out_done(fetcher)

    def _leave_out_done(self, fetcher: AssignedFetcher) -> None:
        targets = self._work.targets
        if targets is not None:
            for at, end in list(fetcher.positions.items()):
                if end >= targets[at.topic, at.partition]:
                    del fetcher.positions[at]

    # -- What should not be

    def _skip_what_is_gone(self, fetcher: AssignedFetcher) -> None:
        """Retention and DeleteRecords at the source go before the mirror, as before any consumer."""
        for at, lost in list(fetcher.out_of_range.items()):
            if lost.offset > lost.end:
                raise MirrorError(
                    f"{at} at {self._work.source} ends at {lost.end}, but was copied up to {lost.offset}: it was "
                    f"recreated, or has lost records"
                )
            logger.warning(
                "%s at %s now begins at %d: offsets from %d on were deleted before they were copied",
                at,
                self._work.source,
                lost.log_start,
                lost.offset,
            )
            fetcher.positions[at] = lost.log_start
            del fetcher.out_of_range[at]

    def _find_ends(self) -> None:
        """Raises MirrorError where there are records that were not copied, or fewer."""
        self._ends = {
            at: known.offset for at, known in self._destination.offsets(dict.fromkeys(self._there, LATEST)).items()
        }
        for there, end in self._ends.items():
            at = self._there[there]
            mapping = self._control.offsets[at.topic, at.partition]
            copied = mapping.end()
            if end < copied:
                raise MirrorError(
                    f"{there} ends at {end}, but was copied up to {copied}: it was recreated or truncated"
                )
            marker = int(bool(mapping.runs) and mapping.runs.destination_end() == copied)
            self._refuse_others(there, copied + marker, end)

    def _refuse_others(self, there: TopicPartition, start: Offset, stop: Offset) -> None:
        """Markers and what was aborted may be there, but no record that readers see. Raises MirrorError."""
        if start >= stop:
            return
        stable = self._destination.offsets({there: LATEST}, read_committed=True)[there].offset
        found = arrow.batches(
            self._destination, *there, start, min(stop, stable), arrow.schema(["offset"]), read_committed=True
        )
        for batch in found:
            if batch.num_rows:
                raise MirrorError(
                    f"{there} has records of another producer from offset {batch.column(0)[0].as_py()} on: it is no "
                    f"longer a mirror of {self._work.source}"
                )


def _codec(records: memoryview) -> int:
    """The codec of most records: producers leave single ones uncompressed. None for messages older than batches."""
    found: Counter[int] = Counter()
    with suppress(CorruptBatch):
        for _, header in iterate_batches(records):
            found[header.codec] += header.count
    return max(found, key=lambda codec: (found[codec], codec), default=0)


def _stretches(batch: pa.RecordBatch) -> Iterator[Stretch]:
    offsets = batch.column("offset")
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if last - first + 1 == len(offsets):
        yield Stretch(first, len(offsets))
    else:
        yield from stretches(offsets.to_pylist())
