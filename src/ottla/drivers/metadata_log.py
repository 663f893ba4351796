"""The metadata log on disk: `__cluster_metadata-0` with its segments, snapshots and `quorum-state`.

Everything here blocks; the controller's driver calls it at start, and from the disk threads where it waits for fsync.
The log is an ordinary log of the storage layer, written as a follower writes: offsets and epochs are given by the
quorum.
"""

from __future__ import annotations

import logging
import posixpath
import random as random_module
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.drivers.metadata_check import check_metadata_log
from ottla.errors import KafkaError, OttlaError
from ottla.filesystem import File, FileSystem
from ottla.logs import fields
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, Millis, Offset, TopicPartition
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.quorum_records import QuorumStateFile, decode_quorum_state, encode_quorum_state
from ottla.protocol.record_batch import BatchHeader
from ottla.quorum.snapshot import SnapshotId, parse_snapshot_name, read_batches, read_snapshot
from ottla.storage.checkpoints import CorruptFile
from ottla.storage.config import LogConfig
from ottla.storage.damage import Damage, read_known_gaps
from ottla.storage.fsynced_end import FSYNCED_END_FILE, encode_fsynced_end
from ottla.storage.log import Log
from ottla.storage.log_loader import load_log
from ottla.storage.partition_metadata import read_partition_metadata, write_partition_metadata

_LOG = logging.getLogger("ottla.controller")

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
QUORUM_STATE_FILE = "quorum-state"
READ_BYTES_MAX = 8 << 20
"""How much of the log is read at once while loading; also the largest batch that Kafka writes into it."""


class LoadedBatch(NamedTuple):
    """A batch of the log or of a snapshot with its decoded control records or the values of its data records."""

    header: BatchHeader
    items: list[Any]
    snapshot: SnapshotId | None
    """The snapshot it comes from; None for the log."""


