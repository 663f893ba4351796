"""Logs of message format 0 and 1 made into format 2: every record as it was, whatever interrupts it."""

from __future__ import annotations

import random
import struct

import pytest

from ottla.errors import KafkaError
from ottla.protocol.records.compression import Codec, compress
from ottla.protocol.records.record_batch import MAGIC_POSITION, build_batch, iterate_batches, iterate_records
from ottla.storage.log.log import Log
from ottla.storage.recovery.conversion import (
    NotConverted,
    convert_segment,
    finish,
    formats_of,
    is_old,
    old_files,
    remove_old_files,
)
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from tests.old_messages import TIME, message
from tests.unit.storage.logs import DIRECTORY, append, load, new_disk

APPEND_TIME = 8
Row = tuple[int, int, bytes | None, bytes | None]


def path(base: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def disk(*segments: tuple[int, bytes]) -> SimulatedFileSystem:
    fs = new_disk()
    fs.makedirs(DIRECTORY)
    for base, data in segments:
        fs.write_atomic(path(base), data)
        for suffix in (".index", ".timeindex"):
            fs.write_atomic(path(base, suffix), b"")
    fs.fsync_all()
    return fs


def rows(log: Log) -> list[Row]:
    found: list[Row] = []
    offset = log.log_start_offset
    while (part := log.read(offset, 1 << 20, up_to=log.log_end_offset)) is not None:
        data = part.read()
        for at, _ in iterate_batches(data):
            assert data[at + MAGIC_POSITION] == 2
            found += [(each.offset, each.timestamp, each.key, each.value) for each in iterate_records(data, at)]
        offset = found[-1][0] + 1
    return found


def convert(fs: SimulatedFileSystem) -> None:
    """As the command does."""
    finish(fs, DIRECTORY)
    found = formats_of(fs, DIRECTORY)
    for each in found:
        if is_old(each):
            convert_segment(fs, DIRECTORY, each.base_offset, last=each is found[-1])
    remove_old_files(fs, DIRECTORY)


def with_header_checksum_of_old(frame: bytes) -> bytes:
    """As Kafka wrote LZ4 in format 0."""
    return frame[:6] + bytes([frame[6] ^ 0x55]) + frame[7:]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_every_record_stays_what_it_was(magic: int, codec: Codec) -> None:
    """With gaps, as compaction leaves them, nulls, and a batch of today behind."""
    offsets = [10, 11, 14, 40]
    values: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, b""), (b"", None), (b"key", b"w" * 300)]
    messages = list(zip(offsets, values, strict=True))
    if codec:
        inner = b"".join(
            message(offset - 10 if magic else offset, value, magic=magic, time=TIME + offset, key=key)
            for offset, (key, value) in messages
        )
        packed = compress(codec, inner)
        if codec is Codec.LZ4 and magic == 0:
            packed = with_header_checksum_of_old(packed)
        data = message(40, packed, magic=magic, attributes=codec, key=None)
    else:
        data = b"".join(
            message(offset, value, magic=magic, time=TIME + offset, key=key) for offset, (key, value) in messages
        )
    today = build_batch([(TIME, b"new", b"today", (("h", b"1"),))], base_offset=41, leader_epoch=3)
    fs = disk((10, data + bytes(today)))
    convert(fs)
    log = load(fs)
    wanted: list[Row] = [(offset, TIME + offset if magic else -1, key, value) for offset, (key, value) in messages]
    assert rows(log) == [*wanted, (41, TIME, b"new", b"today")]
    part = log.read(10, 1 << 20, up_to=42)
    assert part is not None and part.read()[22] & 7 == codec
    assert part.read().endswith(today)
    assert [name for name in fs.listdir(DIRECTORY) if "old" in name or "conv" in name] == []
    assert append(log, 1).first_offset == 42


