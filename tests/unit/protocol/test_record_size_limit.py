"""`max.decompressed.message.bytes`: a record of a compressed batch is refused by its length, before it is inflated.

What Kafka 4.4 counts was asked of it: the bytes behind the length of a record, so that with a limit of 100 a value of
93 bytes without key passes and one of 94 does not; uncompressed batches are not looked at.
"""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
from pathlib import Path

import cramjam
import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer
from ottla.protocol.records import compression
from ottla.protocol.records.compression import Codec, compress, decompress, room_for
from ottla.protocol.records.record_batch import (
    DECOMPRESSED_BYTES_MAX,
    RECORD_BYTES_MAX,
    CorruptBatch,
    LongWork,
    RecordTooLarge,
    assemble,
    build_batch,
    first_record,
    iterate_records,
    read_batch_header,
    records_section,
)
from ottla.storage.log.validation import COORDINATOR, Origin, ValidationPolicy, validate

COMPRESSING = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


def batch_of(values: list[bytes], codec: Codec) -> bytes:
    return bytes(build_batch([(1000 + at, None, value, ()) for at, value in enumerate(values)], codec=codec))


def batch_with(section: bytes, count: int, codec: Codec) -> bytes:
    """A batch whose records are these bytes, whatever they are."""
    header = read_batch_header(batch_of([b""], codec))
    header = header._replace(count=count, last_offset_delta=count - 1)
    return bytes(assemble(header, compress(codec, section)))


def varint(value: int) -> bytes:
    raw, out = value << 1 if value >= 0 else (-(value + 1) << 1) | 1, bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def limited(batch: bytes, record_bytes_max: int) -> Buffer:
    return records_section(batch, read_batch_header(batch), record_bytes_max=record_bytes_max)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_of_the_bytes_behind_a_records_length(codec: Codec) -> None:
    assert bytes(limited(batch_of([b"x" * 93], codec), 100)) == bytes(limited(batch_of([b"x" * 93], codec), 2**31))
    with pytest.raises(RecordTooLarge) as refused:
        limited(batch_of([b"x", b"x" * 94], codec), 100)
    assert refused.value.code is ErrorCode.invalid_record
    assert "record 1 " in refused.value.message
    assert "max.decompressed.message.bytes=100" in refused.value.message


def test_uncompressed_records_have_no_such_limit() -> None:
    assert len(limited(batch_of([b"x" * 1000], Codec.NONE), 100)) > 1000


@pytest.mark.parametrize("codec", COMPRESSING)
def test_many_records_within_the_limit_pass_whatever_they_are_together(codec: Codec) -> None:
    rng = random.Random(7)
    values = [rng.randbytes(rng.randrange(400)) * rng.randrange(1, 3) for _ in range(5000)]
    batch = batch_of(values, codec)
    assert [each.value for each in iterate_records(batch, record_bytes_max=1000)] == values


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_what_a_buffer_that_is_too_small_gets_is_the_first_bytes(codec: Codec) -> None:
    """The watcher trusts that: bytes that are not there would be taken for records."""
    into = {1: cramjam.gzip, 3: cramjam.lz4, 4: cramjam.zstd}[codec].decompress_into
    rng = random.Random(1)
    runs = b"".join(bytes([rng.randrange(1, 255)]) * rng.randrange(1, 3000) for _ in range(400))
    for data in (b"\1" * 300_000, rng.randbytes(300_000).replace(b"\0", b"\1"), runs):
        for room in (1, 8191, 8193, 65_536, 262_144):
            out = bytearray(room)
            with pytest.raises(cramjam.DecompressionError, match="whole buffer"):
                into(compress(codec, data), out)
            assert out == data[:room]


