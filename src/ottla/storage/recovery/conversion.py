"""Segments of the message formats 0 and 1, which Kafka before 0.11 wrote, made into format 2 (KIP-98).

Offsets, keys, values, timestamps and codecs stay; what was one compressed message becomes one batch. Messages have no
headers and no producers, and format 0 has no timestamps (-1). Batches of format 2 between them are copied as they are.

A partition is converted by these steps, of which each may be the last before a crash; the same call goes on from there:

1. `N.log.converting` is written, fsynced, read back and compared with the segment, record by record;
2. it is renamed to `N.log.swap`: from here on a start of the node finishes the work as it finishes a compaction;
3. the segment becomes `N.log.old`, its indexes are removed (a start rebuilds them), and `N.log.swap` is `N.log`;
4. when all segments are done, the `.old` files are removed, unless they are to stay.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from ottla.filesystem import File, FileSystem
from ottla.model import Buffer, Offset
from ottla.protocol.records.message_set import Message, in_format_2, read_messages, size_of
from ottla.protocol.records.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_AND_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    CorruptBatch,
    crc_is_valid,
    iterate_records,
    read_batch_header,
)
from ottla.storage.segments.segment_files import INDEX, LOG, TIME_INDEX, base_offsets, segment_offset
from ottla.storage.segments.segment_list import SWAP

CONVERTING: Final = LOG + ".converting"
OLD: Final = LOG + ".old"
BATCH_BYTES: Final = 16384
"""Bytes of keys and values, until uncompressed messages become a new batch: a producer's default."""
_HEAD_BYTES: Final = MAGIC_POSITION + 2
_WRITE_BYTES: Final = 1 << 20


class NotConverted(Exception):
    """A segment cannot be converted; the sentence says which and why. Nothing of it was changed."""


class SegmentFormat(NamedTuple):
    """What a segment holds."""

    base_offset: Offset
    size: int
    old_messages: int
    """Messages of format 0 or 1 at the top level; one may be a compressed set."""
    batches: int
    """Batches of format 2."""
    cut: int
    """Bytes of a message that was not written to its end; only the last segment may have any."""


class Converted(NamedTuple):
    records: int
    bytes_before: int
    bytes_after: int
    cut: int


class _Entry(NamedTuple):
    position: int
    data: bytes
    magic: int


def formats_of(fs: FileSystem, directory: str) -> list[SegmentFormat]:
    """What the segments of a partition hold. Reads heads only. Raises `NotConverted` and `OSError`."""
    found = []
    bases = base_offsets(fs, directory)
    for base in bases:
        path = _path(directory, base, LOG)
        with closing(fs.open(path, read_only=True)) as file:
            old = new = end = 0
            for position, size, magic in _heads(file, path, last=base == bases[-1]):
                old += magic != MAGIC
                new += magic == MAGIC
                end = position + size
            found.append(SegmentFormat(base, file.size(), old, new, file.size() - end))
    return found


def is_old(found: SegmentFormat) -> bool:
    """Whether it has anything to convert."""
    return found.old_messages > 0


def finish(fs: FileSystem, directory: str) -> None:
    """Go on where an earlier call was interrupted. Raises `OSError`."""
    for name in fs.listdir(directory):
        base = segment_offset(name)
        if base is None:
            continue
        if name.endswith(CONVERTING):
            fs.remove(posixpath.join(directory, name))
        elif name.endswith(LOG + SWAP) and not _is_compaction(fs, directory, base):
            _swap(fs, directory, base)


def convert_segment(fs: FileSystem, directory: str, base_offset: Offset, *, last: bool) -> Converted:
    """Convert one segment, steps 1 to 3. `last` says that it is the partition's newest, which may end in a message
    that was not written to its end. Raises `NotConverted` and `OSError`."""
    path, new_path = _path(directory, base_offset, LOG), _path(directory, base_offset, CONVERTING)
    source = fs.open(path, read_only=True)
    target = fs.open(new_path, create=True)
    try:
        target.truncate(0)
        written = 0
        pending = bytearray()
        for batch in _batches(source, path, last=last):
            pending += batch
            if len(pending) >= _WRITE_BYTES:
                target.pwrite([pending], written)
                written += len(pending)
                pending = bytearray()
        if pending:
            target.pwrite([pending], written)
        target.fsync()
        records, end = _compare(source, target, path, last=last)
        made = Converted(records, source.size(), target.size(), source.size() - end)
    except BaseException:
        target.close()
        fs.remove(new_path)
        raise
    finally:
        source.close()
    target.close()
    fs.rename(new_path, _path(directory, base_offset, LOG + SWAP))
    fs.fsync_dir(directory)
    _swap(fs, directory, base_offset)
    return made


def old_files(fs: FileSystem, directory: str) -> list[str]:
    """The segments that were converted and are still there, as paths."""
    return [posixpath.join(directory, name) for name in sorted(fs.listdir(directory)) if name.endswith(OLD)]


def remove_old_files(fs: FileSystem, directory: str) -> None:
    for path in old_files(fs, directory):
        fs.remove(path)
    fs.fsync_dir(directory)


def _path(directory: str, base_offset: Offset, suffix: str) -> str:
    return posixpath.join(directory, f"{base_offset:020d}{suffix}")


