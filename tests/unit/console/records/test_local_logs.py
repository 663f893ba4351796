"""Searches beside a node read its log files: the same records as by Fetches, only below what it calls committed, and
what files cannot tell is fetched."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from ottla.console.cluster import Cluster, Partition, Topic
from ottla.console.records import local_logs
from ottla.console.records.local_logs import LocalLogs, Pace
from ottla.console.records.reading import FILE_BYTES, Limits, Match, Part, Reader, Record, Turns
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import OsFileSystem
from ottla.protocol.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, read_batch_header
from ottla.storage.checkpoints.meta_properties import MetaProperties, encode_meta_properties
from ottla.storage.checkpoints.partition_metadata import write_partition_metadata
from ottla.storage.segments.offset_index import OffsetIndex
from tests.unit.console.fake_cluster import ID, FakeBrokers

NODE = 1
LENGTH = 600
PER_BATCH = 3
SEGMENTS = (range(300), range(330, 331), range(360, LENGTH))
"""Offsets; between them is what compaction removed."""


def batch(begin: int, offsets: range, *, is_transactional: bool = False) -> bytes:
    rows = [SimpleRecord(1000 + offset, b"k%d" % (offset % 10), b"v" * 40) for offset in offsets]
    producer = 7 if is_transactional else -1
    return bytes(build_batch(rows, base_offset=begin, producer_id=producer, transactional=is_transactional))


def batches(transactional: range = range(0)) -> dict[int, bytes]:
    """By base offset."""
    found = {}
    for segment in SEGMENTS:
        for begin in range(segment.start, segment.stop, PER_BATCH):
            offsets = range(begin, min(begin + PER_BATCH, segment.stop))
            found[begin] = batch(begin, offsets, is_transactional=begin in transactional)
    return found


class Leader(FakeBrokers):
    """Leads one partition, whose log is in memory."""

    def __init__(self, transactional: range = range(0)) -> None:
        super().__init__(["t"])
        self.batches = batches(transactional)
        self.fetched: list[int] = []
        """Offsets from which records were asked for."""
        self.asked_for: list[int] = []
        """Offsets with which it was asked whether files may be read."""
        self.begin, self.stable, self.throttle_ms = 0, LENGTH, 0

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        (self.asked_for if asked.partition_max_bytes == 1 else self.fetched).append(asked.fetch_offset)
        end = self.stable if request.isolation_level else LENGTH
        data = next(
            (
                each
                for begin, each in self.batches.items()
                if read_batch_header(each).last_offset >= asked.fetch_offset and begin < end
            ),
            b"",
        )
        row = FetchedPartition(0, 0, LENGTH, self.stable, self.begin, [], -1, data)
        return FetchResponse([FetchedTopic("t", ID, [row])], self.throttle_ms)


def write_log(
    root: Path,
    held: dict[int, bytes],
    *,
    topic_id: UUID = ID,
    node: int = NODE,
    has_index: bool = True,
    tail: bytes = b"",
) -> None:
    """A log directory with the partition's segments."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    (root / "meta.properties").write_bytes(encode_meta_properties(MetaProperties("c", node, None)))
    fs = OsFileSystem()
    write_partition_metadata(fs, str(directory), topic_id)
    for segment in SEGMENTS:
        stem = directory / f"{segment.start:020}"
        index = OffsetIndex(fs, f"{stem}.index", segment.start)
        data = b""
        for begin in sorted(each for each in held if each in segment):
            if begin % 30 == 0:
                index.append(read_batch_header(held[begin]).last_offset, len(data))
            data += held[begin]
        Path(f"{stem}.log").write_bytes(data + (tail if segment is SEGMENTS[-1] else b""))
        if has_index:
            index.write()


def matches(record: Record) -> bool:
    return record.key == b"k7"


