"""What damage is, how it is told, and what is kept of it.

What was fsynced and is not valid now is damage: nothing cuts it but `ottla log repair`, which keeps the bytes in a side
file (`<segment>.log.<position>.cut`) and notes the offsets that are missing since in the partition's `known-gaps`.
Kafka ignores both kinds of file.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.storage.checkpoints.offset_checkpoint import decode_checkpoint, encode_checkpoint

KNOWN_GAPS_FILE = "known-gaps"
CUT = ".cut"
"""Ends the name of a side file."""

COPY_BYTES = 1 << 20
"""Copied at once."""


@dataclass(slots=True)
class RecoveryResult:
    """What recovery checked, cut off, and kept in side files. All zero for a log that was shut down cleanly."""

    recovered_bytes: int = 0
    """Read and checked because they were not known to be fsynced."""
    truncated_bytes: int = 0
    """Cut off because they were no whole, valid batches."""
    repaired: bool = False
    """Something was cut off a file, which must not come back after a power failure."""
    kept_files: list[str] = field(default_factory=list)
    """Side files with what was cut off and has whole batches."""
    kept_batches: int = 0
    kept_records: int = 0
    """How many whole ones are in them."""
    kept_bytes: int = 0
    """The sizes of these files."""

    def note_kept(self, file: str, batches: int, records: int, size_bytes: int) -> None:
        """Note a side file."""
        self.kept_files.append(file)
        self.kept_batches += batches
        self.kept_records += records
        self.kept_bytes += size_bytes

    @property
    def is_news(self) -> bool:
        """Whether anything was checked or cut off, of which the start reports."""
        return bool(self.recovered_bytes or self.truncated_bytes)


def repair_command(directory: str) -> str:
    """What goes on where a start stops."""
    return f"ottla log repair {shlex.quote(directory)}"


@dataclass(frozen=True, slots=True)
class Damage:
    """One place in one file that is not what was fsynced there."""

    directory: str
    """The partition's, which `ottla log repair` takes."""
    path: str
    position: int | None
    """Position of the first wrong byte; None for the file as a whole."""
    what: str
    behind: str
    """What is whole behind it."""

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path} at byte {self.position}"
        return (
            f"{where}: {self.what}; {self.behind}; nothing was cut. With the node stopped, "
            f"`{repair_command(self.directory)}` shows the repair, and with --apply makes it"
        )


class Misplaced(Damage):
    """A whole directory that is another partition's. No repair of the log could mend it."""

    __slots__ = ()

    def __str__(self) -> str:
        return (
            f"{self.directory}: {self.what}; nothing was changed. With the node stopped, rename the directories "
            f"back; if the records belong to this partition and only the file is wrong, remove {self.path}"
        )


class DamagedLog(KafkaError):
    """KAFKA_STORAGE_ERROR: what was fsynced is not valid any more. The log stays as it is and offline."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(ErrorCode.kafka_storage_error, str(damage))
        self.damage = damage


# Gaps that are known.


def read_known_gaps(fs: FileSystem, directory: str) -> list[tuple[Offset, Offset]]:
    """Ranges [first, end) of offsets that a repair found to be missing. None without the file. Raises `CorruptFile`."""
    path = posixpath.join(directory, KNOWN_GAPS_FILE)
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return []
    return decode_checkpoint(path, data, _parse_gap)


def _parse_gap(words: list[str]) -> tuple[Offset, Offset]:
    first, end = words
    return int(first), int(end)


def is_known(gaps: Iterable[tuple[Offset, Offset]], first: Offset, end: Offset) -> bool:
    """Whether all offsets of [first, end) are in known gaps."""
    for start, stop in sorted(gaps):
        if start <= first < stop:
            first = stop
    return first >= end


def write_known_gaps(fs: FileSystem, directory: str, gaps: Sequence[tuple[Offset, Offset]]) -> None:
    """Replace the file, durably. Raises `OSError`."""
    lines = (f"{first} {end}" for first, end in sorted(set(gaps)))
    fs.write_atomic(posixpath.join(directory, KNOWN_GAPS_FILE), encode_checkpoint(lines))


# Side files.


def keep_aside(fs: FileSystem, path: str, start: int, end: int) -> Generator[None, None, str]:
    """Copy bytes [start, end) of a log file into a side file next to it, durably; returns the side file's path.

    A side file of the same bytes, which a crash may have left, is not made twice. Yields between pieces. Raises
    `OSError`, and then the log is not to be cut.
    """
    target = free_name(fs, f"{path}.{start}", path, start, end)
    if fs.exists(target):
        return target
    temporary = target + ".tmp"
    with closing(fs.open(path, read_only=True)) as source:
        file = fs.open(temporary, create=True)
        try:
            file.truncate(0)
            for position in range(start, end, COPY_BYTES):
                file.pwrite((source.pread(min(COPY_BYTES, end - position), position),), position - start)
                yield
            file.fsync()
        except OSError:
            fs.remove(temporary)
            raise
        finally:
            file.close()
    fs.rename(temporary, target)
    fs.fsync_dir(posixpath.dirname(target))
    return target


def free_name(fs: FileSystem, stem: str, source: str, start: int, end: int) -> str:
    """The name of a side file: one that is free, or that of a file with just these bytes."""
    number = 1
    while True:
        target = f"{stem}{CUT}" if number == 1 else f"{stem}-{number}{CUT}"
        if not fs.exists(target) or _same(fs, target, source, start, end):
            return target
        number += 1


def _same(fs: FileSystem, path: str, source: str, start: int, end: int) -> bool:
    if fs.size(path) != end - start:
        return False
    one, other = fs.open(path, read_only=True), fs.open(source, read_only=True)
    try:
        return all(
            one.pread(COPY_BYTES, position) == other.pread(min(COPY_BYTES, end - start - position), start + position)
            for position in range(0, end - start, COPY_BYTES)
        )
    finally:
        one.close()
        other.close()
