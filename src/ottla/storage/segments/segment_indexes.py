"""The indexes of a segment: loaded when first needed, written in groups, given back when others need the memory."""

from __future__ import annotations

from ottla.filesystem import FileSystem
from ottla.model import Millis, Offset
from ottla.storage.segments.index_file import IndexFile
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment_files import INDEX, TIME_INDEX, TRANSACTION_INDEX, ColdRead, SegmentFile
from ottla.storage.segments.time_index import TimeIndex
from ottla.storage.segments.transaction_index import TransactionIndex

INDEX_CHUNK_BYTES = 16 * 1024


class SegmentIndexes:
    """Offset, time and transaction index; each is None while it is not in memory."""

    __slots__ = ("_base_offset", "_fs", "_stem", "offset", "time", "transaction")

    def __init__(self, fs: FileSystem, stem: str, base_offset: Offset) -> None:
        """`stem` is the path of the segment's files without their suffix."""
        self._fs = fs
        self._stem = stem
        self._base_offset = base_offset
        self.offset: OffsetIndex | None = None
        self.time: TimeIndex | None = None
        self.transaction: TransactionIndex | None = None

    def load_offset(self, *, has_content: bool) -> OffsetIndex:
        """Bring the offset index into memory; of an empty segment the file is not looked at. Raises `OSError`."""
        index = OffsetIndex(self._fs, self._stem + INDEX, self._base_offset)
        if has_content:
            self._fill(index)
        self.offset = index
        return index

    def load_time(self, *, has_content: bool) -> TimeIndex:
        """Bring the time index into memory. Raises `OSError`."""
        index = TimeIndex(self._fs, self._stem + TIME_INDEX, self._base_offset)
        if has_content:
            self._fill(index)
        self.time = index
        return index

    def load_transaction(self) -> TransactionIndex:
        """Bring the transaction index into memory. Raises `OSError`."""
        index = self.transaction = TransactionIndex(self._fs, self._stem + TRANSACTION_INDEX)
        return index

    def _fill(self, index: IndexFile) -> None:
        try:
            index.load(self._read(index.path))
        except FileNotFoundError:
            pass

    def _read(self, path: str) -> bytes:
        """An index file up to the zeros that Kafka fills the ten megabytes of an open one with."""
        file = self._fs.open(path, read_only=True)
        try:
            size, chunk_bytes, parts, position = file.size(), INDEX_CHUNK_BYTES, [], 0
            while position < size:
                chunk = file.pread(min(chunk_bytes, size - position), position)
                if not chunk or chunk == bytes(len(chunk)):
                    break
                parts.append(chunk)
                position += len(chunk)
                chunk_bytes *= 2
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            file.close()

    def check_warm(self) -> None:
        """Raises `ColdRead` where loading the offset index would wait for the disk."""
        try:
            file = SegmentFile(self._fs.open(self._stem + INDEX, read_only=True))
        except FileNotFoundError:
            return
        size = file.file.size()
        if size and file.file.pread_nowait(size, 0) is None:
            raise ColdRead(lambda: file.file.pread(size, 0))

    def last_time_entry(self) -> tuple[Millis, Offset] | None:
        """The end of the time index without loading all of it: retention asks this of every segment.

        None where the last entry is not one, so that the whole index has to be looked at. Raises `OSError`.
        """
        index = TimeIndex(self._fs, self._stem + TIME_INDEX, self._base_offset)
        try:
            file = self._fs.open(index.path, read_only=True)
        except FileNotFoundError:
            return index.last_entry
        try:
            entries = file.size() // TimeIndex.ENTRY_SIZE
            if entries:
                index.load(file.pread(TimeIndex.ENTRY_SIZE, (entries - 1) * TimeIndex.ENTRY_SIZE))
        finally:
            file.close()
        return index.last_entry if len(index) or not entries else None

    def recreate(self) -> None:
        """Empty offset and time index, in memory and on disk. Raises `OSError`."""
        self.load_offset(has_content=False).truncate(0)
        self.load_time(has_content=False).truncate(0)

    def write(self) -> None:
        """Put pending entries into the files. Raises `OSError`."""
        if self.offset is not None:
            self.offset.write()
        if self.time is not None:
            self.time.write()
        if self.transaction is not None:
            self.transaction.write()

    def drop(self) -> None:
        """Out of memory, pending entries too."""
        self.offset = self.time = self.transaction = None

    def sizes(self) -> tuple[int, int]:
        """Bytes of the files of the offset index and of the time index. Raises `OSError`."""
        return self._file_size(INDEX), self._file_size(TIME_INDEX)

    def _file_size(self, suffix: str) -> int:
        try:
            return self._fs.size(self._stem + suffix)
        except FileNotFoundError:
            return 0

    @property
    def memory_bytes(self) -> int:
        return sum(index.memory_bytes for index in (self.offset, self.time) if index is not None)
