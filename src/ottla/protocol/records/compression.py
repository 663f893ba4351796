"""The codecs of record batches: gzip, snappy, lz4 and zstd as Kafka's clients write them.

Snappy is framed as snappy-java does (blocks behind a magic header) and also read bare; lz4 is the frame format with
independent blocks, the only one that Kafka's Java code reads. Decompression stops at a limit, whatever a batch claims.
"""

from __future__ import annotations

import enum
import mmap
import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from ottla.model import Buffer


class Codec(enum.IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Final[dict[str, Codec]] = {codec.name.lower(): codec for codec in Codec}
"""Keyed by the names that `compression.type` uses."""

DECOMPRESSED_BYTES_MAX: Final = 100 * 1024 * 1024
"""Size limit of a decompressed batch: a larger one could not have been sent uncompressed
(`socket.request.max.bytes`)."""

Watcher = Callable[[Buffer], None]
"""Sees what is decompressed while it grows, from its first byte on each time, and raises to end it."""

_WATCHED_BYTES: Final = 64 * 1024
"""Size at which a watcher is asked first; a quarter of what is decompressed at most was not seen by it before."""
_CLEARED_BYTES_MAX: Final = 1 << 20
_GUESS_BYTES_MIN: Final = 32 * 1024
_GUESS_RATIO: Final = 8
_GUESS_GROWTH: Final = 4
_HINT_RATIO_MAX: Final = 16

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO: Final = (64, 3)
"""The best that snappy can do: a copy of 64 bytes takes three. The length that a block begins with is not believed
beyond that, and no memory is taken for it."""
_INT32 = struct.Struct(">i")

_LEVEL_DEFAULT: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
_LZ4_LEVEL_FAST: Final = 9
"""Kafka's default level, which its Java code takes as the fast compressor and not as level 9 of the thorough one."""


class DecompressionFailed(ValueError):
    """Bytes that the codec does not understand, or that decompress to more than the limit."""


class TooLong(DecompressionFailed):
    """Bytes that decompress to more than the limit."""


def room_for(size: int) -> Buffer:
    """A writable buffer. A large one is memory of its own, which is not cleared first: that would be done under the
    interpreter's lock, a tenth of a second for the largest."""
    return bytearray(size) if size <= _CLEARED_BYTES_MAX else memoryview(mmap.mmap(-1, size))


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed; `level` as in Kafka's `compression.<codec>.level`, None for its default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if level is None:
        level = _LEVEL_DEFAULT[Codec(codec)]
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, 6 if level < 0 else level))
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    compressor = cramjam.lz4.Compressor(
        level=0 if level == _LZ4_LEVEL_FAST else level, content_checksum=False, block_linked=False
    )
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX, watcher: Watcher | None = None) -> Buffer:
    """The bytes that `data` was compressed from. Raises DecompressionFailed, also when they are more than `limit`, and
    what the watcher raises: what it refuses is not decompressed further."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _snappy_decompress(data, limit, watcher)
    if codec == Codec.GZIP:
        return _grow(cramjam.gzip.decompress_into, data, _gzip_size(data), limit, watcher)
    if codec == Codec.LZ4:
        return _grow(cramjam.lz4.decompress_into, data, 0, limit, watcher)
    if codec == Codec.ZSTD:
        return _grow(cramjam.zstd.decompress_into, data, _zstd_size(data), limit, watcher)
    raise DecompressionFailed(f"no codec has the id {codec}")


def _gzip_size(data: Buffer) -> int:
    """The size that a gzip stream ends with (of its last member, modulo 2^32): right for what producers send."""
    return int.from_bytes(data[-4:], "little")


def _zstd_size(data: Buffer) -> int:
    """The content size in a zstd frame header (RFC 8878, 3.1.1.1), 0 where there is none, as in Java's streams."""
    if len(data) < 6:
        return 0
    descriptor = data[4]
    single_segment = descriptor & 0x20
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size


def _grow(decompress_into: Any, data: Buffer, hint: int, limit: int, watcher: Watcher | None) -> Buffer:
    """Decompress into a buffer of a guessed size, and again into larger ones while it is too small.

    A hint comes from the data itself and is believed only as far as real data compresses.
    """
    guess = max(_GUESS_RATIO * len(data), _GUESS_BYTES_MIN)
    size = min(hint if 0 < hint <= _HINT_RATIO_MAX * guess else guess, limit)
    if watcher is not None:
        size = min(size, _WATCHED_BYTES)
    while True:
        out = room_for(size)
        try:
            found = memoryview(out)[: decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecompressionFailed(str(error)) from error
            if watcher is not None:
                watcher(out)  # the buffer is full: these are the first bytes
        else:
            if watcher is not None:
                watcher(found)
            return found
        if size >= limit:
            raise TooLong(f"decompresses to more than {limit} bytes")
        size = min(size * _GUESS_GROWTH, limit)


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_SNAPPY_HEADER)
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES])
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _snappy_blocks(data: Buffer) -> list[memoryview]:
    view = memoryview(data)
    if bytes(view[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        return [view]
    if len(view) < len(_SNAPPY_HEADER):
        raise DecompressionFailed("a snappy header is cut off")
    blocks = []
    position = len(_SNAPPY_HEADER)
    while position < len(view):
        if bytes(view[position : position + len(_SNAPPY_MAGIC)]) == _SNAPPY_MAGIC:
            position += len(_SNAPPY_HEADER)  # streams may be concatenated
            continue
        if position + 4 > len(view):
            raise DecompressionFailed("a snappy block has no length")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise DecompressionFailed(f"a snappy block of {length} bytes in {len(view) - position}")
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _first_literal(block: memoryview) -> memoryview:
    """The bytes that a snappy block begins with, without decompressing it: there is nothing yet that could be copied.
    Nothing of a block that is none."""
    at = 0
    while at < len(block) and block[at] >= 0x80:  # the length of it all, a varint
        at += 1
    at += 1
    if at >= len(block) or block[at] & 3:
        return block[:0]
    length = block[at] >> 2
    more = max(length - 59, 0)  # bytes of the length, little-endian
    if more:
        length = int.from_bytes(block[at + 1 : at + 1 + more], "little")
    at += 1 + more
    return block[at : at + length + 1]


def _snappy_decompress(data: Buffer, limit: int, watcher: Watcher | None) -> Buffer:
    try:
        blocks = _snappy_blocks(data)
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        for block, size in zip(blocks, sizes, strict=True):
            if size * _SNAPPY_RATIO[1] > len(block) * _SNAPPY_RATIO[0]:
                raise DecompressionFailed(f"a snappy block of {len(block)} bytes cannot be {size} bytes")
        total = sum(sizes)
        if total > limit:
            raise TooLong(f"decompresses to {total} bytes, more than {limit}")
        out = room_for(total)
        view = memoryview(out)
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            if watcher is not None and not position and size > _WATCHED_BYTES:
                watcher(_first_literal(block))  # a bare block may be all of it, and is decompressed whole
            cramjam.snappy.decompress_raw_into(block, view[position : position + size])
            position += size
            if watcher is not None:
                watcher(view[:position])
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(str(error)) from error
    return out
