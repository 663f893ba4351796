"""The files of a segment: how they are named, made and renamed, how one stays open while it is read, slices of it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.filesystem import File, FileSystem
from ottla.model import Offset

LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)
DELETED = ".deleted"
FSYNCED_GAPS = "fsynced-gaps" + DELETED
"""A mark in the directory of a compacted log: a gap between two segments lies below the recovery point that is on disk,
so that one above it is a loss. Only Ottla keeps that rule; Kafka removes what is called `.deleted` when it opens a
log, and with it the mark."""
_NAME_DIGITS = 20


def segment_offset(name: str) -> Offset | None:
    """The offset that a file of a segment or a snapshot has in its name."""
    digits = name[:_NAME_DIGITS]
    if len(name) > _NAME_DIGITS and digits.isdecimal() and name[_NAME_DIGITS] == ".":
        return int(digits)
    return None


def base_offsets(fs: FileSystem, directory: str) -> list[Offset]:
    """Base offsets of the segments in a directory, which may be missing."""
    if not fs.is_dir(directory):
        return []
    found = (segment_offset(name) for name in fs.listdir(directory) if name.endswith(LOG))
    return sorted(offset for offset in found if offset is not None)


def fsync_file(fs: FileSystem, path: str) -> None:
    """Fsync a file by its name, if it is there. Raises `OSError`."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        file.fsync()
    finally:
        file.close()


def create_empty_files(fs: FileSystem, stem: str) -> None:
    """Make the files of a segment, empty, replacing leftovers of the same name. Raises `OSError`."""
    for suffix in (INDEX, TIME_INDEX, LOG):
        file = fs.open(stem + suffix, create=True)
        if file.size():
            file.truncate(0)
        file.close()


def rename_to_deleted(fs: FileSystem, stem: str) -> list[str]:
    """Rename the files of a segment to `.deleted`; returns the new names. Raises `OSError`."""
    renamed = []
    for suffix in SUFFIXES:
        path = stem + suffix
        try:
            fs.rename(path, path + DELETED)  # readers go on; removed after `file.delete.delay.ms`
        except FileNotFoundError:
            continue
        renamed.append(path + DELETED)
    return renamed


class ColdRead(Exception):
    """Bytes that a look-up needs are not in the page cache. Call `warm` in a thread, then try again."""

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__("not in the page cache")
        self.warm = warm


class SegmentFile:
    """An open file that closes when its last holder releases it."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        self.file.close()


class LogSlice:
    """A range of a segment's file: whole batches from `position` on.

    `first_offset` is the base offset of the first batch, which may lie below the offset that was asked for.
    """

    __slots__ = ("_handle", "file", "first_offset", "length", "position")

    def __init__(self, handle: SegmentFile, position: int, length: int, first_offset: Offset) -> None:
        self._handle = handle
        self.file = handle.file
        self.position = position
        self.length = length
        self.first_offset = first_offset

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes, from disk if need be. Raises `OSError`."""
        return self.file.pread(self.length, self.position)

    def read_nowait(self) -> bytes | bytearray | None:
        """The bytes, or None where they are not wholly in the page cache."""
        return self.file.pread_nowait(self.length, self.position)
