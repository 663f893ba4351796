from __future__ import annotations

import asyncio
import random

import pytest

from ottla.drivers.logs.log_cleaner import CleanerSettings, Throttle
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import DELETE_HORIZON, SimpleRecord, build_batch, iterate_batches
from ottla.storage.checkpoints.offset_checkpoint import read_offset_checkpoint
from ottla.storage.config import LogConfig
from ottla.storage.segments.segment_files import FSYNCED_GAPS, LOG
from tests.unit.storage.compaction import Compaction, batches, compacted
from tests.unit.storage.logs import DIRECTORY, KEY, NOW, ROOT

RETENTION_MS = 1000


def test_only_the_latest_record_of_a_key_stays_at_its_offset() -> None:
    log = Compaction()
    log.put([(b"a", b"1"), (b"b", b"1")])
    log.put([(b"a", b"2"), (b"c", b"1")])
    log.log.roll()
    assert log.clean()
    assert [(each.offset, each.key, each.value, each.timestamp) for each in log.records()] == [
        (1, b"b", b"1", NOW + 1),
        (2, b"a", b"2", NOW),
        (3, b"c", b"1", NOW + 1),
    ]
    assert log.log.cleaned_offset == 4
    assert log.fs.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b"0\n1\nt 0 4\n"
    assert not log.clean()


