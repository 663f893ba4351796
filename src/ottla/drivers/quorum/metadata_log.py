"""The metadata log on disk: `__cluster_metadata-0` with its segments, snapshots and `quorum-state`.

Everything here blocks; the controller's driver calls it at start, and from the disk threads where it waits for fsync.
The log is an ordinary log of the storage layer, written as a follower writes: offsets and epochs are given by the
quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import posixpath
import random as random_module
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.drivers.quorum.metadata_check import check_metadata_log, refusal
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.filesystem import File, FileSystem
from ottla.logs import fields
from ottla.model import METADATA_TOPIC, METADATA_TOPIC_ID, Buffer, LeaderEpoch, Millis, Offset, TopicPartition
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.quorum_records import QuorumStateFile, decode_quorum_state, encode_quorum_state
from ottla.protocol.records.record_batch import BatchHeader, iterate_batches
from ottla.protocol.schemas.records import LeaderChangeMessage
from ottla.quorum.snapshot import SnapshotId, parse_snapshot_name, read_batches, read_snapshot_pieces, takes_place
from ottla.quorum.voters import Configuration, Configurations, VoterSet
from ottla.storage.checkpoints.fsynced_end import FSYNCED_END_FILE, encode_fsynced_end, read_fsynced_end
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.checkpoints.partition_metadata import read_partition_metadata, write_partition_metadata
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.log_health import is_passing
from ottla.storage.log.log_loader import load_log
from ottla.storage.log.truncation import RETRY_SECONDS, Truncation, cut_files
from ottla.storage.recovery.damage import Damage, DamagedLog, read_known_gaps

_LOG = logging.getLogger("ottla.controller")

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
QUORUM_STATE_FILE = "quorum-state"
READ_BYTES_MAX = 8 << 20
"""How much of the log is read at once while loading; also the largest batch that Kafka writes into it."""


SNAPSHOT_READ_BYTES = 1 << 20
"""How much of a snapshot is read at once: its batches, but for those of other writers, are smaller."""


class LoadedBatch(NamedTuple):
    """A batch of the log or of a snapshot with its decoded control records or the values of its data records."""

    header: BatchHeader
    items: list[Any]
    snapshot: SnapshotId | None
    """The snapshot it comes from; None for the log."""


def control_items(data: Buffer) -> Iterator[tuple[Offset, Any]]:
    """The control records in batches of the log, with their offsets. Raises MalformedRecord."""
    view = memoryview(data)
    for start, header in iterate_batches(view):
        if header.is_control:
            for _, items in read_batches(view[start : start + header.size]):
                yield from enumerate(items, header.base_offset)


class MetadataLog:
    """Owner of the files under `<directory>/__cluster_metadata-0`."""

    def __init__(
        self, fs: FileSystem, log_dir: str, config: LogConfig, random: random_module.Random, *, is_copy: bool = False
    ) -> None:
        """`is_copy`: nobody counts on this one, so that what is lost or damaged may be taken again from others."""
        self._fs = fs
        self._is_copy = is_copy
        self._config = config
        self._random = random
        self.directory = posixpath.join(log_dir, str(METADATA_PARTITION))
        self.snapshots: list[SnapshotId] = []
        """Whole snapshots on disk, oldest first."""
        self.bytes_since_snapshot = 0
        """How much the log has that no snapshot has."""
        self.is_foreign = False
        """Whether that has a LeaderChangeMessage in a version that Kafka does not read and an earlier Ottla wrote; it
        goes on behind a snapshot."""
        self._log: Log | None = None
        self._fsynced: File | None = None
        self._noted: Offset = 0
        """The content of `fsynced-end`."""
        self._is_noted = True
        """Whether the last attempt to write it succeeded."""

    @property
    def log(self) -> Log:
        """The open log. Raises RuntimeError before `open` and after `close`."""
        if self._log is None:
            raise RuntimeError("the metadata log is not open")
        return self._log

    def open(self, now: Millis) -> None:
        """Open or create the log, drop unfinished snapshots, and recover what a crash left half-written.

        Every append is fsynced before it is published, so that recovery looks only at what follows the newest
        snapshot. All of the log is on disk when this returns. Raises KafkaError or OSError when the disk fails.
        """
        fs = self._fs
        fs.makedirs(self.directory, private=True)  # users' salted passwords and dynamic secrets are in it
        fs.fsync_dir(posixpath.dirname(self.directory) or ".")
        for name in fs.listdir(self.directory):
            snapshot = parse_snapshot_name(name)
            if snapshot is not None:
                self.snapshots.append(snapshot)
            elif name.endswith((".checkpoint.part", ".checkpoint.tmp", ".checkpoint.deleted")):
                fs.remove(posixpath.join(self.directory, name))
        self.snapshots.sort()
        try:
            log = self._load(now)
        except OttlaError as error:
            if self._is_copy:
                _LOG.warning("the metadata log is fetched again from the controllers", extra=fields(error=str(error)))
                self._discard()
                log = self._load(now, had_records=False)
            elif self._drop_what_the_snapshot_has():
                log = self._load(now)
            else:
                raise
        self._log = log
        if log.recovery.truncated_bytes:
            _LOG.warning(
                "unclean shutdown: the end of the metadata log was truncated",
                extra=fields(log=self.directory, truncated_bytes=log.recovery.truncated_bytes),
            )
        self._noted = read_fsynced_end(fs, self.directory)
        newest = self.newest_snapshot
        if newest is not None and takes_place(newest, log.log_end_offset, self._epoch_before(newest.end_offset)):
            # It came from a leader, and a crash came before the log was dropped for it; or the log was lost.
            self._note_before_cut(newest.end_offset)
            log.truncate_fully_and_start_at(newest.end_offset)
        if newest is not None and self._has_gap(log.log_start_offset, newest.end_offset):
            log.advance_log_start(newest.end_offset)  # who follows gets the snapshot, and no log with a hole
        if log.durable_offset < log.log_end_offset:
            log.flush()  # what a killed process had only written: the leader takes all that a voter has for fsynced

    def _load(self, now: Millis, *, had_records: bool = True) -> Log:
        """Without `had_records` what was here is given up. Raises OttlaError for what was fsynced and is damaged."""
        fs, newest = self._fs, self.newest_snapshot
        snapshot_end = 0 if newest is None else newest.end_offset
        try:
            fsynced_end = check_metadata_log(fs, self.directory, snapshot_end) if had_records else 0
            self._write_topic_id()
            has_log = any(name.endswith(".log") for name in fs.listdir(self.directory))
            return load_log(
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
        except DamagedLog as error:
            raise refusal(error.damage) from error

    def _drop_what_the_snapshot_has(self) -> bool:
        """Let a damaged log begin behind the damage, where the newest snapshot has all that was before; what goes is
        kept in side files. Returns whether there was any. Raises OSError."""
        newest = self.newest_snapshot
        if newest is None:
            return False
        from ottla.storage.recovery.repair import apply, plan_covered  # no other start needs it

        plan = plan_covered(self._fs, self.directory, newest.end_offset)
        if plan is None:
            return False
        found = fields(log=self.directory, steps="; ".join(plan.steps()))
        _LOG.warning("the metadata log was damaged, but only where its newest snapshot covers it", extra=found)
        apply(self._fs, plan)
        return True

    def _epoch_before(self, offset: Offset) -> LeaderEpoch:
        """Epoch of the record before `offset`, according to its batch; -1 if none can be read."""
        log = self.log
        if not log.log_start_offset < offset <= log.log_end_offset:
            return -1
        try:
            found = log.read(offset - 1, 1, up_to=log.log_end_offset)
        except KafkaError:  # what is to be read later says so then
            return -1
        return -1 if found is None else next((header.leader_epoch for _, header in iterate_batches(found.read())), -1)

    @property
    def has_gaps(self) -> bool:
        """Whether a repair has cut records out."""
        return self._has_gap(0, None)

    def _has_gap(self, first: Offset, end: Offset | None) -> bool:
        """Whether one begins in [first, end)."""
        try:
            gaps = read_known_gaps(self._fs, self.directory)
        except CorruptFile:
            return True
        return any(first <= begin and (end is None or begin < end) for begin, _ in gaps)

    def note_fsynced(self, offset: Offset) -> None:
        """Remember that everything below `offset` is on disk."""
        try:
            self._note(offset)
            self._is_noted = True
        except OSError as error:  # the next start knows less, no more
            if self._is_noted:
                _LOG.warning(
                    "the fsynced end of the metadata log could not be recorded", extra=fields(error=str(error))
                )
            self._is_noted = False

    def _note(self, offset: Offset) -> File:
        if self._fsynced is None:
            self._fsynced = self._fs.open(posixpath.join(self.directory, FSYNCED_END_FILE), create=True)
        self._fsynced.pwrite((encode_fsynced_end(offset),), 0)
        self._noted = offset
        return self._fsynced

    def _note_before_cut(self, end: Offset) -> None:
        """What was fsynced is to be cut from `end` on: unless that is known on disk first, it is missed after a crash.
        Blocks. Raises OSError."""
        if end < self._noted:
            file = self._note(end)
            try:
                file.fsync()
            except OSError as error:  # the second attempt would find it noted: such an error never passes
                raise OSError(errno.EIO, f"fsync failed: {error}", file.path) from None

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

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    def snapshot_path(self, snapshot: SnapshotId) -> str:
        return posixpath.join(self.directory, snapshot.filename)

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """(a part of a snapshot from `position` on, the size of all of it). Raises KafkaError POSITION_OUT_OF_RANGE,
        FileNotFoundError."""
        with contextlib.closing(self._fs.open(self.snapshot_path(snapshot), read_only=True)) as file:
            size = file.size()
            if not 0 <= position < size:
                raise KafkaError(ErrorCode.position_out_of_range)
            return file.pread(min(max_bytes, size - position), position), size

    def load_snapshot(self) -> Iterator[LoadedBatch]:
        """The batches of the newest snapshot, none without one. Raises OttlaError."""
        newest = self.newest_snapshot
        if newest is None:
            return
        path = self.snapshot_path(newest)
        try:
            for header, items in read_snapshot_pieces(self.pieces(path)):
                yield LoadedBatch(header, items, newest)
        except (MalformedRecord, KafkaError) as error:
            behind = f"{len(self.snapshots) - 1} older snapshots and the log from offset {self.log.log_start_offset}"
            damage = Damage(self.directory, path, None, f"it is no whole snapshot ({error})", f"there are {behind}")
            raise OttlaError(f"a snapshot of the metadata is damaged: {damage}") from error

    def pieces(self, path: str) -> Iterator[memoryview]:
        """A file's whole batches, some at a time."""
        with contextlib.closing(self._fs.open(path, read_only=True)) as file:
            size, position, length = file.size(), 0, SNAPSHOT_READ_BYTES
            while position < size:
                piece = memoryview(file.pread(length, position))
                whole = 0
                for start, header in iterate_batches(piece):
                    whole = start + header.size
                if not whole and position + len(piece) < size:
                    length *= 2  # a batch that is larger
                    continue
                yield piece[: whole or len(piece)]
                position += whole or len(piece)
                length = SNAPSHOT_READ_BYTES

    def load_log(self, position: Offset, end: Offset) -> Iterator[LoadedBatch]:
        """The batches of the log from `position` up to `end`. Raises OttlaError."""
        try:
            yield from self._load_log(position, end)
        except MalformedRecord as error:
            raise OttlaError(f"the metadata in {self.directory} cannot be read: {error}") from error

    def _discard(self) -> None:
        self.snapshots.clear()
        for name in self._fs.listdir(self.directory):
            self._fs.remove(posixpath.join(self.directory, name))
        self._fs.fsync_dir(self.directory)

    def control_records(self) -> Iterator[tuple[Offset, Any]]:
        """The control records of the newest snapshot and of the whole log behind it, committed or not, with their
        offsets: who votes is what the log says last. Raises OttlaError. The sizes of the log's batches are added up on
        the way."""
        try:
            yield from self._control_records()
        except MalformedRecord as error:
            raise OttlaError(f"the metadata in {self.directory} cannot be read: {error}") from error

    def _control_records(self) -> Iterator[tuple[Offset, Any]]:
        newest = self.newest_snapshot
        yield from self._snapshot_head()
        position = max(self.log.log_start_offset, 0 if newest is None else newest.end_offset)
        end = self.log.log_end_offset
        self.bytes_since_snapshot = 0
        while position < end:
            found = self.log.read(position, READ_BYTES_MAX, up_to=end)
            if found is None:
                break
            data = memoryview(found.read())
            for start, header in iterate_batches(data):
                if header.last_offset < position:
                    continue
                if header.is_control:
                    for offset, record in control_items(data[start : start + header.size]):
                        if isinstance(record, LeaderChangeMessage) and record.version > 0:
                            self.is_foreign = True
                        yield offset, record
                self.bytes_since_snapshot += header.size
                position = header.next_offset

    def _snapshot_head(self) -> Iterator[tuple[Offset, Any]]:
        """The control records that the newest snapshot begins with; they count from its last offset on."""
        for batch in self.load_snapshot():
            if not batch.header.is_control:
                break
            assert batch.snapshot is not None
            for item in batch.items:
                yield batch.snapshot.end_offset - 1, item

    def newest_configuration(self) -> Configuration | None:
        """The voters that the newest snapshot names; None if it names none. Raises OttlaError."""
        found = Configurations.of(VoterSet(), self._snapshot_head()).newest
        return found if found.kraft_version else None

    def _load_log(self, position: Offset, end: Offset) -> Iterator[LoadedBatch]:
        while position < end:
            found = self.log.read(position, READ_BYTES_MAX, up_to=end)
            if found is None:
                break
            for header, items in read_batches(found.read()):
                if header.last_offset < position:
                    continue
                yield LoadedBatch(header, items, None)
                position = header.next_offset

    def append(self, batch: Buffer, now: Millis) -> None:
        """Append batches whose offsets and epoch are set. Raises KafkaError."""
        self.log.append_as_follower(batch, now_ms=now)
        self.bytes_since_snapshot += len(batch)

    def batch_start(self, offset: Offset) -> Offset:
        """`offset`, or the first offset of the batch that it is inside, where a cut at `offset` ends the log. Raises
        KafkaError."""
        log = self.log
        is_inside = log.log_start_offset <= offset < log.log_end_offset
        found = log.read(offset, 1, up_to=log.log_end_offset) if is_inside else None
        return offset if found is None else min(offset, found.first_offset)

    async def truncate(self, end: Offset | None, start_at: Offset, gives_up: Callable[[], bool]) -> None:
        """Drop the records from `end` on, or (None) all, when the log starts and ends at `start_at`. The log refuses
        everything (NOT_LEADER_OR_FOLLOWER) until this returns, on a full disk until there is room. `gives_up`: whether
        the node stops. Raises KafkaError."""
        truncator, left = self.log.truncator, start_at if end is None else end
        cut = await self._begin_cut(left, starts_over=end is None, gives_up=gives_up)
        await cut.fsyncs_ended()

        async def attempt() -> tuple[KafkaError, ...]:
            await self._fs.run(lambda: cut.work(self._note_before_cut))
            return ()

        await cut_files((cut,), attempt, gives_up)
        truncator.end()

    async def _begin_cut(self, left: Offset, *, starts_over: bool, gives_up: Callable[[], bool]) -> Truncation:
        """Raises KafkaError."""
        while True:
            try:
                return self.log.truncator.begin(left, starts_over=starts_over)
            except KafkaError as error:  # entries of an index find no room: nothing has begun
                if gives_up() or not self.log.is_open or not is_passing(error):
                    raise
            await asyncio.sleep(RETRY_SECONDS)

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