def search(
    leader: Leader,
    root: Path | None,
    ask: Callable[[Reader], list[Part]],
    *,
    is_committed: bool = True,
    match: Match = matches,
) -> Part:
    topic = Topic("t", ID, False, [Partition(0, NODE, 0, [NODE], [NODE], ())])
    cluster = Cluster("c", NODE, {}, {"t": topic})
    limits = Limits(time.monotonic() + 60, 10**9, 10**9)
    files = LocalLogs([] if root is None else [str(root.parent / "none"), str(root)])
    reader = Reader(leader, cluster, topic, limits, match, is_committed, Turns())
    (part,) = ask(replace(reader, files=files.reading(cluster, topic, is_committed=is_committed)))
    if part.failure is not None:
        raise part.failure
    return part


def forward(begin: int = 0, end: int = LENGTH, wanted: int = 1000) -> Callable[[Reader], list[Part]]:
    return lambda reader: reader.forward({0: (begin, end)}, wanted)


def backward(begin: int = 0, end: int = LENGTH, wanted: int = 1000) -> Callable[[Reader], list[Part]]:
    return lambda reader: reader.backward({0: (begin, end)}, wanted)


ASKED = [
    forward(), forward(5, 400), forward(299, 361, 1), forward(301), forward(wanted=3), forward(330, 331),
    backward(), backward(5, 400), backward(299, 361, 1), backward(wanted=3), backward(0, 331),
]  # fmt: skip


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("ask", ASKED, ids=map(str, range(len(ASKED))))
def test_files_hold_what_fetches_bring(tmp_path: Path, ask: Callable[[Reader], list[Part]], has_index: bool) -> None:
    write_log(tmp_path / "log", batches(), has_index=has_index)
    by_fetch, by_file = Leader(), Leader()
    assert search(by_file, tmp_path / "log", ask) == search(by_fetch, None, ask)
    assert not by_file.fetched
    assert len(by_file.asked_for) == 1
    assert by_fetch.fetched