def test_the_active_segment_stays_and_its_records_do_not_replace_others() -> None:
    log = Compaction()
    log.put([(b"a", b"1")])
    log.put([(b"a", b"2")])
    log.log.roll()
    log.put([(b"a", b"3")])
    assert log.clean()
    assert log.pairs() == [(b"a", b"2"), (b"a", b"3")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_place_producer_and_codec(codec: Codec) -> None:
    log = Compaction()
    log.put(
        [(b"a", b"1"), (b"b", b"x" * 100), (b"c", b"y" * 100), (b"d", b"1")],
        producer_id=5,
        producer_epoch=2,
        base_sequence=0,
        codec=codec,
    )
    (before,) = log.headers()
    log.put([(b"a", b"2"), (b"d", b"2")])
    log.log.roll()
    log.clean()
    first, second = batches(log.log)
    assert first[0]._replace(batch_length=0, crc=0) == before._replace(
        batch_length=0, crc=0, count=2, base_timestamp=NOW + 1, max_timestamp=NOW + 2
    )
    assert [(each.offset, each.key) for each in first[1]] == [(1, b"b"), (2, b"c")]
    assert second[0].base_offset == 4


def test_headers_and_append_times_stay() -> None:
    log = Compaction(compacted(message_timestamp_type="LogAppendTime"))
    records = [SimpleRecord(1, key, b"v", (("h", b"1"), ("n", None))) for key in (b"a", b"b", b"c")]
    log.append(build_batch(records))
    log.clock.now += 5
    log.put([(b"a", b"2")])
    log.log.roll()
    log.clean()
    (header, kept), _ = batches(log.log)
    assert [(each.offset, each.timestamp, each.headers) for each in kept] == [
        (1, NOW, (("h", b"1"), ("n", None))),
        (2, NOW, (("h", b"1"), ("n", None))),
    ]
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (NOW, NOW, 1)


def test_records_without_a_key_go() -> None:
    """The topic was not compacted when they were written."""
    log = Compaction(LogConfig())
    log.put([(None, b"1"), (b"a", b"1"), (None, b"2")])
    log.log.update_config(compacted())
    log.log.roll()
    log.clean()
    assert log.pairs() == [(b"a", b"1")]


# Tombstones


def test_a_tombstone_stays_until_its_horizon_and_the_key_is_gone_at_once() -> None:
    log = Compaction(compacted(delete_retention_ms=RETENTION_MS))
    log.put([(b"a", b"1"), (b"b", b"1")])
    log.put([(b"a", None), (b"c", b"1")])
    log.log.roll()
    log.clean()
    assert log.pairs() == [(b"b", b"1"), (b"a", None), (b"c", b"1")]
    _, header = log.headers()
    assert header.attributes & DELETE_HORIZON and header.base_timestamp == NOW + RETENTION_MS
    assert [each.timestamp for each in log.records()] == [NOW + 1, NOW, NOW + 1], "times of records do not change"
    log.clock.now = NOW + RETENTION_MS - 1
    log.put([(b"z", b"1")])
    log.log.roll()
    log.clean()
    assert (b"a", None) in log.pairs()
    assert log.headers()[1].base_timestamp == NOW + RETENTION_MS, "the horizon stands"
    log.clock.now = NOW + RETENTION_MS
    log.put([(b"z", b"2")])
    log.log.roll()
    log.clean()
    assert log.pairs() == [(b"b", b"1"), (b"c", b"1"), (b"z", b"2")]


# The range


def test_undecided_transactions_bound_the_range() -> None:
    log = Compaction()
    log.put([(b"a", b"1")])
    log.put([(b"a", b"2")])
    log.log.roll()
    log.put([(b"t", b"1")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.log.roll()
    log.put([(b"a", b"3")])
    log.log.roll()
    log.clean_all()
    assert log.log.cleaned_offset == 2
    assert log.pairs() == [(b"a", b"2"), (b"t", b"1"), (b"a", b"3")]
    log.marker(1, abort=False)
    log.log.roll()
    log.clean_all()
    assert [pair for pair in log.pairs() if pair[0] in (b"a", b"t")] == [(b"t", b"1"), (b"a", b"3")]


def test_what_is_not_committed_is_left_alone() -> None:
    log = Compaction()
    log.put([(b"a", b"1")])
    log.log.roll()
    log.put([(b"a", b"2")], commit=False)
    log.log.roll()
    log.clean_all()
    assert log.offsets() == [0, 1]


def test_young_records_are_left_alone() -> None:
    """KIP-58."""
    log = Compaction(compacted(min_compaction_lag_ms=100))
    for value in (b"1", b"2", b"3"):
        log.put([(b"a", value)])
        log.log.roll()
        log.clock.now += 60
    assert log.clean_all() == 1
    assert log.pairs() == [(b"a", b"2"), (b"a", b"3")]
    assert log.log.cleaned_offset == 2
    log.clock.now += 100
    log.clean_all()
    assert log.pairs() == [(b"a", b"3")]


def test_overdue_records_are_compacted_however_few_they_are() -> None:
    """KIP-354."""
    log = Compaction(compacted(max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.9))
    log.put([(b"big", b"x" * 500)])
    log.log.roll()
    assert log.clean()
    log.put([(b"big", b"x" * 100)])
    log.log.roll()
    assert not log.clean()
    log.clock.now += 1001
    assert log.clean()
    assert log.pairs() == [(b"big", b"x" * 100)]
    assert log.cleaner.max_delay_ms == 1


def test_the_dirtiest_of_several_logs_comes_first() -> None:
    log = Compaction(compacted(min_cleanable_dirty_ratio=0.5))
    log.put([(b"a", b"x" * 100)])
    log.log.roll()
    log.clean()
    log.put([(b"a", b"y" * 200)])
    log.log.roll()
    other = log.logs.create(KEY._replace(partition=1), log.log.topic_id, log.config)  # type: ignore[arg-type]
    other.append_as_leader(build_batch([(NOW, b"a", b"1", ())]), 0, now_ms=NOW)
    other.high_watermark = other.log_end_offset
    other.roll()
    chosen = log.cleaner.choose(NOW)
    assert chosen is not None and chosen[0] is other and chosen[1].ratio == 1.0
    assert log.clean_all() == 2
    assert read_offset_checkpoint(log.fs, f"{ROOT}/cleaner-offset-checkpoint") == {
        KEY: 2,
        KEY._replace(partition=1): 1,
    }


@pytest.mark.parametrize("checkpoint", [b"0\n1\nt 0 99\n", b"0\n1\nt 0 0\n", b"nonsense"])
def test_a_checkpoint_of_another_life_of_the_log_is_not_believed(checkpoint: bytes) -> None:
    log = Compaction(compacted(cleanup_policy=frozenset({"compact", "delete"})))
    for value in (b"1", b"2", b"3"):
        log.put([(b"a", value)])
    log.log.advance_log_start(1)
    log.log.roll()
    log.logs.shutdown()
    log.fs.write_atomic(f"{ROOT}/cleaner-offset-checkpoint", checkpoint)
    log.start()
    log.log.high_watermark = log.log.log_end_offset
    assert log.clean_all() == 1
    assert log.pairs() == [(b"a", b"3")]


def test_an_unaligned_first_dirty_offset_beyond_the_last_stable_one_cleans_nothing() -> None:
    """KAFKA-9826: the cleaner was busy for ever."""
    log = Compaction()
    log.put([(b"a", b"1")])
    log.log.roll()
    log.put([(b"a", b"2"), (b"a", b"3")])
    log.log.cleaned_offset = 2
    assert log.clean_all() == 0


# The map


def test_a_full_map_compacts_in_several_rounds() -> None:
    """KAFKA-3587, KAFKA-3894: a segment with more keys than the map has room for."""
    log = Compaction(settings=CleanerSettings(dedupe_buffer_bytes=24 * 4, load_factor=0.75, io_buffer_bytes=1))
    keys = [b"%d" % number for number in range(20)]
    log.put([(key, b"1") for key in keys])
    log.put([(key, b"2") for key in reversed(keys)])
    log.log.roll()
    assert log.clean_all() > 5
    assert log.pairs() == [(key, b"2") for key in reversed(keys)]
    assert log.log.cleaned_offset == 40


def test_a_full_map_with_gaps_makes_progress() -> None:
    """KAFKA-8764: gaps between offsets made the cleaner begin again and again."""
    log = Compaction(settings=CleanerSettings(dedupe_buffer_bytes=24 * 3, load_factor=1.0, io_buffer_bytes=1))
    random_keys = random.Random(4)
    for _ in range(30):
        log.put([(b"%d" % random_keys.randrange(6), b"x") for _ in range(4)])
    log.log.roll()
    log.clean_all()
    for _ in range(5):
        log.put([(b"%d" % random_keys.randrange(6), b"y") for _ in range(4)])
    log.log.roll()
    log.clean_all()
    keys = [key for key, _ in log.pairs()]
    assert len(keys) == len(set(keys)) and log.log.cleaned_offset == 140


# Transactions


def test_aborted_records_go_and_do_not_replace_others() -> None:
    log = Compaction()
    log.put([(b"a", b"1")])
    log.put([(b"a", b"2")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.marker(1, abort=True)
    log.put([(b"b", b"1")], producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    log.marker(1, abort=False)
    log.log.roll()
    log.clean()
    assert [pair for pair in log.pairs() if pair[0] in (b"a", b"b")] == [(b"a", b"1"), (b"b", b"1")]


def test_markers_go_after_all_records_of_their_transaction_and_the_retention() -> None:
    log = Compaction(compacted(delete_retention_ms=RETENTION_MS))
    for key, producer_id, abort in ((b"a", 1, True), (b"b", 2, False), (b"b", 3, False)):
        log.put([(key, b"1")], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        log.marker(producer_id, abort=abort)
    log.log.roll()
    log.log.producer_state.remove_expired(NOW * 2)  # so that no batch is kept for its sequence

    def controls() -> list[int]:
        return [header.producer_id for header in log.headers() if header.is_control]

    def again(after_ms: int) -> None:
        log.clock.now += after_ms
        log.put([(b"z", b"1")])
        log.log.roll()
        log.clean()

    log.clean()
    # The batch of 1 was there when the marker was met, so the marker is not found useless before the next round.
    assert controls() == [1, 2, 3]
    again(0)
    assert controls() == [1, 2, 3]
    again(RETENTION_MS)
    assert controls() == [3], "of the third transaction a record is left"
    assert [pair for pair in log.pairs() if pair[0] in (b"a", b"b")] == [(b"b", b"1")]


def test_the_transaction_index_keeps_what_still_counts() -> None:
    log = Compaction()
    log.put([(b"x", b"1")])
    log.put([(b"a", b"1")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.marker(1, abort=True)
    log.put([(b"x", b"2")])
    log.log.roll()
    before = log.log.aborted_transactions(0, 4)
    log.clean()
    assert log.log.aborted_transactions(0, 4) == before != []
    log.restart()
    assert log.log.aborted_transactions(0, 4) == before


# Producers


def test_the_last_batch_of_a_producer_stays_as_an_empty_one() -> None:
    log = Compaction()
    log.put([(b"a", b"1"), (b"a", b"2")], producer_id=5, producer_epoch=1, base_sequence=0)
    log.put([(b"a", b"3")])
    log.log.roll()
    log.clean()
    first, second = batches(log.log)
    assert (first[0].count, first[0].last_offset, first[0].last_sequence, first[0].base_timestamp) == (0, 1, 1, -1)
    assert first[1] == [] and second[0].base_offset == 2
    log.fs.restart(power_loss=False)
    for name in log.fs.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            log.fs.remove(f"{DIRECTORY}/{name}")
    log.start()
    entry = log.log.producer_state.producers[5]
    assert (entry.producer_epoch, entry.last_sequence) == (1, 1)
    log.put([(b"a", b"4")], producer_id=5, producer_epoch=1, base_sequence=2)


def test_an_emptied_batch_is_no_answer_to_questions_about_time() -> None:
    log = Compaction()
    log.put([(b"b", b"1")])
    log.put([(b"a", b"1")], producer_id=5, producer_epoch=1, base_sequence=0, timestamp=NOW + 100)
    log.put([(b"a", b"2")])
    log.log.roll()
    log.clean()
    assert [header.count for header in log.headers()] == [1, 0, 1]
    assert log.log.offset_of_max_timestamp() == (NOW, 0, 0)
    assert log.log.offset_for_timestamp(NOW + 1) is None
    log.put([(b"c", b"1")], timestamp=NOW + 50)
    assert log.log.offset_for_timestamp(NOW + 1) == (NOW + 50, 3, 0)


def test_the_last_batch_of_the_range_stays_so_that_the_end_is_known() -> None:
    log = Compaction(compacted(delete_retention_ms=0))
    log.put([(b"a", b"1")])
    log.put([(b"b", None)])
    log.log.roll()
    log.clean()
    log.put([(b"z", b"1")])
    log.log.roll()
    log.put([(b"z", b"2")])
    log.log.roll()
    log.clean()
    assert [(header.base_offset, header.count) for header in log.headers()] == [(0, 1), (3, 1)]
    assert log.pairs() == [(b"a", b"1"), (b"z", b"2")]


# Files


def test_segments_become_one_within_their_limits() -> None:
    log = Compaction(compacted(segment_bytes=1000))
    for number in range(12):
        log.put([(b"k%d" % (number % 2), b"x" * 200)])
        log.log.roll()
    assert len(log.log.segments) == 13
    log.clean()
    assert [segment.base_offset for segment in log.log.segments] == [0, 3, 6, 9, 12]
    log.put([(b"k9", b"x")])
    log.log.roll()
    log.clean()
    assert [segment.base_offset for segment in log.log.segments] == [0, 13], "the small ones again"
    assert log.offsets() == [10, 11, 12]
    names = [name for name in log.fs.listdir(DIRECTORY) if name.endswith(LOG)]
    assert names == [f"{base:020d}.log" for base in (0, 13)]


def test_old_files_go_after_their_delay_and_readers_keep_them() -> None:
    log = Compaction(compacted(file_delete_delay_ms=5000))
    log.put([(b"a", b"1")])
    log.put([(b"a", b"2")])
    log.log.roll()
    found = log.log.read(0, 1000, up_to=2)
    assert found is not None
    before = found.read()
    log.clean()
    assert found.read() == before
    assert [name for name in log.fs.listdir(DIRECTORY) if name.endswith(".log.deleted")]
    log.clock.now += 5000
    asyncio.run(log.logs.background(log.clock.now))
    assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith(".log.deleted")]
    assert found.read() == before
    assert log.log.read(0, 1000, up_to=2).read() != before  # type: ignore[union-attr]


def test_indexes_lead_to_the_records() -> None:
    log = Compaction(compacted(segment_bytes=3000))
    for number in range(60):
        log.put([(b"k%d" % (number % 20), b"x" * 50), (b"same", b"y")], timestamp=NOW + number * 10)
    log.log.roll()
    log.clean()
    log.restart()
    records = log.records()
    for offset in range(log.log.log_end_offset):
        found = log.log.read(offset, 1, up_to=log.log.log_end_offset)
        expected = next((each.offset for each in records if each.offset >= offset), None)
        assert found is not None, "the last batch of what was cleaned stays, even empty"
        headers = [header for _, header in iterate_batches(found.read())]
        assert headers[0].last_offset >= offset
        assert expected is None or headers[0].base_offset <= expected
    for record in records:
        earliest = next(each for each in records if each.timestamp >= record.timestamp)
        assert log.log.offset_for_timestamp(record.timestamp)[:2] == (earliest.timestamp, earliest.offset)  # type: ignore[index]
    assert log.log.max_timestamp_ms == max(each.timestamp for each in records)
    assert log.log.end_offset_for_epoch(0) == (0, log.log.log_end_offset)


def test_a_file_keeps_the_time_of_the_newest_original() -> None:
    log = Compaction()
    for number in range(2):
        log.fs.now_ms = lambda number=number: 1000 + number  # type: ignore[misc]
        log.put([(b"a", b"%d" % number)])
        log.log.roll()
    log.fs.now_ms = lambda: 9000
    log.clean()
    assert log.fs.mtime_ms(log.log.segments[0].path(LOG)) == 1001


def test_nothing_is_rewritten_where_nothing_changes() -> None:
    log = Compaction(compacted(segment_bytes=130))
    log.put([(b"a", b"x" * 50)])
    log.log.roll()
    log.put([(b"b", b"x" * 50)])
    log.log.roll()
    before = log.log.segments
    log.clean()
    assert log.log.segments == before
    assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith((".cleaned", ".log.deleted"))]


def test_compact_and_delete_together() -> None:
    log = Compaction(compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000, segment_bytes=200))
    for number in range(4):
        log.put([(b"k%d" % number, b"x" * 100), (b"a", b"%d" % number)])
        log.log.roll()
        log.clock.now += 400
    log.clean()
    assert log.log.delete_old_segments(log.clock.now) == 2
    assert log.log.log_start_offset == 4
    assert log.pairs() == [(b"k2", b"x" * 100), (b"k3", b"x" * 100), (b"a", b"3")]
    log.restart()
    assert log.log.log_start_offset == 4
    assert log.log.cleaned_offset == 8


# Interruptions


@pytest.mark.parametrize("from_end", [2, 3], ids=["in a value", "in the length of one"])
def test_damage_makes_a_log_uncleanable_and_is_not_given_a_right_checksum(from_end: int) -> None:
    """In a value nothing but the checksum shows it."""
    log = Compaction()
    log.put([(b"a", b"1")])
    log.put([(b"a", b"2"), (b"b", b"1")])
    log.log.roll()
    path = log.log.segments[0].path(LOG)
    log.fs.flip_bit(path, bit=(log.fs.size(path) - from_end) * 8)
    content = log.fs.read_bytes(path)
    assert not log.clean()
    assert log.cleaner.uncleanable == {log.log}
    assert log.fs.read_bytes(path) == content
    assert not log.clean()
    assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith(".cleaned")]


@pytest.mark.parametrize("what", ["truncate", "start over", "delete", "policy", "stop", "retention"])
def test_a_changed_log_ends_its_cleaning(what: str) -> None:
    config = compacted(cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=130)
    log = Compaction(config)
    for number in range(6):
        log.put([(b"a", b"x" * 40)], timestamp=NOW + number)
        log.log.roll()

    async def scenario() -> None:
        task = asyncio.create_task(log.cleaner.clean_dirtiest())
        while not any(name.endswith(".cleaned") for name in log.fs.listdir(DIRECTORY)):  # noqa: ASYNC110 - the disk sets no event
            await asyncio.sleep(0)
        if what == "truncate":
            await log.logs.truncate({log.log: 4})
        elif what == "start over":
            log.log.truncate_fully_and_start_at(2)
        elif what == "delete":
            log.logs.delete(KEY)
        elif what == "policy":
            log.log.update_config(LogConfig())
        elif what == "stop":
            await log.cleaner.stop()
        else:
            log.log.advance_log_start(3)
            log.log.delete_old_segments(NOW)
        assert not await task

    asyncio.run(scenario())
    assert log.cleaner.uncleanable == set()
    left = [path for path in log.fs.files() if path.endswith((".cleaned", ".swap"))]
    assert not [path for path in left if "-delete/" not in path], "what is deleted goes as a whole"
    expected = {"truncate": 4, "start over": 2, "retention": 6}.get(what)
    if expected is not None:
        assert log.log.log_end_offset == expected
        assert log.log.cleaned_offset is not None and log.log.cleaned_offset <= expected


def test_truncation_takes_the_clean_point_with_it() -> None:
    log = Compaction()
    for value in (b"1", b"2", b"3"):
        log.put([(b"a", value)])
    log.log.roll()
    log.clean()
    assert log.log.cleaned_offset == 3
    assert asyncio.run(log.logs.truncate({log.log: 1})) == {}
    assert log.log.cleaned_offset == 1
    assert log.fs.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b"0\n1\nt 0 1\n"
    log.logs.delete(KEY)
    log.logs.create(KEY, log.log.topic_id, log.config)  # type: ignore[arg-type]
    assert log.fs.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b"0\n0\n"


def test_gaps_are_no_damage_once_a_log_was_compacted() -> None:
    """The policy was changed since, and the process killed before any recovery point was written."""
    log = Compaction(compacted(segment_bytes=130))
    for number in range(6):
        log.put([(b"a", b"%d" % number * 40)])
        log.log.roll()
    log.put([(b"b", b"1")])
    log.clean()
    log.fs.restart(power_loss=False)
    log.config = LogConfig()
    log.start()
    assert log.pairs() == [(b"a", b"5" * 40), (b"b", b"1")]


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_gap_that_the_cleaner_made_is_no_loss(power_loss: bool) -> None:
    """It lies below the recovery point that is on disk, although none was due to be written."""
    log = Compaction(compacted(segment_bytes=130))
    for key in (b"a", b"b", b"c", b"a", b"b"):
        log.put([(key, b"1" * 40)])
        log.log.roll()
    log.put([(b"d", b"1")])
    log.clean_all()
    assert log.log.segments[0].base_offset == 0
    assert log.log.segments[1].base_offset > log.offsets()[0] + 1 or log.offsets()[0] > 0
    pairs, end = log.pairs(), log.log.log_end_offset
    log.fs.restart(power_loss=power_loss)
    log.start()
    assert log.pairs()[: len(pairs) - 1] == pairs[:-1]
    assert power_loss or (log.pairs(), log.log.log_end_offset) == (pairs, end)


@pytest.mark.parametrize("lost", ["the end of one", "a whole one"])
def test_a_gap_that_a_power_failure_made_is_a_loss(lost: str) -> None:
    """The name of a segment can be on disk when the records before it are not."""
    log = Compaction(compacted(segment_bytes=130))
    log.put([(b"a", b"1" * 40)])
    log.log.flush()
    log.logs.shutdown()
    log.start()
    for key in (b"b", b"c", b"d"):
        log.log.roll()
        log.put([(key, b"1" * 40)])
    bases = [segment.base_offset for segment in log.log.segments]
    log.fs.restart(power_loss=False)
    path = f"{DIRECTORY}/{bases[-2]:020d}.log"
    if lost == "a whole one":
        log.fs.remove(path)
    else:
        log.fs.open(path).truncate(0)
    log.start()
    assert log.pairs() == [(b"a", b"1" * 40), (b"b", b"1" * 40)]
    assert log.log.log_end_offset == bases[-2]


def test_a_log_that_was_cut_in_a_gap_ends_there_after_a_kill() -> None:
    """The empty segment behind the gap says where; the gap is no loss, although no recovery point covers it."""
    log = Compaction(compacted(segment_bytes=300))
    for number in range(24):
        log.put([(b"%d" % (number * 5 % 7), b"%d" % number * 20)])
        if number % 3 == 2:
            log.log.roll()
    log.clean_all()
    asyncio.run(log.logs.truncate({log.log: 4}))
    assert log.log.log_end_offset == 4
    log.fs.restart(power_loss=False)
    log.start()
    assert log.log.log_end_offset == 4


def test_a_log_of_kafka_may_have_gaps_anywhere() -> None:
    """Kafka's cleaner waits for no recovery point: where it ran, the mark is gone, and gaps count as its work."""
    log = Compaction(compacted(segment_bytes=130))
    for number in range(4):
        log.put([(b"%d" % number, b"1" * 40)])
        log.log.roll()
    log.fs.restart(power_loss=False)
    log.fs.remove(f"{DIRECTORY}/{FSYNCED_GAPS}")
    log.fs.remove(f"{DIRECTORY}/{1:020d}.log")
    log.start()
    assert log.offsets() == [0, 2, 3]
    log.put([(b"5", b"1" * 40)])
    log.log.roll()
    assert not log.fs.exists(f"{DIRECTORY}/{FSYNCED_GAPS}")
    log.restart()
    log.put([(b"6", b"1" * 40)])
    log.log.roll()
    assert log.fs.exists(f"{DIRECTORY}/{FSYNCED_GAPS}")


def test_the_newer_record_is_on_disk_before_the_older_one_goes() -> None:
    log = Compaction(compacted(segment_bytes=130))
    log.put([(b"a", b"1" * 40)])
    log.log.roll()
    log.log.flush()
    log.put([(b"a", b"2" * 40)])
    log.log.roll()
    assert log.log.durable_offset == 1
    log.clean()
    assert log.log.durable_offset >= 2


# The driver


def test_workers_follow_the_settings() -> None:
    log = Compaction(settings=CleanerSettings(backoff_ms=3_600_000, io_buffer_bytes=1))

    async def scenario() -> None:
        log.cleaner.start()
        await asyncio.sleep(0)
        for value in (b"1", b"2"):
            log.put([(b"a", value * 200)])
        log.log.roll()
        log.settings = log.settings._replace(backoff_ms=0, threads=2, io_bytes_per_second=1e6)
        log.cleaner.settings_changed()
        while log.log.cleaned_offset != 2:  # noqa: ASYNC110 - nobody but the checkpoint tells
            await asyncio.sleep(0.001)
        assert len(log.cleaner._workers) == 2
        log.settings = log.settings._replace(threads=1)
        log.cleaner.settings_changed()
        while len(log.cleaner._workers) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await log.cleaner.stop()
        assert not log.cleaner._workers

    asyncio.run(asyncio.wait_for(scenario(), 300))
    assert log.pairs() == [(b"a", b"2" * 200)]


def test_the_rate_is_kept_over_all_cleanings() -> None:
    throttle = Throttle()
    assert throttle.delay(100, 1000, now=5.0) == pytest.approx(0.1)
    assert throttle.delay(100, 1000, now=5.05) == pytest.approx(0.15)
    assert throttle.delay(100, 1000, now=7.0) == pytest.approx(0.1), "an idle time is not saved up"
    assert throttle.delay(10**9, 1.7976931348623157e308, now=8.0) == 0


def test_a_disabled_cleaner_does_nothing() -> None:
    log = Compaction(settings=CleanerSettings(enable=False))

    async def scenario() -> None:
        log.cleaner.start()
        assert not log.cleaner._workers
        await log.cleaner.stop()

    asyncio.run(scenario())


def test_a_log_with_nothing_to_clean_is_not_looked_into() -> None:
    """There may be ten thousand: no file is opened, no list copied."""
    log = Compaction()
    log.put([(b"a", b"1")])
    log.log.roll()
    log.clean()
    log.fs.fail("open")
    log.fs.fail("read")
    assert log.cleaner.choose(NOW) is None
    with pytest.raises(OSError):  # else nothing would have been noticed
        log.fs.open(DIRECTORY)
    with pytest.raises(OSError):
        log.fs.read_bytes(log.log.segments[0].path(LOG))
