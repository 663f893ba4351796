"""Logs of nodes on the console's own machine: searches read them from the files, and the node has no work with it.

The node still decides. A search sends it a Fetch of each partition first, as its user, and again every ASKED_S: from
the end that the search has, where little or nothing is to be sent. So rights, quotas, the leader and where the log
begins are those of any client, and files are read only below the offset that the node last called committed. Whatever
files do not tell, such as which transactions were aborted, is fetched.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ottla.console.brokers import PIECE_BYTES
from ottla.console.cluster import Cluster, Topic, leader_of
from ottla.errors import KafkaError
from ottla.filesystem import FileSystem, OsFileSystem
from ottla.model import Offset, TopicPartition
from ottla.protocol.fetch import FetchedPartition
from ottla.protocol.records.record_batch import CorruptBatch, iterate_batches
from ottla.storage.checkpoints.meta_properties import decode_meta_properties, meta_properties_path
from ottla.storage.checkpoints.offset_checkpoint import CorruptFile
from ottla.storage.checkpoints.partition_metadata import read_partition_metadata
from ottla.storage.segments.batch_scan import scan_batches
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.segment_files import LOG, SegmentFile, base_offsets
from ottla.storage.segments.segment_indexes import SegmentIndexes

ASKED_S: Final = 1.0
"""How long files are read after an answer of the node."""
BYTES_PER_S: Final = 150e6
"""The most that all searches together read of files; to look through it takes a third of a core."""
SCANNED_MAX: Final = 100_000
"""Batches behind an entry of the index that are gone through for an offset; a good index needs far fewer."""


class LocalLog:
    """The files of one partition, from which one thread reads at a time."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._file: SegmentFile | None = None
        self._position = 0
        self._next: Offset = -1
        """The offset that comes at the position."""
        self._index: tuple[Offset, OffsetIndex] | None = None
        """Base offset and index of the segment in which an offset was sought last."""
        self.piece_bytes = 0
        """Size of what was read last, and about that of what is read next."""

    def read(self, offset: Offset, end: Offset, memory: bytearray, *, is_committed: bool) -> memoryview:
        """Whole batches, of which the first has `offset` or is the first behind it and all begin below `end`, in
        `memory`. `is_committed`: up to the first batch of a transaction. Empty where there are none, or where the first
        is larger than `memory`. Raises OSError, KafkaError."""
        found = memoryview(memory)
        if offset != self._next and not self._seek(offset):
            return found[:0]
        size = self._fill(found)
        if not size and self._seek(offset):  # the next segment
            size = self._fill(found)
        whole = 0
        with suppress(CorruptBatch):  # zeros behind the last batch, or one that is being written
            for position, header in iterate_batches(found[:size]):
                if header.base_offset >= end or (is_committed and header.is_transactional):
                    break
                whole, self._next = position + header.size, header.next_offset
        self._position += whole
        return found[:whole]

    def _fill(self, memory: memoryview) -> int:
        """Read on into the memory, and offer the processor between pieces."""
        assert self._file is not None
        size = 0
        while size < len(memory):
            read = os.preadv(self._file.file.fileno(), (memory[size : size + PIECE_BYTES],), self._position + size)
            if not read:
                break
            size += read
            os.sched_yield()
        return size

    def _seek(self, offset: Offset) -> bool:
        """Go to the batch that has `offset`, or to the first behind it."""
        bases = base_offsets(self._fs, self._directory)
        self._next = -1
        for base in bases[max(0, bisect_right(bases, offset) - 1) :]:
            if base > offset and base == bases[0]:
                return False  # it was deleted, or lies in another tier
            stem = f"{self._directory}/{base:020}"
            file = SegmentFile(self._fs.open(stem + LOG, read_only=True))
            if self._index is None or self._index[0] != base:
                self._index = base, SegmentIndexes(self._fs, stem, base).load_offset(has_content=True)
            begin = self._index[1].position_before(offset)
            for batch in islice(scan_batches(file, begin, file.file.size(), nowait=False), SCANNED_MAX):
                if batch.position == begin and begin and not base <= batch.base_offset <= offset:
                    return False  # the index is of another file
                if batch.last_offset >= offset:
                    self._file, self._position, self._next = file, batch.position, offset
                    return True
        return False


