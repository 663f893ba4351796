"""Loads an image from a metadata log and its newest snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.replay import ReplayError, replay
from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.metadata_records import decode_record
from ottla.protocol.records.record_batch import BatchHeader
from ottla.protocol.schemas.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.quorum.snapshot import SnapshotId

RECORDS_PER_STEP = 200
"""Records that are replayed in one piece: about a millisecond. A batch has up to 10,000."""


class MetadataLoader:
    """Replays what the log and the newest snapshot hold."""

    def __init__(self, delta: MetadataDelta, *, has_gaps: bool = False, transaction: list[Any] | None = None) -> None:
        """`has_gaps` says that records are missing since a repair: what builds on them is left out. `transaction` has
        those of one that began before."""
        self.delta = delta
        self._has_gaps = has_gaps
        self.left_out: list[str] = []
        """Why records could not be replayed."""
        self.voter_records: dict[type, Any] = {}
        self.transaction = transaction
        """Records of a transaction that has not ended yet; they count only once it has (KIP-868)."""
        self.replayed = 0
        self.offset: Offset = -1
        """The last one that was added."""
        self._epoch: LeaderEpoch = -1
        self._timestamp_ms: Millis = -1

    def add(self, header: BatchHeader, items: Sequence[Any], snapshot: SnapshotId | None) -> None:
        """Replay a batch of the log, or of `snapshot`: decoded control records, or framed metadata records.

        Raises MalformedRecord, ReplayError or UnsupportedLevel.
        """
        for _ in self.adding(header, items, snapshot):
            pass

    def adding(self, header: BatchHeader, items: Sequence[Any], snapshot: SnapshotId | None) -> Iterator[None]:
        """The same in steps. Until they are done the loader has a part of the batch: no image is to be made of it."""
        if header.is_control:
            for item in items:
                if isinstance(item, KRaftVersionRecord | VotersRecord):
                    self.voter_records[type(item)] = item
                elif isinstance(item, SnapshotHeaderRecord):
                    self._timestamp_ms = item.last_contained_log_timestamp
        else:
            if len(items) > RECORDS_PER_STEP:
                yield  # they were read in one piece
            for number, item in enumerate(items, start=1):
                record = decode_record(item)[0]
                if isinstance(record, EndTransactionRecord):
                    yield from self._end_transaction()
                else:
                    self._record(record)
                if number % RECORDS_PER_STEP == 0:
                    yield
            self.replayed += len(items)
        if snapshot is None:
            self.offset, self._epoch, self._timestamp_ms = (
                header.last_offset,
                header.leader_epoch,
                header.max_timestamp,
            )
        else:
            self.offset, self._epoch = snapshot.end_offset - 1, snapshot.epoch

    def _record(self, record: Any) -> None:
        if isinstance(record, BeginTransactionRecord):
            self.transaction = []
        elif isinstance(record, AbortTransactionRecord):
            self.transaction = None
        elif self.transaction is not None:
            self.transaction.append(record)
        else:
            self._replay(record)

    def _end_transaction(self) -> Iterator[None]:
        for number, each in enumerate(self.transaction or (), start=1):
            self._replay(each)
            if number % RECORDS_PER_STEP == 0:
                yield
        self.transaction = None

    def _replay(self, record: Any) -> None:
        try:
            replay(record, self.delta)
        except ReplayError as error:
            if not self._has_gaps:
                raise
            self.left_out.append(str(error))

    def placed(self, image: MetadataImage) -> MetadataImage:
        """An image that nothing was replayed on since, at the offset of what was added last."""
        return replace(image, offset=self.offset, epoch=self._epoch, timestamp_ms=self._timestamp_ms)

    def image(self) -> MetadataImage:
        kraft = self.voter_records.get(KRaftVersionRecord)
        if kraft is not None and kraft.kraft_version > 0:
            self.delta.features[features.KRAFT_VERSION] = kraft.kraft_version
        return self.delta.apply(self.offset, self._epoch, self._timestamp_ms)


def at_kraft_version(image: MetadataImage, level: int) -> MetadataImage:
    """An image with the one level that no metadata record sets, but a record of the quorum."""
    if image.features.get(features.KRAFT_VERSION, 0) == level:
        return image
    return replace(image, features={**image.features, features.KRAFT_VERSION: level})
