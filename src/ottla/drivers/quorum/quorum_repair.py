"""What `ottla quorum repair` does: mends the epochs of a stopped node's metadata log, after which elections go on.

Two things can be wrong (`ottla.quorum.epochs`). A `quorum-state` that is further ahead of its log than elections can
have brought it was damaged, or its node believed a wrong message (an earlier Ottla did): its epoch becomes the first
one in which this replica cannot have voted. And a log that has one of the last epochs leaves none for the next
elections: these epochs are renumbered, on every node in the same way.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ottla.drivers.quorum.metadata_log import QUORUM_STATE_FILE
from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.model import ZERO_UUID, LeaderEpoch
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.quorum_records import QuorumStateFile, decode_quorum_state, encode_quorum_state
from ottla.quorum.epochs import EPOCHS_AHEAD_MAX, is_among_the_last, renumbered, was_renumbered
from ottla.quorum.snapshot import SnapshotId, parse_snapshot_name
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile, encode_checkpoint
from ottla.storage.log.leader_epochs import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochs

_HEAD = struct.Struct(">qii")
"""How a batch begins: base offset, the length of what follows that, and the epoch, which no checksum covers."""
_EPOCH = struct.Struct(">i")
_LENGTH_END = 12


class Step(NamedTuple):
    """One change to one file."""

    about: str
    do: Callable[[], object]
    """Blocks. May be done again. Raises OSError."""


def plan(fs: FileSystem, directory: str) -> list[Step]:
    """What there is to mend in the directory of a node's metadata log, in the order in which it has to be done; after a
    crash the rest is planned again. Raises OttlaError for what this does not mend, OSError."""
    names = sorted(fs.listdir(directory))
    logs = [posixpath.join(directory, name) for name in names if name.endswith(".log")]
    snapshots = [each for each in map(parse_snapshot_name, names) if each is not None]
    found = {epoch for path in logs for _, epoch in _epochs(fs, path)} | {each.epoch for each in snapshots}
    entries, state = _checkpoint(fs, directory), _state(fs, directory)
    found.update(each.epoch for each in entries)
    last, stored = max(found, default=0), -1 if state is None else state.leader_epoch
    if is_among_the_last(last) or (is_among_the_last(stored) and was_renumbered(last)):
        _check_order(directory, found)
        return [*_renumber_files(fs, directory, logs, snapshots, entries), *_renumber_state(fs, directory, state)]
    if state is None or stored <= last + EPOCHS_AHEAD_MAX:
        return []
    mended = replace(
        state, leader_epoch=last + EPOCHS_AHEAD_MAX, leader_id=-1, voted_id=-1, voted_directory_id=ZERO_UUID
    )
    return [_write_state(fs, directory, state, mended)]


def _check_order(directory: str, found: set[LeaderEpoch]) -> None:
    """Raises OttlaError if unchanged epochs would end up behind renumbered ones. An epoch already in the new range was
    renumbered before a crash.
    """
    moved = {each for each in found if is_among_the_last(each)}
    stay = max((each for each in found - moved if not was_renumbered(each)), default=-1)
    if moved and stay > renumbered(min(moved)):
        raise OttlaError(f"the epochs in {directory} cannot be renumbered: {stay} lies between those before and after")


def _renumber_files(
    fs: FileSystem, directory: str, logs: list[str], snapshots: list[SnapshotId], entries: Sequence[EpochEntry]
) -> Iterator[Step]:
    for path in logs:
        count = sum(is_among_the_last(epoch) for _, epoch in _epochs(fs, path))
        if count:
            yield Step(f"{path}: the epochs of {count} batches are renumbered", partial(_renumber_batches, fs, path))
    for snapshot in snapshots:
        if is_among_the_last(snapshot.epoch):
            target = snapshot._replace(epoch=renumbered(snapshot.epoch)).filename
            path = posixpath.join(directory, snapshot.filename)
            yield Step(f"{path}: becomes {target}", partial(_rename, fs, directory, path, target))
    if any(is_among_the_last(each.epoch) for each in entries):
        path = posixpath.join(directory, LEADER_EPOCH_CHECKPOINT)
        data = encode_checkpoint(f"{renumbered(each.epoch)} {each.start_offset}" for each in entries)
        yield Step(f"{path}: its epochs are renumbered", partial(fs.write_atomic, path, data))


def _renumber_state(fs: FileSystem, directory: str, state: QuorumStateFile | None) -> Iterator[Step]:
    """The vote stays: it is the one of the same epoch under another number."""
    if state is not None and is_among_the_last(state.leader_epoch):
        yield _write_state(fs, directory, state, replace(state, leader_epoch=renumbered(state.leader_epoch)))


def _write_state(fs: FileSystem, directory: str, state: QuorumStateFile, mended: QuorumStateFile) -> Step:
    path = posixpath.join(directory, QUORUM_STATE_FILE)
    about = f"{path}: epoch {state.leader_epoch} becomes {mended.leader_epoch}"
    return Step(about, partial(fs.write_atomic, path, encode_quorum_state(mended)))


def _checkpoint(fs: FileSystem, directory: str) -> Sequence[EpochEntry]:
    try:
        return LeaderEpochs(fs, directory).entries
    except CorruptFile:
        return ()  # a start makes it again


def _state(fs: FileSystem, directory: str) -> QuorumStateFile | None:
    path = posixpath.join(directory, QUORUM_STATE_FILE)
    try:
        return decode_quorum_state(fs.read_bytes(path))
    except FileNotFoundError:
        return None
    except MalformedRecord as error:
        raise OttlaError(f"{path} cannot be read: {error}") from error


def _epochs(fs: FileSystem, path: str) -> Iterator[tuple[int, LeaderEpoch]]:
    """(position, epoch) of each whole batch of a file."""
    with closing(fs.open(path, read_only=True)) as file:
        size, position = file.size(), 0
        while position + _HEAD.size <= size:
            _, length, epoch = _HEAD.unpack(file.pread(_HEAD.size, position))
            following = position + _LENGTH_END + length
            if length < _EPOCH.size or following > size:
                return  # a start looks at what this is
            yield position, epoch
            position = following


def _renumber_batches(fs: FileSystem, path: str) -> None:
    positions = [(position, epoch) for position, epoch in _epochs(fs, path) if is_among_the_last(epoch)]
    with closing(fs.open(path)) as file:
        for position, epoch in positions:
            file.pwrite((_EPOCH.pack(renumbered(epoch))[:1],), position + _LENGTH_END)  # no other byte changes
        file.fsync()


def _rename(fs: FileSystem, directory: str, path: str, target: str) -> None:
    fs.rename(path, posixpath.join(directory, target))
    fs.fsync_dir(directory)
