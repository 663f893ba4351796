"""What the columns leave out, and what they make of odd records: as Kafka's Java consumer."""

from __future__ import annotations

import struct

import pytest

from ottla.protocol.records import columns
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.columns import ColumnBuffers, Columns
from ottla.protocol.records.compression import Codec, compress
from ottla.protocol.records.record_batch import (
    CorruptBatch,
    SimpleRecord,
    build_batch,
    compute_crc,
    marker_batch,
    set_base_offset_and_epoch,
)
from tests.old_messages import message

TIME = 1_700_000_000_000


def batch(offset: int, *values: bytes, producer: int = -1, codec: int = 0) -> bytes:
    records = [SimpleRecord(TIME, None, value) for value in values]
    return bytes(
        build_batch(records, base_offset=offset, producer_id=producer, transactional=producer >= 0, codec=codec)
    )


def marker(offset: int, producer: int, *, committed: bool) -> bytes:
    made = marker_batch(producer, 0, committed=committed, coordinator_epoch=0, timestamp=TIME)
    set_base_offset_and_epoch(made, 0, offset, 0)
    return bytes(made)


def values_of(taken: ColumnBuffers) -> list[bytes]:
    assert taken.value_offsets is not None and taken.value_data is not None
    at = taken.value_offsets.cast("i")
    return [bytes(taken.value_data[at[row] : at[row + 1]]) for row in range(taken.rows)]


LOG = (
    batch(0, b"a0", producer=1)
    + batch(1, b"b0", producer=2)
    + batch(2, b"plain")
    + marker(3, 1, committed=False)
    + batch(4, b"a1", producer=1)
    + batch(5, b"b1", producer=2)
    + marker(6, 2, committed=True)
    + marker(7, 1, committed=True)
)
"""Producer 1 aborts a0 and commits a1; producer 2 commits."""


def test_all_that_is_written_without_markers() -> None:
    made = Columns()
    assert made.add(LOG, 0) == 8
    assert values_of(made.take()) == [b"a0", b"b0", b"plain", b"a1", b"b1"]


def test_aborted_transactions_are_left_out() -> None:
    made = Columns()
    assert made.add(LOG, 0, aborted=Aborted([(1, 0)])) == 8
    assert values_of(made.take()) == [b"b0", b"plain", b"a1", b"b1"]


def test_aborted_transactions_in_pieces() -> None:
    """The same answer, gone through with one `Aborted` at any number of rows; and from any offset with a new one."""
    made = Columns()
    found: list[bytes] = []
    start, aborted = 0, Aborted([(1, 0)])
    while start < 8:
        start = made.add(LOG, start, aborted=aborted, rows_max=1)
        found += values_of(made.take())
    assert found == [b"b0", b"plain", b"a1", b"b1"]
    made.add(LOG, 4, aborted=Aborted([(1, 0)]))
    assert values_of(made.take()) == [b"a1", b"b1"]


def test_a_transaction_whose_marker_is_not_there_yet() -> None:
    made = Columns()
    assert made.add(LOG[: -len(marker(7, 1, committed=True))], 0, aborted=Aborted([(1, 0), (2, 1)])) == 7
    assert values_of(made.take()) == [b"plain", b"a1"]


def test_offsets_that_compaction_left_empty_are_passed() -> None:
    made = Columns()
    log = batch(0, b"a") + batch(50, b"b")
    assert made.add(log, 0, 40) == 40
    assert made.add(log, 10, 20) == 20
    assert values_of(made.take()) == [b"a"]
    assert made.add(b"", 7, 9) == 7
    assert made.add(log[:70], 7, 9) == 7


def test_a_wrong_crc_is_refused() -> None:
    spoilt = bytearray(batch(1, b"abc"))
    spoilt[-2] ^= 1
    made = Columns()
    with pytest.raises(CorruptBatch, match="CRC of the batch at offset 1"):
        made.add(batch(0, b"a") + spoilt, 0)
    assert values_of(made.take()) == [b"a"]


def test_a_column_stops_before_int32_offsets_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "DATA_BYTES_MAX", 1000)
    log = b"".join(batch(at, bytes(400), codec=Codec.ZSTD) for at in range(5))
    made = Columns()
    assert made.add(log, 0) == 2
    assert made.take().rows == 2
    assert made.add(log, 2) == 4


def test_timestamps_are_microseconds_within_int64() -> None:
    made = Columns()
    times = [-1, TIME, 2**63 - 1, -(2**63)]
    for at, time in enumerate(times):
        made.add(bytes(build_batch([SimpleRecord(time, None, b"")], base_offset=at)), at)
    taken = made.take()
    assert taken.timestamp is not None
    assert taken.timestamp.cast("q").tolist() == [-1000, TIME * 1000, 2**63 - 1, -(2**63)]


def test_names_of_headers_are_utf8() -> None:
    raw = build_batch([SimpleRecord(TIME, None, None, (("é", b"x"), ("nn", None)))])
    made = Columns(headers=True)
    made.add(bytes(raw), 0)
    taken = made.take()
    assert taken.header_key_data is not None and bytes(taken.header_key_data) == "énn".encode()
    broken = build_batch([SimpleRecord(TIME, None, None, (("ab", b"x"), ("nn", None)))])
    broken[broken.index(b"ab")] = 0xC3
    broken[17:21] = crc_of(broken)
    made.add(bytes(broken), 0)
    taken = made.take()
    assert taken.header_key_data is not None and bytes(taken.header_key_data) == "\ufffdbnn".encode()
    assert taken.header_key_offsets is not None and taken.header_key_offsets.cast("i").tolist() == [0, 4, 6]


def crc_of(made: bytearray) -> bytes:
    """The batch's CRC32C."""
    return struct.pack(">I", compute_crc(made, 0, len(made)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats(magic: int, codec: Codec) -> None:
    """Followed by a batch of today, as in a log that was upgraded."""
    inner = [message(at if magic else 10 + at, b"v%d" % at, magic=magic) for at in range(3)]
    if codec:
        log = message(12, compress(codec, b"".join(inner)), magic=magic, attributes=codec)
    else:
        log = b"".join(message(10 + at, b"v%d" % at, magic=magic) for at in range(3))
    log += batch(13, b"new")
    made = Columns()
    assert made.add(log, 11) == 14
    taken = made.take()
    assert taken.timestamp is not None and taken.timestamp_type is not None
    assert values_of(taken) == [b"v1", b"v2", b"new"]
    assert taken.offset.cast("q").tolist() == [11, 12, 13]
    assert taken.timestamp_type.cast("i").tolist() == ([0, 0, 0] if magic else [-1, -1, 0])
    assert taken.timestamp.cast("q").tolist()[:2] == ([TIME * 1000] * 2 if magic else [-1000] * 2)
    assert made.add(log, 10, 11) == 11
    assert made.take().rows == 1
    assert made.add(log, 0, rows_max=1) == (13 if codec else 11)


def test_append_time_of_a_compressed_message() -> None:
    log = message(1, compress(Codec.GZIP, message(0, b"a") + message(1, None)), attributes=1 | 8, time=5)
    made = Columns()
    assert made.add(log, 0) == 2
    taken = made.take()
    assert taken.timestamp is not None and taken.timestamp.cast("q").tolist() == [5000, 5000]
    assert taken.value_validity is not None and taken.value_validity[0] & 3 == 1


def test_old_messages_that_lie_are_refused() -> None:
    good = message(0, b"value")
    for position in range(8, len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            made = Columns()
            try:
                made.add(bytes(bad), 0)
            except CorruptBatch:
                pass
            assert made.rows == 0