class MetadataLog:
    """Owner of the files under `<directory>/__cluster_metadata-0`."""

    def __init__(self, fs: FileSystem, log_dir: str, config: LogConfig, random: random_module.Random) -> None:
        self._fs = fs
        self._config = config
        self._random = random
        self.directory = posixpath.join(log_dir, str(METADATA_PARTITION))
        self.snapshots: list[SnapshotId] = []
        """Whole snapshots on disk, oldest first."""
        self._log: Log | None = None
        self._fsynced: File | None = None

    @property
    def log(self) -> Log:
        """The open log. Raises RuntimeError before `open` and after `close`."""
        if self._log is None:
            raise RuntimeError("the metadata log is not open")
        return self._log

    def open(self, now: Millis) -> None:
        """Open or create the log, drop unfinished snapshots, and recover what a crash left half-written.

        Every append is fsynced before it is published, so that recovery looks only at what follows the newest
        snapshot.
        """
        fs = self._fs
        fs.makedirs(self.directory)
        fs.fsync_dir(posixpath.dirname(self.directory) or ".")
        for name in fs.listdir(self.directory):
            snapshot = parse_snapshot_name(name)
            if snapshot is not None:
                self.snapshots.append(snapshot)
            elif name.endswith((".checkpoint.part", ".checkpoint.tmp", ".checkpoint.deleted")):
                fs.remove(posixpath.join(self.directory, name))
        self.snapshots.sort()
        newest = self.snapshots[-1] if self.snapshots else None
        snapshot_end = 0 if newest is None else newest.end_offset
        fsynced_end = check_metadata_log(fs, self.directory, snapshot_end)
        self._write_topic_id()
        has_log = any(name.endswith(".log") for name in fs.listdir(self.directory))
        log = load_log(
            fs,
            self.directory,
            METADATA_PARTITION,
            METADATA_TOPIC_ID,
            self._config,
            log_start_offset=0,
            recovery_point=fsynced_end if has_log else 0,
            clean_shutdown=False,
            now_ms=now,
            random=self._random,
        )
        self._log = log
        if log.truncated_bytes:
            _LOG.warning(
                "unclean shutdown: the end of the metadata log was truncated",
                extra=fields(log=self.directory, truncated_bytes=log.truncated_bytes),
            )
        if newest is not None and newest.end_offset > log.log_end_offset:
            # The snapshot came from elsewhere, or the log behind it was lost: it holds all that the log had.
            log.truncate_fully_and_start_at(newest.end_offset)

    @property
    def has_gaps(self) -> bool:
        """Whether a repair has cut records out."""
        try:
            return bool(read_known_gaps(self._fs, self.directory))
        except CorruptFile:
            return True

    def note_fsynced(self, offset: Offset) -> None:
        """Remember that everything below `offset` is on disk."""
        try:
            if self._fsynced is None:
                self._fsynced = self._fs.open(posixpath.join(self.directory, FSYNCED_END_FILE), create=True)
            self._fsynced.pwrite((encode_fsynced_end(offset),), 0)
        except OSError as error:  # the next start knows less, no more
            _LOG.warning("it is not noted how far the metadata log is fsynced", extra=fields(error=str(error)))

    def _write_topic_id(self) -> None:
        try:
            found = read_partition_metadata(self._fs, self.directory)
        except CorruptFile as error:
            _LOG.warning("damaged partition.metadata rewritten", extra=fields(error=str(error)))
            found = None
        if found is None:
            write_partition_metadata(self._fs, self.directory, METADATA_TOPIC_ID)

    def read_quorum_state(self) -> QuorumStateFile | None:
        """None on first start. Raises OttlaError."""
        path = posixpath.join(self.directory, QUORUM_STATE_FILE)
        try:
            return decode_quorum_state(self._fs.read_bytes(path))
        except FileNotFoundError:
            return None
        except MalformedRecord as error:
            raise OttlaError(
                f"{path} is damaged ({error}): if this node is its only controller, delete the file; it is then "
                "recreated from the log"
            ) from error

    def write_quorum_state(self, state: QuorumStateFile) -> None:
        """Returns when the state survives power loss."""
        self._fs.write_atomic(posixpath.join(self.directory, QUORUM_STATE_FILE), encode_quorum_state(state))

    def load(self) -> Iterator[LoadedBatch]:
        """Everything to replay: the newest snapshot, then the log behind it. Raises OttlaError."""
        try:
            yield from self._load()
        except MalformedRecord as error:
            raise OttlaError(f"the metadata in {self.directory} cannot be read: {error}") from error

    def _load(self) -> Iterator[LoadedBatch]:
        position = self.log.log_start_offset
        if self.snapshots:
            newest = self.snapshots[-1]
            data = self._fs.read_bytes(posixpath.join(self.directory, newest.filename))
            try:
                for header, items in read_snapshot(data):
                    yield LoadedBatch(header, items, newest)
            except (MalformedRecord, KafkaError) as error:
                path = posixpath.join(self.directory, newest.filename)
                behind = (
                    f"{len(self.snapshots) - 1} older snapshots and the log from offset {self.log.log_start_offset}"
                )
                damage = Damage(self.directory, path, None, f"it is no whole snapshot ({error})", f"there are {behind}")
                raise OttlaError(f"a snapshot of the metadata is damaged: {damage}") from error
            position = max(newest.end_offset, position)
        end = self.log.log_end_offset
        while position < end:
            found = self.log.read(position, READ_BYTES_MAX, up_to=end)
            if found is None:
                break
            for header, items in read_batches(found.read()):
                if header.last_offset < position:
                    continue
                yield LoadedBatch(header, items, None)
                position = header.next_offset

    def append(self, batch: bytearray, now: Millis) -> None:
        """Append one batch whose offsets and epoch are set. Raises KafkaError."""
        self.log.append_as_follower(batch, now_ms=now)

    def store_snapshot(self, snapshot: SnapshotId, batches: Iterator[bytearray]) -> None:
        """Write a snapshot, fsynced and whole under its name or not at all. May run in a disk thread."""
        self._fs.write_atomic(posixpath.join(self.directory, snapshot.filename), b"".join(batches))

    def adopt_snapshot(self, snapshot: SnapshotId) -> None:
        """Count a stored snapshot among those to load and to clean up."""
        if snapshot not in self.snapshots:
            self.snapshots.append(snapshot)
            self.snapshots.sort()

    def clean(self, now: Millis, retention_ms: Millis, retention_bytes: int) -> int:
        """Delete the oldest snapshots, and the log that only they need, by age and by size; the newest always stays.

        Returns how many snapshots went (`KafkaMetadataLog.maybeClean`).
        """
        dropped = 0
        while len(self.snapshots) > 1:
            oldest, following = self.snapshots[0], self.snapshots[1]
            path = posixpath.join(self.directory, oldest.filename)
            too_old = retention_ms >= 0 and now - self._fs.mtime_ms(path) > retention_ms
            too_large = retention_bytes >= 0 and self._size_bytes() > retention_bytes
            if not (too_old or too_large):
                break
            # The next snapshot must cover the log's start before the oldest one goes.
            if following.end_offset > self.log.log_start_offset:
                self.log.delete_records(following.end_offset)
                self.log.delete_old_segments(now)
            self._fs.remove(path)
            self.snapshots.pop(0)
            dropped += 1
        return dropped

    def _size_bytes(self) -> int:
        fs = self._fs
        return self.log.size_bytes + sum(
            fs.size(posixpath.join(self.directory, snapshot.filename)) for snapshot in self.snapshots
        )

    def close(self) -> None:
        if self._fsynced is not None:
            self._fsynced.close()
            self._fsynced = None
        if self._log is not None:
            self._log.close()
            self._log = None