@dataclass
class _Known:
    """What is known of a partition whose files are here."""

    log: LocalLog
    until: float = 0.0
    """When the node has to be asked, by the monotonic clock."""
    begin: Offset = 0
    end: Offset = 0


@dataclass
class LocalReading:
    """The partitions of one topic for one search."""

    logs: LocalLogs
    cluster: Cluster
    topic: Topic
    is_committed: bool
    _known: dict[int, _Known | None] = field(default_factory=dict)
    """None for a partition that has no files here, or none that can be read."""

    def is_due(self, number: int) -> bool:
        """Whether the partition's leader has to be asked before its files are read, or read on."""
        if number not in self._known:
            log = self.logs.find(self.cluster, self.topic, number)
            self._known[number] = None if log is None else _Known(log)
        known = self._known[number]
        return known is not None and time.monotonic() >= known.until

    def learn(self, number: int, row: FetchedPartition | None) -> None:
        """What the leader of a partition has answered; None for what does not allow to read files."""
        known = self._known[number]
        assert known is not None
        known.until = time.monotonic() + ASKED_S
        known.begin = known.end = 0
        if row is not None:
            known.begin = row.log_start_offset
            known.end = row.last_stable_offset if self.is_committed else row.high_watermark

    def read(self, number: int, offset: Offset, stop: Offset, memory: bytearray) -> memoryview | None:
        """Batches as `LocalLog.read` finds them; None where they have to be fetched."""
        known = self._known[number]
        if known is None or not known.begin <= offset < known.end:
            return None
        self.logs.pace.take(known.log.piece_bytes)
        try:
            found = known.log.read(offset, min(stop, known.end), memory, is_committed=self.is_committed)
        except (OSError, KafkaError):  # deleted or moved meanwhile, or damaged: the node knows
            self._known[number] = None
            return None
        known.log.piece_bytes = len(found)
        return found or None


class Pace:
    """Threads that together use so many bytes per second, one after the other and not in bursts."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free = 0.0
        """When the next may begin, by the monotonic clock."""

    def take(self, size: int) -> None:
        """Wait for the turn of this thread, and use so many bytes of it."""
        now = time.monotonic()
        with self._lock:
            mine = max(self._free, now)
            self._free = mine + size / self._bytes_per_s
        time.sleep(mine - now)


class LocalLogs:
    """Log directories on this machine; none where the console runs apart from the nodes."""

    def __init__(self, directories: Sequence[str] = ()) -> None:
        self._directories = directories
        self._fs = OsFileSystem()
        self.pace = Pace(BYTES_PER_S)

    def reading(self, cluster: Cluster, topic: Topic, *, is_committed: bool) -> LocalReading | None:
        """For one search. None where there are no directories."""
        return LocalReading(self, cluster, topic, is_committed) if self._directories else None

    def find(self, cluster: Cluster, topic: Topic, number: int) -> LocalLog | None:
        """The log of a partition on its leader; None where it is not on this machine or cannot be read."""
        key = TopicPartition(topic.name, number)
        leader = leader_of(cluster, key)
        for each in self._directories:
            directory = f"{each}/{key}"
            with suppress(OSError, CorruptFile):
                path = meta_properties_path(each)
                owner = decode_meta_properties(path, self._fs.read_bytes(path))
                if (owner.cluster_id, owner.node_id) != (cluster.id, leader) or not self._fs.is_dir(directory):
                    continue
                if read_partition_metadata(self._fs, directory) == topic.id:
                    return LocalLog(self._fs, directory)
        return None