HEAD = varint(90 << 20) + b"\0\0\0\1"
BOMBS = {
    "one huge record": HEAD + bytes(60 << 20),
    "small ones, then a huge one": bytes([12, 0, 0, 0, 1, 1, 0]) * 9 + HEAD + bytes(60 << 20),
    "more bytes than records": bytes([12, 0, 0, 0, 1, 1, 0]) * 10 + bytes(60 << 20),
    "a record of no bytes": bytes(60 << 20),
    "a length that is none": b"\xff" * 20 + bytes(60 << 20),
    "a length below zero": varint(-5) + bytes(60 << 20),
}  # fmt: skip


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the buffers that are decompressed into."""
    sizes: list[int] = []

    def noted(size: int) -> Buffer:
        sizes.append(size)
        return room_for(size)

    monkeypatch.setattr(compression, "room_for", noted)
    return sizes


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_not_inflated(rooms: list[int], codec: Codec, bomb: str) -> None:
    batch = batch_with(BOMBS[bomb], 10, codec)
    with pytest.raises(KafkaError):
        limited(batch, 1 << 20)
    assert max(rooms) <= 64 * 1024


def test_a_bomb_of_snappy_is_inflated_by_one_block(rooms: list[int]) -> None:
    """Pages that nobody writes to are no memory: the buffer is as large as the blocks claim to be."""
    batch = batch_with(BOMBS["one huge record"], 1, Codec.SNAPPY)
    seen: list[int] = []
    section = memoryview(batch)[61:]
    with pytest.raises(StopIteration):
        decompress(Codec.SNAPPY, section, watcher=lambda data: seen.append(len(data)) or next(iter(())))
    assert seen == [32 * 1024]
    with pytest.raises(RecordTooLarge):
        limited(batch, 1 << 20)


def test_a_bomb_of_a_thousand_to_one_costs_a_process_no_memory(tmp_path: Path) -> None:
    """Measured by the system, in a process of its own; without the limit the same batch takes its whole size."""
    child = textwrap.dedent(
        """
        import re, sys
        from ottla.protocol.records.compression import Codec
        from ottla.protocol.records.record_batch import RecordTooLarge, read_batch_header, records_section
        path, limit = sys.argv[1], int(sys.argv[2])
        batch = open(path, "rb").read()
        header = read_batch_header(batch)
        peak_kib = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
        before = peak_kib()
        try:
            section = records_section(batch, header, record_bytes_max=limit)
        except RecordTooLarge:
            pass
        print(peak_kib() - before)
        """
    )
    for codec in COMPRESSING:
        path = tmp_path / codec.name
        path.write_bytes(batch_with(BOMBS["one huge record"], 1, codec))
        grown_kib = {
            limit: int(subprocess.check_output([sys.executable, "-c", child, str(path), str(limit)]))
            for limit in (1 << 20, RECORD_BYTES_MAX)
        }
        assert grown_kib[1 << 20] < 8 * 1024, codec
        assert grown_kib[RECORD_BYTES_MAX] > 50 * 1024, codec


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("origin", [Origin.CLIENT, COORDINATOR])
def test_produced_records_are_refused_with_invalid_record(codec: Codec, origin: Origin) -> None:
    policy = ValidationPolicy(record_bytes_max=1000, timestamp_before_max_ms=2**62)
    records = batch_of([b"x" * 100, b"x" * 5000], codec)
    with pytest.raises(KafkaError) as refused:
        validate(records, policy, now_ms=2000, next_offset=0, leader_epoch=0, origin=origin)
    assert refused.value.code is ErrorCode.invalid_record
    records = batch_of([b"x" * 900] * 20, codec)
    assert validate(records, policy, now_ms=2000, next_offset=0, leader_epoch=0, origin=origin).headers[0].count == 20


def test_a_batch_for_a_thread_is_refused_there(rooms: list[int]) -> None:
    policy = ValidationPolicy(record_bytes_max=2000, timestamp_before_max_ms=2**62)
    good = [b"y" * 1000] * 1500
    with pytest.raises(LongWork) as long:
        validate(batch_of([*good, b"x" * 5000], Codec.LZ4), policy, now_ms=2000, next_offset=0, leader_epoch=0)
    with pytest.raises(RecordTooLarge):
        long.value.do()
    with pytest.raises(LongWork) as long:
        validate(batch_of(good, Codec.LZ4), policy, now_ms=2000, next_offset=0, leader_epoch=0)
    assert long.value.do().header.count == 1500
    assert max(rooms) < DECOMPRESSED_BYTES_MAX // 4


def test_a_look_up_by_time_is_refused_and_not_called_damage() -> None:
    batch = batch_of([b"x" * 5000, b"y"], Codec.ZSTD)
    with pytest.raises(RecordTooLarge) as refused:
        first_record(batch, 1001, 0, record_bytes_max=1000)
    assert not isinstance(refused.value, CorruptBatch)
    found = first_record(batch, 1001, 0, record_bytes_max=6000)
    assert found is not None and found[1] == 1
    many = batch_of([b"y" * 1000] * 1500 + [b"x" * 5000], Codec.ZSTD)
    with pytest.raises(LongWork) as long:
        first_record(many, 1, 0, record_bytes_max=2000)
    with pytest.raises(RecordTooLarge):
        long.value.do()


def test_a_cut_varint_at_the_end_of_a_part_is_looked_at_again() -> None:
    """64 KiB end within a length: the next part has all of it."""
    for shift in range(8):
        first = b"x" * (64 * 1024 - 12 - shift)
        values = [first, b"y" * 70_000, b"z"]
        batch = batch_of(values, Codec.GZIP)
        assert [each.value for each in iterate_records(batch, record_bytes_max=80_000)] == values
        with pytest.raises(RecordTooLarge):
            limited(batch, 69_999)