def test_times_of_the_broker_are_in_batches_of_one_time() -> None:
    """LogAppendTime is one for a batch."""
    data = b"".join(message(at, b"v", attributes=APPEND_TIME if at != 3 else 0, time=TIME + at // 2) for at in range(6))
    fs = disk((0, data))
    convert(fs)
    log = load(fs)
    assert [(offset, time - TIME) for offset, time, _, _ in rows(log)] == [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
    ]
    part = log.read(0, 1 << 20, up_to=6)
    assert part is not None
    batches = [header for _, header in iterate_batches(part.read())]
    assert [(each.base_offset, each.timestamp_type) for each in batches] == [(0, 1), (2, 1), (3, 0), (4, 1)]


def test_plain_messages_are_gathered() -> None:
    data = b"".join(message(at, bytes(100)) for at in range(1000))
    fs = disk((0, data))
    convert(fs)
    log = load(fs)
    assert len(rows(log)) == 1000
    part = log.read(0, 1 << 20, up_to=1000)
    assert part is not None and len(list(iterate_batches(part.read()))) == 7
    assert log.size_bytes < len(data)


def three_segments() -> tuple[SimulatedFileSystem, list[Row]]:
    """The middle one is of today, and so no business of a conversion."""
    first = b"".join(message(at, b"first", magic=0) for at in range(20))
    middle = bytes(build_batch([(TIME, None, b"middle", ())] * 20, base_offset=20))
    end = message(59, compress(Codec.GZIP, b"".join(message(at, b"last") for at in range(20))), attributes=1, key=None)
    wanted: list[Row] = [(at, -1, b"k", b"first") for at in range(20)]
    wanted += [(at, TIME, None, b"middle") for at in range(20, 40)]
    wanted += [(at, TIME, b"k", b"last") for at in range(40, 60)]
    return disk((0, first), (20, middle), (40, end)), wanted


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("starts", [False, True])
def test_a_crash_at_any_change_loses_nothing(starts: bool, power_loss: bool) -> None:
    """The command goes on. A node that is started instead either refuses the log or has all of it; what is refused
    the command then converts."""
    for changes in range(200):
        fs, wanted = three_segments()
        fs.crash_after(changes)
        try:
            convert(fs)
        except SimulatedCrash:
            fs.restart(power_loss=power_loss)
        else:
            assert changes > 20
            break
        if starts:
            try:
                log = load(fs)
            except KafkaError as error:
                assert f"`ottla log convert {DIRECTORY.rpartition('/')[0]}`" in str(error)
            else:
                assert rows(log) == wanted, changes
                continue
        convert(fs)
        assert rows(load(fs)) == wanted, changes
        assert not old_files(fs, DIRECTORY)


def test_old_segments_can_stay() -> None:
    fs, wanted = three_segments()
    before = fs.read_bytes(path(0))
    for each in formats_of(fs, DIRECTORY):
        if is_old(each):
            made = convert_segment(fs, DIRECTORY, each.base_offset, last=each.base_offset == 40)
            assert (made.records, made.bytes_before, made.cut) == (20, each.size, 0)
    assert old_files(fs, DIRECTORY) == [path(0, ".log.old"), path(40, ".log.old")]
    assert fs.read_bytes(path(0, ".log.old")) == before
    assert rows(load(fs)) == wanted


def test_what_was_not_written_to_its_end_is_left_out() -> None:
    """Only at the end of the log, as recovery does it."""
    whole = b"".join(message(at, b"v" * 50) for at in range(3))
    cut = message(3, b"v" * 50)
    for kept in (5, 14, len(cut) - 1):
        fs = disk((0, whole + cut[:kept]))
        (found,) = formats_of(fs, DIRECTORY)
        assert found.cut == kept
        assert convert_segment(fs, DIRECTORY, 0, last=True).cut == kept
        assert [row[0] for row in rows(load(fs))] == [0, 1, 2]
        fs = disk((0, whole + cut[:kept]), (4, message(4, b"next")))
        with pytest.raises(NotConverted, match=r"byte \d+: the file ends inside a message"):
            formats_of(fs, DIRECTORY)
    fs = disk((0, whole + bytes(500)))
    assert convert_segment(fs, DIRECTORY, 0, last=True).cut == 500


def test_damage_is_refused_and_nothing_changes() -> None:
    """A flipped bit anywhere in the middle message: never a record that says something else."""
    whole = [message(at, b"value") for at in range(3)]
    numbers = random.Random(1)
    for position in range(8, len(whole[1])):
        bad = bytearray(whole[1])
        bad[position] ^= 1 << numbers.randrange(8)
        data = whole[0] + bytes(bad) + whole[2]
        fs = disk((0, data), (3, message(3, b"next")))
        names = fs.listdir(DIRECTORY)
        with pytest.raises(NotConverted, match=r"00000.log: byte \d+: "):
            formats_of(fs, DIRECTORY)
            convert_segment(fs, DIRECTORY, 0, last=False)
        assert fs.read_bytes(path(0)) == data and fs.listdir(DIRECTORY) == names


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("before", [0, 1])
def test_a_start_names_the_command_and_cuts_nothing(before: int, codec: Codec, clean: bool) -> None:
    """Also of short messages, of compressed ones, which have the last offset and not the first, and behind batches of
    format 2. An index that has an entry is compared with what it points at."""
    inner = message(0, b"v")
    old = message(before, compress(codec, inner) if codec else b"v", attributes=codec)
    if codec and not before:
        old = message(3, compress(codec, b"".join(message(at, b"v") for at in range(4))), attributes=codec)
    today = bytes(build_batch([(TIME, None, b"v", ())])) * before
    fs = disk((0, today + old))
    fs.write_atomic(path(0, ".index"), struct.pack(">ii", before, len(today)))
    with pytest.raises(KafkaError, match=r"of Kafka before 0\.11: run `ottla log convert /data` first"):
        load(fs, clean_shutdown=clean, recovery_point=60 if clean else 0)
    assert fs.read_bytes(path(0)) == today + old