def _is_compaction(fs: FileSystem, directory: str, base_offset: Offset) -> bool:
    """A compaction swaps indexes too; the node finishes it."""
    return fs.exists(_path(directory, base_offset, INDEX + SWAP))


def _swap(fs: FileSystem, directory: str, base_offset: Offset) -> None:
    log, swap = _path(directory, base_offset, LOG), _path(directory, base_offset, LOG + SWAP)
    old = _path(directory, base_offset, OLD)
    if fs.exists(log) and not fs.exists(old):
        fs.rename(log, old)
    for suffix in (INDEX, TIME_INDEX):  # they have positions in the file that was
        if fs.exists(_path(directory, base_offset, suffix)):
            fs.remove(_path(directory, base_offset, suffix))
    fs.fsync_dir(directory)
    fs.rename(swap, log)
    fs.fsync_dir(directory)


def _heads(file: File, path: str, *, last: bool) -> Iterator[tuple[int, int, int]]:
    """(position, size, format) of each message and batch. Raises NotConverted where there is none."""
    position, size = 0, file.size()
    while position < size:
        head = file.pread(_HEAD_BYTES, position)
        if last and not any(head) and _is_zero(file, position, size):
            return  # room that a broker reserved and never wrote to
        if len(head) < _HEAD_BYTES:
            if last:
                return
            raise NotConverted(f"{path}: byte {position}: the file ends inside a message")
        length, magic = LENGTH_AND_MAGIC.unpack_from(head, 8)
        try:
            if magic not in (0, 1, MAGIC):
                raise CorruptBatch(f"message format {magic} is none")
            if magic == MAGIC and length < HEADER_SIZE - LOG_OVERHEAD:
                raise CorruptBatch(f"a batch of {length} bytes is shorter than its header")
            found = length + LOG_OVERHEAD if magic == MAGIC else size_of(head, 0)
        except CorruptBatch as error:
            raise NotConverted(f"{path}: byte {position}: {error.message}") from error
        if position + found > size:
            if last:
                return
            raise NotConverted(f"{path}: byte {position}: the file ends inside a message")
        yield position, found, magic
        position += found


def _is_zero(file: File, position: int, size: int) -> bool:
    while position < size:
        data = file.pread(_WRITE_BYTES, position)
        if any(data):
            return False
        position += len(data)
    return True


def _entries(file: File, path: str, *, last: bool) -> Iterator[_Entry]:
    for position, size, magic in _heads(file, path, last=last):
        yield _Entry(position, file.pread(size, position), magic)


def _messages(entry: _Entry, path: str) -> list[Message]:
    try:
        return read_messages(entry.data)
    except CorruptBatch as error:
        raise NotConverted(f"{path}: byte {entry.position}: {error.message}") from error


def _batches(file: File, path: str, *, last: bool) -> Iterator[Buffer]:
    """The segment in format 2."""
    waiting: list[Message] = []
    waiting_bytes = 0
    for entry in _entries(file, path, last=last):
        if entry.magic == MAGIC:
            yield from _built(waiting, 0)
            waiting, waiting_bytes = [], 0
            if not crc_is_valid(entry.data, 0, read_batch_header(entry.data)):
                raise NotConverted(f"{path}: byte {entry.position}: the CRC of the batch is wrong")
            yield entry.data
            continue
        messages = _messages(entry, path)
        codec = entry.data[MAGIC_POSITION + 1] & CODEC_MASK
        if codec:
            yield from _built(waiting, 0)
            waiting, waiting_bytes = [], 0
            yield from _built(messages, codec)
            continue
        (message,) = messages
        if waiting and (waiting_bytes >= BATCH_BYTES or not _one_batch(waiting[-1], message)):
            yield from _built(waiting, 0)
            waiting, waiting_bytes = [], 0
        waiting.append(message)
        waiting_bytes += len(message.key or b"") + len(message.value or b"")
    yield from _built(waiting, 0)


def _one_batch(before: Message, message: Message) -> bool:
    """Whether they may be in one batch: under LogAppendTime that has one time."""
    if before.timestamp_type != message.timestamp_type:
        return False
    return message.timestamp_type != 1 or before.timestamp == message.timestamp


def _built(messages: list[Message], codec: int) -> Iterator[Buffer]:
    if messages:
        yield in_format_2(messages, codec)


def _compare(source: File, target: File, path: str, *, last: bool) -> tuple[int, int]:
    """(records, where the last message ends). Raises NotConverted where the new file does not say the same."""
    end = 0

    def wanted() -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
        nonlocal end
        for entry in _entries(source, path, last=last):
            end = entry.position + len(entry.data)
            if entry.magic == MAGIC:
                for record in iterate_records(entry.data):
                    yield record.offset, record.timestamp, record.key, record.value
                continue
            for message in _messages(entry, path):
                yield message.offset, message.timestamp, message.key, message.value

    found = (
        (record.offset, record.timestamp, record.key, record.value)
        for entry in _entries(target, path, last=False)
        for record in iterate_records(entry.data)
    )
    records = 0
    for want in wanted():
        got = next(found, None)
        if got != want:
            raise NotConverted(f"{path}: the record at offset {want[0]} is not the same in the new format")
        records += 1
    if next(found, None) is not None:
        raise NotConverted(f"{path}: the new format has more records")
    return records, end
