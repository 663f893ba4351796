from __future__ import annotations

import struct

import pytest

from ottla.storage.segments.index_file import PENDING_ENTRIES_MAX
from ottla.storage.segments.offset_index import OffsetIndex
from ottla.storage.segments.time_index import TimeIndex
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from tests.unit.storage.logs import ROOT, new_disk

PATH = f"{ROOT}/index"


def offset_index(base: int = 1000) -> OffsetIndex:
    return OffsetIndex(new_disk(), PATH, base)


def test_offset_entries_are_kafkas_bytes() -> None:
    fs = new_disk()
    index = OffsetIndex(fs, PATH, 1000)
    index.append(1005, 300)
    index.append(1010, 0x01020304)
    assert not fs.exists(PATH)  # written in groups
    index.write()
    assert fs.read_bytes(PATH) == struct.pack(">IIII", 5, 300, 10, 0x01020304)
    again = OffsetIndex(fs, PATH, 1000)
    assert again.load(fs.read_bytes(PATH))
    assert (list(again.offsets), list(again.positions)) == ([5, 10], [300, 0x01020304])


@pytest.mark.parametrize(
    ("offset", "position"), [(0, 0), (1000, 0), (1004, 0), (1005, 300), (1009, 300), (1010, 700), (5000, 700)]
)
def test_position_before(offset: int, position: int) -> None:
    index = offset_index()
    index.append(1005, 300)
    index.append(1010, 700)
    assert index.position_before(offset) == position


def test_boundaries_and_bounds() -> None:
    index = offset_index()
    index.append(1005, 300)
    index.append(1010, 700)
    assert [index.boundary_at_or_before(at) for at in (0, 299, 300, 699, 700, 9999)] == [0, 0, 300, 300, 700, 700]
    assert [index.count_below(offset) for offset in (0, 1005, 1006, 1010, 1011)] == [0, 0, 1, 1, 2]


def test_many_entries_are_written_before_an_fsync_asks() -> None:
    fs = new_disk()
    index = OffsetIndex(fs, PATH, 0)
    for number in range(1, PENDING_ENTRIES_MAX + 2):
        index.append(number, number * 100)
    assert fs.size(PATH) == PENDING_ENTRIES_MAX * 8
    index.write()
    assert fs.size(PATH) == (PENDING_ENTRIES_MAX + 1) * 8


def test_a_full_disk_keeps_entries_pending() -> None:
    fs = new_disk()
    fs.capacity_bytes = 10
    index = OffsetIndex(fs, PATH, 0)
    for number in range(1, PENDING_ENTRIES_MAX + 10):
        index.append(number, number * 100)
    with pytest.raises(OSError):
        index.write()
    fs.heal()
    index.write()
    assert fs.size(PATH) == len(index) * 8


@pytest.mark.parametrize(
    "tail",
    [
        bytes(8 * 100),  # Kafka's file of an open segment, or a power failure
        b"\0\0\0\x07\0\0",  # torn
        struct.pack(">II", 3, 900),  # an offset that goes back
        struct.pack(">II", 30, 100),  # a position that goes back
    ],
)
def test_a_damaged_tail_is_left_out(tail: bytes) -> None:
    good = struct.pack(">IIII", 5, 300, 10, 700)
    index = offset_index()
    assert not index.load(good + tail)
    assert list(index.positions) == [300, 700]


def test_truncation_shortens_the_file() -> None:
    fs = new_disk()
    index = OffsetIndex(fs, PATH, 0)
    for number in range(1, 11):
        index.append(number, number * 100)
    index.write()
    index.append(11, 1100)
    index.truncate(4)
    assert (len(index), fs.size(PATH)) == (4, 32)
    index.append(20, 2000)
    index.write()
    assert fs.read_bytes(PATH)[32:] == struct.pack(">II", 20, 2000)


def test_time_entries_are_kafkas_bytes() -> None:
    fs = new_disk()
    index = TimeIndex(fs, PATH, 1000)
    index.maybe_append(50, 1003)
    index.maybe_append(50, 1009)  # not larger: no entry
    index.maybe_append(70, 1010)
    index.write()
    assert fs.read_bytes(PATH) == struct.pack(">qIqI", 50, 3, 70, 10)
    again = TimeIndex(fs, PATH, 1000)
    assert again.load(fs.read_bytes(PATH) + bytes(120)) is False
    assert again.last_entry == (70, 1010)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(0, 1000), (50, 1000), (51, 1003), (70, 1003), (71, 1010), (999, 1010)]
)
def test_offset_before_a_time(timestamp: int, offset: int) -> None:
    index = TimeIndex(new_disk(), PATH, 1000)
    index.maybe_append(50, 1003)
    index.maybe_append(70, 1010)
    assert index.offset_before(timestamp) == offset


def test_an_empty_time_index_knows_nothing() -> None:
    index = TimeIndex(new_disk(), PATH, 7)
    assert index.last_entry == (-1, 7)
    assert index.offset_before(5) == 7


def test_aborted_transactions_are_kafkas_bytes() -> None:
    fs = new_disk()
    index = TransactionIndex(fs, PATH)
    first, second = AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 15, 30, 31)
    index.append(first)
    index.append(second)
    index.append(second)  # recovery finds it there already
    assert fs.read_bytes(PATH) == struct.pack(">hqqqq", 0, *first) + struct.pack(">hqqqq", 0, *second)
    assert TransactionIndex(fs, PATH).entries == [first, second]


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [(0, 10, [], True), (0, 11, [7], True), (20, 25, [7, 8], True), (21, 25, [8], True), (25, 100, [8], False)],
)
def test_overlapping_transactions(start: int, end: int, found: list[int], complete: bool) -> None:
    index = TransactionIndex(new_disk(), PATH)
    index.append(AbortedTransaction(7, 10, 20, 15))
    index.append(AbortedTransaction(8, 15, 30, 31))
    entries, done = index.overlapping(start, end)
    assert ([entry.producer_id for entry in entries], done) == (found, complete)


def test_bad_transaction_entries_end_the_file() -> None:
    fs = new_disk()
    good = struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    for bad in (struct.pack(">hqqqq", 1, 8, 15, 30, 31), struct.pack(">hqqqq", 0, 8, 15, 5, 31), b"\0\0\0"):
        fs.write_atomic(PATH, good + bad)
        assert len(TransactionIndex(fs, PATH).entries) == 1


def test_truncating_transactions() -> None:
    fs = new_disk()
    index = TransactionIndex(fs, PATH)
    index.truncate_to(5)
    assert not fs.exists(PATH)
    index.append(AbortedTransaction(7, 10, 20, 15))
    index.append(AbortedTransaction(8, 15, 30, 31))
    index.truncate_to(30)
    assert (len(index.entries), fs.size(PATH)) == (1, 34)
