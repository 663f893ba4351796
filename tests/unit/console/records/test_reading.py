"""Records are read in both directions without a hole or a repetition, whatever is searched, and within limits."""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest

from ottla.console.brokers import PIECE_BYTES
from ottla.console.cluster import Cluster, Partition, Topic
from ottla.console.records import reading
from ottla.console.records.reading import Limits, Match, Part, Reader, Record, Turns, merged
from ottla.protocol.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from tests.unit.console.fake_cluster import ID, FakeBrokers

PER_BATCH = 3


class Log(FakeBrokers):
    """Partitions of so many records each, in batches of three, and a record's time is its place among all."""

    def __init__(self, *lengths: int, gap: range = range(0)) -> None:
        super().__init__(["t"])
        self.lengths, self.gap = lengths, gap
        self.fetched = 0

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        begin = asked.fetch_offset // PER_BATCH * PER_BATCH
        length = self.lengths[asked.partition]
        while begin in self.gap:  # compacted away
            begin += PER_BATCH
        data = b""
        if begin < length:
            rows = [
                SimpleRecord(1000 + offset * len(self.lengths) + asked.partition, b"k%d" % (offset % 10), b"v")
                for offset in range(begin, min(begin + PER_BATCH, length))
            ]
            data = self.batch(rows, begin)
        self.fetched += 1
        row = FetchedPartition(asked.partition, 0, length, length, 0, [], -1, data)
        return FetchResponse([FetchedTopic("t", ID, [row])])

    def batch(self, rows: list[SimpleRecord], begin: int) -> bytes:
        return bytes(build_batch(rows, base_offset=begin))


def reader(log: Log, match: Match | None = None, **limits: int) -> Reader:
    partitions = [Partition(number, 1, 0, [1], [1], ()) for number in range(len(log.lengths))]
    topic = Topic("t", ID, False, partitions)
    bound = Limits(time.monotonic() + 60, limits.get("records", 10**9), limits.get("size", 10**9))
    return Reader(log, Cluster("c", 1, {}, {"t": topic}), topic, bound, match)


def pages(log: Log, limit: int, *, is_backward: bool, match: Match | None = None) -> list[Record]:
    """All records, as somebody who goes from page to page sees them."""
    at = dict(enumerate(log.lengths if is_backward else [0] * len(log.lengths)))
    found: list[Record] = []
    for _ in range(1000):
        read = reader(log, match)
        if is_backward:
            parts = read.backward({number: (0, offset) for number, offset in at.items()}, limit)
        else:
            parts = read.forward({number: (offset, log.lengths[number]) for number, offset in at.items()}, limit)
        assert all(each.failure is None for each in parts)
        page = merged(parts, limit, is_backward=is_backward)
        assert len(page.records) <= limit
        found += page.records
        at = page.following
        if all(offset == (0 if is_backward else log.lengths[number]) for number, offset in at.items()):
            return found
    raise AssertionError("it never ends")


MATCHES: list[Match | None] = [None, lambda record: record.key == b"k7", lambda record: False]


@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 7, 200])
@pytest.mark.parametrize("match", MATCHES, ids=["all", "some", "none"])
def test_no_hole_and_no_repetition(is_backward: bool, limit: int, match: Match | None) -> None:
    log = Log(31, 0, 8, 1)
    found = pages(log, limit, is_backward=is_backward, match=match)
    every = [(number, offset) for number, length in enumerate(log.lengths) for offset in range(length)]
    wanted = [
        (number, offset)
        for number, offset in every
        if match is None or match(Record(number, offset, 0, b"k%d" % (offset % 10), b"v", ()))
    ]
    assert sorted((each.partition, each.offset) for each in found) == wanted
    times = [each.timestamp for each in found]
    if limit >= max(log.lengths):
        assert times == sorted(times, reverse=is_backward)
    for number in range(len(log.lengths)):
        offsets = [each.offset for each in found if each.partition == number]
        assert offsets == sorted(offsets, reverse=is_backward)


@pytest.mark.parametrize("is_backward", [False, True])
def test_compacted_records_are_passed_by(is_backward: bool) -> None:
    log = Log(300, gap=range(30, 270))
    found = pages(log, 10, is_backward=is_backward)
    assert sorted(each.offset for each in found) == [*range(30), *range(270, 300)]


def test_a_search_ends_at_its_limit_and_goes_on_from_there() -> None:
    log = Log(10_000)
    read = reader(log, lambda record: False, records=300)
    (part,) = read.forward({0: (0, 10_000)}, 5)
    assert (part.stopped, part.found) == ("records", [])
    assert part.reached == part.scanned
    assert 300 <= part.reached < 310
    assert merged([part], 5, is_backward=False).following == {0: part.reached}