def test_pieces_of_files_and_batches_larger_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.console.records.reading.FILE_BYTES", 10)  # then it is the least memory, 68 KiB
    large = batches()
    for begin in (60, 90, 93, 390):
        rows = [
            SimpleRecord(1000 + begin, b"k7", bytes([begin % 251]) * (FILE_BYTES // 2))
            for begin in range(begin, begin + 3)
        ]
        large[begin] = bytes(build_batch(rows, base_offset=begin))
    write_log(tmp_path / "log", large)
    by_fetch, by_file = Leader(), Leader()
    by_fetch.batches = by_file.batches = large
    assert search(by_file, tmp_path / "log", forward()) == search(by_fetch, None, forward())
    assert by_file.fetched == [60]  # it is larger than the memory, which grows for those behind it


def _other_cluster(root: Path) -> None:
    (root / "meta.properties").write_bytes(encode_meta_properties(MetaProperties("other", NODE, None)))


def _empty_meta(root: Path) -> None:
    (root / "meta.properties").write_bytes(b"")


def _no_log(root: Path) -> None:
    shutil.rmtree(root / "t-0")


def _damaged(root: Path) -> None:
    for each in (root / "t-0").glob("*.log"):
        each.write_bytes(b"\0" * 500)


STRANGE: list[Callable[[Path], None]] = [_other_cluster, _empty_meta, _no_log, _damaged, shutil.rmtree]


@pytest.mark.parametrize("change", STRANGE)
def test_other_files_are_not_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    root = tmp_path / "log"
    write_log(root, batches())
    change(root)
    _all_by_fetch(root)


@pytest.mark.parametrize("owner", [{"node": 2}, {"topic_id": UUID(int=2)}])
def test_files_of_another_node_or_of_a_topic_before_are_not_read(tmp_path: Path, owner: dict[str, object]) -> None:
    write_log(tmp_path / "log", batches(), **owner)  # type: ignore[arg-type]
    _all_by_fetch(tmp_path / "log")


def _all_by_fetch(root: Path, leader: Leader | None = None) -> None:
    by_file = leader or Leader()
    assert search(by_file, root, forward()) == search(Leader(), None, forward())
    assert len(by_file.fetched) == len(batches())


def test_the_node_is_asked_again_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a right that was taken away, or another leader, shows."""
    write_log(tmp_path / "log", batches())
    monkeypatch.setattr(local_logs, "ASKED_S", 0.0)
    monkeypatch.setattr("ottla.console.records.reading.FILE_BYTES", 10)
    leader = Leader()
    part = search(leader, tmp_path / "log", forward())
    assert len(leader.asked_for) > 1

    class Closed(Leader):
        def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
            if len(self.asked_for) > 1:
                raise KafkaError(ErrorCode.topic_authorization_failed, "no longer")
            return super().fetch(node_id, request, into)

    with pytest.raises(KafkaError, match="no longer"):
        search(Closed(), tmp_path / "log", forward())
    assert part.scanned == LENGTH - 59


def test_a_client_that_is_throttled_reads_no_files(tmp_path: Path) -> None:
    write_log(tmp_path / "log", batches())
    leader = Leader()
    leader.throttle_ms = 1
    _all_by_fetch(tmp_path / "log", leader)


def test_files_are_read_up_to_what_is_committed(tmp_path: Path) -> None:
    """What comes behind may be gone with the next leader, or be of an open transaction."""
    write_log(tmp_path / "log", batches())
    leader = Leader()
    leader.stable = 390
    part = search(leader, tmp_path / "log", forward())
    assert [each.offset for each in part.found] == [*range(7, 300, 10), *range(367, 390, 10)]
    assert part.reached == 390
    assert leader.fetched == [390]
    leader = Leader()
    leader.stable = 390
    assert len(search(leader, tmp_path / "log", forward(), is_committed=False).found) == 54


def test_files_are_read_from_where_the_log_begins(tmp_path: Path) -> None:
    """Records that were deleted stay in their segment's file for a while."""
    write_log(tmp_path / "log", batches())
    leader = Leader()
    leader.begin = LENGTH
    part = search(leader, tmp_path / "log", forward(360))
    assert len(leader.fetched) == len(SEGMENTS[-1]) // PER_BATCH
    assert len(part.found) == 24


def test_batches_of_transactions_are_fetched(tmp_path: Path) -> None:
    """Only the node's answer says which were aborted. Whoever reads what is not committed sees them all."""
    inside = range(90, 120)
    write_log(tmp_path / "log", batches(inside))
    leader = Leader(inside)
    assert search(leader, tmp_path / "log", forward()) == search(Leader(inside), None, forward())
    assert leader.fetched == [*range(90, 120, 3)]
    leader = Leader(inside)
    search(leader, tmp_path / "log", forward(), is_committed=False)
    assert not leader.fetched


@pytest.mark.parametrize("tail", [b"\0" * 4096, batches()[0][:30], batches()[0][:-1], b"\1" * 100])
def test_what_lies_behind_the_last_batch_is_not_read(tmp_path: Path, tail: bytes) -> None:
    """Preallocated space, or a batch that is being written."""
    write_log(tmp_path / "log", batches(), tail=tail)
    leader = Leader()
    assert search(leader, tmp_path / "log", forward()) == search(Leader(), None, forward())
    assert not leader.fetched


def test_an_index_of_another_file_leads_nowhere(tmp_path: Path) -> None:
    write_log(tmp_path / "log", batches())
    index = tmp_path / "log" / "t-0" / f"{0:020}.index"
    shutil.copy(tmp_path / "log" / "t-0" / f"{360:020}.index", index)
    data = bytearray(index.read_bytes())
    data[4:8] = (61).to_bytes(4, "big")  # no boundary of a batch
    index.write_bytes(data)
    assert search(Leader(), tmp_path / "log", forward(30)) == search(Leader(), None, forward(30))


def test_a_log_that_moves_away_is_fetched_from_its_next_segment_on(tmp_path: Path) -> None:
    write_log(tmp_path / "log", batches())

    def moving(record: Record) -> bool:
        if record.offset == 147:
            (tmp_path / "log").rename(tmp_path / "moved")
        return matches(record)

    leader = Leader()
    assert search(leader, tmp_path / "log", forward(), match=moving) == search(Leader(), None, forward())
    assert leader.fetched == [300, 331, *range(363, LENGTH, 3)]


def test_bytes_per_second_are_shared() -> None:
    pace = Pace(1e6)
    begun = time.monotonic()
    for _ in range(3):
        pace.take(10_000)
    assert time.monotonic() - begun >= 0.02
