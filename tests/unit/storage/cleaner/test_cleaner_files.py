"""Which segments become one, and what the new files hold where one is not enough."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from ottla.drivers.logs.log_cleaner import CleanerSettings
from ottla.protocol.records.record_batch import build_batch, read_batch_header
from ottla.storage.cleaner.cleaner_manager import group_segments
from ottla.storage.cleaner.cleaner_map import OffsetMap
from ottla.storage.cleaner.cleaner_writer import CleanedSegments
from ottla.storage.config import LogConfig
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX
from tests.unit.storage.compaction import Compaction, compacted
from tests.unit.storage.logs import DIRECTORY, KEY, NOW, new_disk


@dataclass
class Facts:
    base_offset: int
    size: int = 10
    max_timestamp: int = 0
    index_bytes: int = 8

    def first_batch_timestamp(self) -> int:
        return 0

    def index_sizes(self) -> tuple[int, int]:
        return self.index_bytes, self.index_bytes


def groups(config: LogConfig, uncleanable: int, *segments: Facts) -> list[list[int]]:
    return [[each.base_offset for each in group] for group in group_segments(segments, config, uncleanable)]


def test_groups_stay_within_bytes_and_indexes() -> None:
    config = LogConfig(segment_bytes=25, segment_index_bytes=20)
    assert groups(config, 99, Facts(0), Facts(1), Facts(2)) == [[0, 1], [2]]
    assert groups(config, 99, Facts(0, 1), Facts(1, 1), Facts(2, 1)) == [[0, 1], [2]], "by index"
    assert groups(config, 99, Facts(0, 100), Facts(1, 100)) == [[0], [1]], "larger than a segment may be now"
    assert groups(config, 99) == []


def test_groups_span_no_more_offsets_than_an_index_can_tell() -> None:
    config = LogConfig()
    top = RELATIVE_OFFSET_MAX
    assert groups(config, top + 1, Facts(0), Facts(5)) == [[0, 5]]
    assert groups(config, top + 2, Facts(0), Facts(5)) == [[0], [5]]
    assert groups(config, top + 9, Facts(0), Facts(5), Facts(top)) == [[0, 5], [top]]
    # KAFKA-12889: or one empty file stays for each two billion records that were
    assert groups(config, 3 * top, Facts(0), Facts(top, 0), Facts(2 * top, 0)) == [[0, top, 2 * top]]


def follower(log: Compaction, base_offset: int, key: bytes, value: bytes) -> None:
    batch = build_batch([(NOW, key, value, ())], base_offset=base_offset, leader_epoch=0)
    log.log.append_as_follower(batch, now_ms=NOW)
    log.log.high_watermark = log.log.log_end_offset


def test_a_log_of_far_offsets_is_compacted() -> None:
    log = Compaction()
    far = RELATIVE_OFFSET_MAX
    for number, key in enumerate((b"a", b"b", b"a", b"c")):
        follower(log, number * (far // 2 + 10), key, b"x")
        log.log.roll()
    follower(log, 4 * far, b"d", b"x")
    log.log.roll()
    log.clean_all()
    assert [key for key, _ in log.pairs()] == [b"b", b"a", b"c", b"d"]
    for segment in log.log.segments:
        for batch in segment.batches(0):
            assert batch.last_offset - segment.base_offset <= far
    before = log.records()
    log.restart()
    assert log.records() == before


def test_batches_that_grow_or_are_too_far_go_to_a_new_segment() -> None:
    """KAFKA-20036, KAFKA-6264: Kafka fails, or splits the segment and begins again."""
    fs = new_disk()
    fs.makedirs(DIRECTORY)
    output = CleanedSegments(fs, DIRECTORY, 0, 4096, segment_bytes_max=200)
    for base_offset in (0, 1, 2, RELATIVE_OFFSET_MAX + 2, RELATIVE_OFFSET_MAX + 3):
        batch = build_batch([(NOW + base_offset % 7, b"k", b"v", ())], base_offset=base_offset)
        output.append(batch, read_batch_header(batch), NOW)
    bases = [each.base_offset for each in output.finish(NOW)]
    assert bases == [0, 2, RELATIVE_OFFSET_MAX + 3]


def test_several_new_segments_take_the_place_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Compaction(compacted(segment_bytes=5000), settings=CleanerSettings(io_buffer_bytes=1))
    for number in range(20):
        log.put([(b"%d" % number, b"x" * 20), (b"same", b"y")])
        if number % 5 == 4:
            log.log.roll()
    monkeypatch.setattr(CleanedSegments.__init__, "__defaults__", (300,))
    log.clean()
    assert len(log.log.segments) > 4
    assert all(segment.size <= 300 for segment in log.log.segments)
    before = log.pairs()
    assert len(before) == 21
    assert log.log.size_bytes == sum(segment.size for segment in log.log.segments)
    log.restart()
    assert log.pairs() == before
    assert log.logs.get(KEY) is log.log


def test_the_map_takes_as_many_keys_as_kafka_for_the_same_memory() -> None:
    offsets = OffsetMap(128 * 1024 * 1024, 0.9, 2**40, random.Random(1))
    assert offsets.used_max == int(128 * 1024 * 1024 // 24 * 0.9)
    offsets.close()


def test_a_map_that_is_full_to_the_last_slot_still_answers() -> None:
    offsets = OffsetMap(24 * 4, 1.0, 100, random.Random(1))
    batch = build_batch([(NOW, b"%d" % number, b"", ()) for number in range(6)])
    section = bytes(batch[61:])
    assert not offsets.put(section, 6, 0, 0)
    assert (offsets.used, offsets.latest, offsets.utilization) == (4, 3, 1.0)
    keep = bytearray(6)
    assert offsets.retain(keep, section, 6, 0, NOW, tombstones=True)[0] == 6
    offsets.close()
