"""What a crash left of deletions and compactions in a partition's directory, finished or undone at the next start."""

from __future__ import annotations

import posixpath

from ottla.filesystem import FileSystem
from ottla.model import Offset
from ottla.protocol.records.record_batch import HEADER_SIZE, CorruptBatch
from ottla.protocol.records.record_batch import read_batch_header as read_header
from ottla.storage.segments.segment_files import DELETED, FSYNCED_GAPS, LOG, segment_offset
from ottla.storage.segments.segment_list import CLEANED, SWAP


def finish_interrupted_work(fs: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Remove what deletion left, and finish or undo a compaction (`.cleaned`, `.swap`); returns the files that stay."""

    def path(name: str) -> str:
        return posixpath.join(directory, name)

    def remove(name: str) -> None:
        fs.remove(path(name))
        present.discard(name)

    present = set(names)
    for name in names:
        if name.endswith(DELETED) and name != FSYNCED_GAPS and not name.endswith(".checkpoint" + DELETED):
            remove(name)
    cleaned = [
        (offset, name) for name in present if name.endswith(CLEANED) and (offset := segment_offset(name)) is not None
    ]
    swaps = [(offset, name) for name in present if name.endswith(SWAP) and (offset := segment_offset(name)) is not None]
    cut = min((offset for offset, _ in cleaned), default=None)
    for offset, name in swaps:
        if cut is not None and offset >= cut:  # a split that did not get as far as replacing its original
            remove(name)
    for _, name in cleaned:
        remove(name)
    swaps = [(offset, name) for offset, name in swaps if name in present]
    if not swaps:
        return sorted(present)
    # A compacted segment is complete in its swap files; the originals it replaces start inside its range.
    logs = [(offset, name) for offset, name in swaps if name.endswith(LOG + SWAP)]
    if logs:
        first = min(offset for offset, _ in logs)
        end = max(max(_end_of_file(fs, path(name), offset), offset + 1) for offset, name in logs)
        for name in sorted(present):
            offset = segment_offset(name)
            if offset is not None and first <= offset < end and not name.endswith(SWAP):
                remove(name)
    # The log before its indexes: as long as it is a swap file, what has its base offset counts as the original's.
    for _, name in sorted(swaps, key=lambda swap: (swap[0], not swap[1].endswith(LOG + SWAP))):
        target = name.removesuffix(SWAP)
        fs.rename(path(name), path(target))
        present.discard(name)
        present.add(target)
    return sorted(present)


def _end_of_file(fs: FileSystem, path: str, base_offset: Offset) -> Offset:
    """The offset after the last whole batch of a log file."""
    file = fs.open(path, read_only=True)
    try:
        end, position, size = base_offset, 0, file.size()
        while position + HEADER_SIZE <= size:
            header = read_header(file.pread(HEADER_SIZE, position))
            end = header.next_offset
            position += header.size
        return end
    except CorruptBatch:
        return end
    finally:
        file.close()