class SnapshotPart:
    """A snapshot that comes from the leader piece by piece: a file that no start takes for one until it is whole.

    All methods block, but `abandon`, which may be called at any time.
    """

    def __init__(self, fs: FileSystem, log: MetadataLog, snapshot: SnapshotId) -> None:
        self._fs = fs
        self._log = log
        self.snapshot = snapshot
        self._path = log.snapshot_path(snapshot) + ".part"
        if fs.exists(self._path):
            fs.remove(self._path)
        self._file: File | None = fs.open(self._path, create=True)
        self.size = 0

    def write(self, piece: Buffer) -> None:
        assert self._file is not None
        self._file.pwrite((piece,), self.size)
        self.size += len(piece)

    def finish(self) -> None:
        """Fsync the file under its name. Raises OttlaError for bytes that are no whole snapshot; OSError."""
        assert self._file is not None
        self._file.fsync()
        self._file.close()
        self._file = None
        try:
            for _ in read_snapshot_pieces(self._log.pieces(self._path)):
                pass
        except (MalformedRecord, KafkaError) as error:
            raise OttlaError(f"the leader sent a snapshot that is damaged ({error})") from error
        self._fs.rename(self._path, self._log.snapshot_path(self.snapshot))
        self._fs.fsync_dir(self._log.directory)

    def abandon(self) -> None:
        """Discard what has been received."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(OSError):  # the next start removes it
                self._fs.remove(self._path)
