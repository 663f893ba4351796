"""Codecs as Kafka's clients frame them."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest

from ottla.protocol.records.compression import CODECS, Codec, DecompressionFailed, TooLong, compress, decompress
from ottla.protocol.records.record_batch import Buffer, RecordTooLarge

DATA = b"".join(b'{"n": %d, "name": "record"}' % number for number in range(20_000))


def test_names_are_those_of_compression_type() -> None:
    assert list(CODECS) == ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", Codec)
def test_large_data_comes_back(codec: Codec) -> None:
    packed = compress(codec, DATA)
    assert bytes(decompress(codec, packed)) == DATA
    assert bytes(decompress(codec, memoryview(bytearray(packed)))) == DATA
    assert codec == Codec.NONE or len(packed) < len(DATA) / 4


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131072, -1, 1, 3, 22))]
)
def test_every_level_that_kafka_allows(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert bytes(decompress(codec, compress(codec, DATA[:5000], level))) == DATA[:5000]


def test_lz4_blocks_are_independent_and_without_content_checksum() -> None:
    packed = compress(Codec.LZ4, DATA)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0b0010_0000, "Kafka's Java code reads no other"
    assert not packed[4] & 0b0000_0100


def test_snappy_is_framed_as_snappy_java_does() -> None:
    packed = compress(Codec.SNAPPY, DATA)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == DATA[: 32 * 1024]


def test_snappy_is_read_bare_and_concatenated_too() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(DATA)))) == DATA
    packed = compress(Codec.SNAPPY, b"one ")
    assert bytes(decompress(Codec.SNAPPY, packed + compress(Codec.SNAPPY, b"two"))) == b"one two"


def test_members_and_frames_are_concatenated() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two" * 50_000)
    assert bytes(decompress(Codec.GZIP, packed)) == b"one " + b"two" * 50_000
    for codec in (Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, b"one ") + compress(codec, b"two")
        assert bytes(decompress(codec, packed)) == b"one two"


def test_sizes_that_lie_are_not_believed() -> None:
    packed = compress(Codec.GZIP, b"data")
    for size in (0, 1, 3, 2**32 - 1):
        with pytest.raises(DecompressionFailed):
            decompress(Codec.GZIP, packed[:-4] + struct.pack("<I", size))


@pytest.mark.parametrize("codec", [each for each in Codec if each is not Codec.NONE])
def test_no_more_memory_is_taken_than_the_limit_and_what_data_can_become(codec: Codec) -> None:
    """A bomb ends at the limit, whichever codec it is of; a length that snappy announces is not believed."""
    bomb = compress(codec, bytes(8 << 20))
    if codec is Codec.SNAPPY:
        bomb = bytes(cramjam.snappy.compress_raw(bytes(8 << 20)))
        assert len(bytes(decompress(codec, bomb))) == 8 << 20
        lie = b"\xff\xff\xff\x2f" + bomb[4:1000]
        with pytest.raises(DecompressionFailed, match="cannot be 100663295 bytes"):
            decompress(codec, lie)
    with pytest.raises(TooLong):
        decompress(codec, bomb, 1 << 20)
    taken: list[int] = []

    def stop(seen: Buffer) -> None:
        taken.append(len(seen))
        raise RecordTooLarge(0, 10)

    with pytest.raises(RecordTooLarge):
        decompress(codec, bomb, watcher=stop)
    assert len(taken) == 1 and taken[0] <= 64 * 1024


def test_what_is_cut_off_fails() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        packed = compress(codec, DATA[:500])
        for end in range(len(packed)):
            if codec == Codec.SNAPPY and end == 16:
                continue  # a stream without blocks
            with pytest.raises(DecompressionFailed):
                decompress(codec, packed[:end])


def test_unknown_codecs_fail() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(DecompressionFailed):
            decompress(codec, b"")
