"""Leader epochs of a partition with their start offsets: they say which leader wrote which offsets.

Followers and consumers ask where an epoch ended to find out how much of their log the leader shares (KIP-101, KIP-279,
KIP-320). Behaviour follows Kafka's LeaderEpochFileCache; the file is `leader-epoch-checkpoint`.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import LeaderEpoch, Offset
from ottla.storage.checkpoints.offset_checkpoint import decode_checkpoint, encode_checkpoint

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


def _parse(words: list[str]) -> EpochEntry:
    epoch, start_offset = words
    return EpochEntry(int(epoch), int(start_offset))


class LeaderEpochs:
    """The epochs of one partition. Epochs and start offsets both increase strictly from entry to entry."""

    __slots__ = ("_directory", "_entries", "_fs", "_written", "noted_epoch")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        """Read the checkpoint in `directory`; no file means no epochs. Raises `CorruptFile`."""
        self._fs = fs
        self._directory = directory
        self._entries: list[EpochEntry] = []
        self._written: tuple[EpochEntry, ...] | None = None
        """What the file holds, as far as is known: starting 10,000 empty partitions must not write 10,000 files."""
        self.noted_epoch: LeaderEpoch = -1
        """The latest epoch that the log's batches have, -1 without any; `assign` alone does not change it."""
        try:
            data = fs.read_bytes(self.path)
        except FileNotFoundError:
            return
        for entry in decode_checkpoint(self.path, data, _parse):
            self._assign(entry)
        self._written = tuple(self._entries)
        self._note_latest()

    @property
    def path(self) -> str:
        return posixpath.join(self._directory, LEADER_EPOCH_CHECKPOINT)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Note in memory that `epoch` starts at `start_offset`; nothing happens if the epoch is the latest already.

        The caller writes it down, see `is_written`, before its recovery point passes `start_offset`: until then
        recovery finds the epochs in the batches, and an epoch without a record means nothing after a restart. Entries
        that contradict the new one are dropped. Raises `ValueError` on negative numbers.
        """
        self._assign(EpochEntry(epoch, start_offset))

    def note(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """`assign` for a batch that is being appended or was found in the log."""
        self.assign(epoch, start_offset)
        self._note_latest()

    def _note_latest(self) -> None:
        latest = self.latest_epoch
        self.noted_epoch = -1 if latest is None else latest

    @property
    def is_written(self) -> bool:
        """Whether the file is known to say the same."""
        return tuple(self._entries) == self._written

    def _assign(self, entry: EpochEntry) -> bool:
        if entry.epoch < 0 or entry.start_offset < 0:
            raise ValueError(f"leader epoch {entry.epoch} at offset {entry.start_offset}: both must be at least 0")
        entries = self._entries
        if entries and entries[-1].epoch == entry.epoch and entry.start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)
        return True

    def end_offset_for(self, requested: LeaderEpoch, log_end_offset: Offset) -> EpochEntry:
        """The largest epoch up to `requested` with the offset where it ended, (-1, -1) when that is not known.

        An epoch older than all that are left answers itself with the start of the oldest one.
        """
        entries = self._entries
        if requested == UNDEFINED_EPOCH or not entries:
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if requested == entries[-1].epoch:
            return EpochEntry(requested, log_end_offset)
        above = bisect_right(entries, requested, key=itemgetter(0))
        if above == len(entries):
            return EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        floor = entries[above - 1].epoch if above else requested
        return EpochEntry(floor, entries[above].start_offset)

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch in which `offset` was written, None below the first entry."""
        at = bisect_right(self._entries, offset, key=itemgetter(1))
        return self._entries[at - 1].epoch if at else None

    def contradicts(self, epoch: LeaderEpoch, offset: Offset) -> bool:
        """Whether these entries say another epoch of a batch at `offset` than the batch itself. A batch without an
        epoch contradicts nothing, nor does one before the first entry: the log may begin in its middle."""
        known = self.epoch_for_offset(offset)
        return known is not None and epoch >= 0 and known != epoch

    def replace(self, entries: Iterable[tuple[LeaderEpoch, Offset]]) -> None:
        """Replace all entries by those in the batches. The caller writes them to disk."""
        self._entries.clear()
        for entry in entries:
            self._assign(EpochEntry(*entry))
        self._note_latest()

    def mend(self, found: Sequence[tuple[LeaderEpoch, Offset]], last_offset: Offset) -> None:
        """Have these entries, of the batches from some offset on up to the one at `last_offset`, in place of those that
        there are of them; what is known of before and behind stays, as far as it agrees. The caller writes it down."""
        (first_epoch, first), (newest, _) = found[0], found[-1]
        before = [each for each in self._entries if each.start_offset < first and each.epoch <= first_epoch]
        behind = [each for each in self._entries if each.start_offset > last_offset and each.epoch > newest]
        self.replace([*before, *found, *behind])

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after `end_offset`, durably: the log was cut there.

        When none is left the file may stay: whatever is appended next begins with an epoch, and that writes it.
        """
        content = self.cut_from_end(end_offset)
        if content is not None:
            self._fs.write_atomic(self.path, content)

    def cut_from_end(self, end_offset: Offset) -> bytes | None:
        """The same in memory; gives the content of the file, which the caller is about to write, if that changes."""
        entries = self._entries
        kept = len(entries)
        while kept and end_offset >= 0 and entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        changed = kept != len(entries)
        del entries[kept:]
        self._note_latest()
        return self.encode() if changed and entries else None

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Forget epochs that ended at or before `start_offset`; the epoch in force there starts there from now on.

        In memory only: loading a log does it again, and the next `write` has it. Replacing the file without an fsync
        could leave an empty one after a power failure.
        """
        entries = self._entries
        at = bisect_right(entries, start_offset, key=itemgetter(1))
        if at:
            entries[:at] = [EpochEntry(entries[at - 1].epoch, start_offset)]

    def drop_all(self) -> bytes:
        """Forget all epochs; gives the content of the file, which the caller is about to write."""
        self._entries.clear()
        self._note_latest()
        return self.encode()

    def write(self) -> None:
        """Replace the checkpoint file, durably. Raises `OSError`."""
        self._fs.write_atomic(self.path, self.encode())

    def encode(self) -> bytes:
        """The content of the checkpoint file, which the caller is about to write."""
        self._written = tuple(self._entries)
        return encode_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in self._entries)
