"""What the offset index and the time index share: entries of a fixed size in memory, the newest not yet in the file.

Entries are written in groups, not one by one: a crash may lose the newest, and recovery adds them again because it
scans the log from the recovery point, up to which the file was fsynced.
"""

from __future__ import annotations

from ottla.filesystem import FileSystem
from ottla.model import Offset

PENDING_ENTRIES_MAX = 512
"""One page of offset index entries: large enough that the write costs nothing per append, small enough to lose."""

RELATIVE_OFFSET_MAX = 2**31 - 1
GAP_IN_SEGMENT_MAX = 2**30
"""A follower's segment that begins with a gap begins at its first batch where the gap is this large."""


class IndexFile:
    """An index loaded into memory. Offsets in the file are relative to the base offset of its segment."""

    __slots__ = ("_fs", "_written", "base_offset", "path")
    ENTRY_SIZE = 0
    """Size of an entry; each kind of index sets it."""

    def __init__(self, fs: FileSystem, path: str, base_offset: Offset) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._written = 0

    # What each index has its own of; a compiled class cannot be abstract.

    def __len__(self) -> int:
        raise NotImplementedError

    def _decode(self, data: bytes) -> None:
        """Take the entries of a file's content, up to the first that cannot follow its predecessor."""
        raise NotImplementedError

    def _encode(self, first: int) -> bytes:
        """The entries from number `first` on as the file has them."""
        raise NotImplementedError

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries in memory."""
        raise NotImplementedError

    @property
    def memory_bytes(self) -> int:
        return len(self) * self.ENTRY_SIZE

    def load(self, data: bytes) -> bool:
        """Take the file's content; returns whether all of it was good.

        Kafka fills the file of an open segment with zeros, and a crash leaves them there.
        """
        used = len(data.rstrip(b"\0"))
        self._decode(data[: used + -used % self.ENTRY_SIZE])
        self._written = len(self)
        return len(self) * self.ENTRY_SIZE == len(data)

    def truncate(self, count: int) -> bool:
        """Keep the first `count` entries, in memory and in the file; returns whether that changed. Raises `OSError`."""
        self._cut(count)
        self._written = min(self._written, count)
        size = self._written * self.ENTRY_SIZE
        file = self._fs.open(self.path, create=True)
        try:
            changed = file.size() != size
            if changed:
                file.truncate(size)
            return changed
        finally:
            file.close()

    def write(self) -> None:
        """Put the pending entries into the file. Raises `OSError`; they stay pending then."""
        count = len(self)
        if self._written < count:
            file = self._fs.open(self.path, create=True)
            try:
                file.pwrite((self._encode(self._written),), self._written * self.ENTRY_SIZE)
            finally:
                file.close()
            self._written = count

    def _write_if_many(self) -> None:
        """Called by every append. A full disk is no reason to fail the append: the next write or fsync meets it."""
        if len(self) - self._written >= PENDING_ENTRIES_MAX:
            try:
                self.write()
            except OSError:
                pass