def test_a_cut_window_leaves_no_hole() -> None:
    """Backward, a window is read forward: what a limit cuts is not shown, as the newest of it would be missing."""
    log = Log(10_000)
    read = reader(log, lambda record: record.key == b"k7", size=5_000)
    (part,) = read.backward({0: (0, 10_000)}, 5)
    assert part.stopped == "bytes"
    assert part.found == []
    assert part.reached == 10_000


def test_time_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(10_000)
    read = reader(log, lambda record: False)
    ticks = itertools.count()
    monkeypatch.setattr("ottla.console.records.reading.time.monotonic", lambda: next(ticks) * 10.0)
    read.limits.deadline = 100.0
    (part,) = read.forward({0: (0, 10_000)}, 5)
    assert part.stopped == "time"
    assert 0 < part.reached < 100


@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_is_passed_over_has_no_match(is_backward: bool, codec: int) -> None:
    """Batches without the bytes that are searched for are not decoded, and the answer is the same."""

    class Packed(Log):
        def batch(self, rows: list[SimpleRecord], begin: int) -> bytes:
            return bytes(build_batch(rows, base_offset=begin, codec=codec))

    log = Packed(500, 31)
    texts = (b"k7", b"v", b"none")
    for text in texts:

        def match(record: Record, text: bytes = text) -> bool:
            return text in (record.key or b"") or text in (record.value or b"")

        plain, quick = reader(log, match), dataclasses.replace(reader(log, match), sieve=text)
        ranges = {0: (0, 500), 1: (3, 30)}
        both = [(each.backward if is_backward else each.forward)(ranges, 600) for each in (plain, quick)]
        assert both[0] == both[1]
        assert plain.limits.records_read == quick.limits.records_read
        assert quick.limits.matches == len([each for part in both[1] for each in part.found])
    assert quick.limits.records_left > plain.limits.records_left  # nothing was decoded, so it may go further


@pytest.mark.parametrize("begin", range(PIECE_BYTES - 20, PIECE_BYTES))
def test_what_is_sought_may_lie_in_two_pieces(begin: int) -> None:
    class Long(Log):
        def batch(self, rows: list[SimpleRecord], begin: int) -> bytes:
            return bytes(build_batch([each._replace(value=value) for each in rows], base_offset=begin))

    value = b"-" * begin + b"needle"
    read = dataclasses.replace(reader(Long(1), lambda record: True), sieve=b"needle")
    (part,) = read.forward({0: (0, 1)}, 1)
    assert [each.value for each in part.found] == [value]


def test_a_search_reads_its_answers_into_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found stays as it was when the next answer comes."""
    monkeypatch.setattr(reading, "_kept", reading._Kept())  # a thread that has not searched yet
    used: list[bytearray] = []

    class Kept(Log):
        def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
            response = super().fetch(node_id, request)
            row = response.topics[0].partitions[0]
            assert into is not None
            assert isinstance(row.records, bytes)
            if len(into) >= len(row.records):
                used.append(into)
                view = memoryview(into)[: len(row.records)]
                view[:] = row.records
                row.records = view
            return response

    read = dataclasses.replace(reader(Kept(90), lambda record: record.key == b"k7"), turns=Turns())
    (part,) = read.forward({0: (0, 90)}, 100)
    assert [each.offset for each in part.found] == [*range(7, 90, 10)]
    assert {each.key for each in part.found} == {b"k7"}
    assert len(used) == 29  # all but the first
    assert len(set(map(id, used))) == 1


def test_what_is_not_committed_yet_is_the_end() -> None:
    log = Log(5)
    (part,) = reader(log).forward({0: (0, 9)}, 50)
    assert [each.offset for each in part.found] == [0, 1, 2, 3, 4]
    assert not part.stopped


def test_merging_keeps_each_partitions_order() -> None:
    """Times may go back within a partition: no record is skipped for it."""

    def part(number: int, *times: int) -> Part:
        found = [Record(number, offset, moment, None, None, ()) for offset, moment in enumerate(times)]
        return Part(number, 0, len(times), found)

    page = merged([part(0, 5, 1, 9), part(1, 2, 3)], 3, is_backward=False)
    assert [(each.partition, each.offset) for each in page.records] == [(1, 0), (1, 1), (0, 0)]
    assert page.following == {0: 1, 1: 2}


def test_failures_stand_beside_what_was_read() -> None:
    class Failing(Log):
        def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
            if request.topics[0].partitions[0].partition == 1:
                raise ConnectionError("away")
            return super().fetch(node_id, request)

    good, bad = reader(Failing(3, 3)).forward({0: (0, 3), 1: (0, 3)}, 10)
    assert len(good.found) == 3
    assert isinstance(bad.failure, ConnectionError)
