from __future__ import annotations

import asyncio
import errno

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import iterate_batches, read_batch_header
from ottla.storage.config import LogConfig
from ottla.storage.log.log import ColdRead
from ottla.storage.log.log_loader import load_log
from ottla.storage.log.validation import COORDINATOR
from tests.unit.storage.logs import DIRECTORY, NOW, ROOT, all_offsets, append, batch, load, new_disk, read_offsets

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=100)


def code(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_a_new_log_is_empty() -> None:
    log = load(new_disk(), log_start_offset=0)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 0, 0, 0)
    assert log.read(0, 100, up_to=0) is None
    assert log.latest_epoch is None
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    assert (log.epoch_for_offset(0), log.end_offset_for_epoch(3)) == (-1, (-1, -1))


def test_appends_get_offsets_and_epoch_in_place() -> None:
    log = load(new_disk())
    info = append(log, 3, epoch=4)
    assert (info.first_offset, info.last_offset) == (0, 2)
    sent = batch(2)
    info = log.append_as_leader(memoryview(sent), 4, now_ms=NOW)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms, info.size_bytes) == (3, 4, -1, len(sent))
    assert (info.max_timestamp_ms, info.leader_epoch, info.batch_count) == (NOW + 1, 4, 1)
    assert not info.is_duplicate and not info.needs_flush
    header = read_batch_header(sent)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    found = log.read(3, 10_000, up_to=5)
    assert found is not None and found.read() == sent


def test_every_offset_of_a_batch_finds_the_batch() -> None:
    log = load(new_disk(), SMALL)
    for count in (3, 1, 5, 2, 7, 4) * 6:
        append(log, count, size=40)
    assert len(log.segments) == 5
    for offset in range(log.log_end_offset):
        assert offset in read_offsets(log, offset, 1)
        assert offset in read_offsets(log, offset, 700)
    assert all_offsets(log) == list(range(log.log_end_offset))


def test_reads_are_whole_batches_within_the_limit() -> None:
    log = load(new_disk(), LogConfig(index_interval_bytes=1000))
    sizes = [append(log, 1, size=150).size_bytes for _ in range(40)]
    assert len(set(sizes)) == 1
    for limit in range(1, 3000, 77):
        found = log.read(0, limit, up_to=40)
        assert found is not None
        data = found.read()
        assert sum(header.size for _, header in iterate_batches(data)) == len(data)
        assert len(data) <= max(limit, sizes[0])
        assert len(data) + sizes[0] > limit or len(data) + 1000 + sizes[0] > limit
    assert log.read(0, sizes[0] - 1, up_to=40, min_one_batch=False) is None


def test_a_bound_hides_what_is_above_it() -> None:
    log = load(new_disk(), SMALL)
    for _ in range(30):
        append(log, 2, size=40)
    assert read_offsets(log, 0, up_to=6) == [0, 1, 2, 3, 4, 5]
    assert read_offsets(log, 4, up_to=6) == [4, 5]
    assert read_offsets(log, 6, up_to=6) == []
    assert read_offsets(log, 7, up_to=6) == []
    assert read_offsets(log, 4, up_to=7) == [4, 5]  # a batch is visible as a whole or not at all


@pytest.mark.parametrize("offset", [-1, 3, 11, 1000])
def test_offsets_out_of_range(offset: int) -> None:
    log = load(new_disk())
    append(log, 10)
    log.delete_records(4)
    with pytest.raises(KafkaError) as error:
        log.read(offset, 100, up_to=10)
    assert code(error) is ErrorCode.offset_out_of_range


def test_segments_roll_by_size_time_and_index() -> None:
    log = load(new_disk(), LogConfig(segment_bytes=500))
    for _ in range(9):
        append(log, 1, size=100)
    assert all(segment.size <= 500 for segment in log.segments) and len(log.segments) > 2

    log = load(new_disk(), LogConfig(segment_ms=1000))
    for timestamp in (NOW, NOW + 1000, NOW + 1001, NOW + 1500):
        append(log, 1, timestamp=timestamp)
    assert [segment.base_offset for segment in log.segments] == [0, 2]

    log = load(new_disk(), LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(8):
        append(log)
    assert len(log.segments) > 2


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    log = load(new_disk(), LogConfig(segment_ms=1000))
    log.append_as_leader(batch(1, timestamp=-1), 0, now_ms=NOW)
    log.append_as_leader(batch(1, timestamp=-1), 0, now_ms=NOW + 1000)
    assert len(log.segments) == 1
    log.append_as_leader(batch(1, timestamp=-1), 0, now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = load(new_disk(), LogConfig(segment_bytes=200))
    with pytest.raises(KafkaError) as error:
        append(log, 1, size=300)
    assert code(error) is ErrorCode.record_list_too_large
    assert log.log_end_offset == 0


def test_log_append_time() -> None:
    log = load(new_disk(), LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, 2, timestamp=5)
    assert (info.log_append_time_ms, info.max_timestamp_ms) == (NOW, NOW)
    assert log.offset_for_timestamp(NOW) == (NOW, 0, 0)


def test_retries_of_idempotent_producers_are_not_appended() -> None:
    log = load(new_disk())
    sent = [batch(2, producer_id=9, producer_epoch=0, base_sequence=2 * number) for number in range(6)]
    first = [log.append_as_leader(bytearray(data), 0, now_ms=NOW) for data in sent]
    for data, original in list(zip(sent, first, strict=True))[1:]:
        again = log.append_as_leader(bytearray(data), 0, now_ms=NOW)
        assert (again.is_duplicate, again.first_offset, again.last_offset, again.size_bytes) == (
            True,
            original.first_offset,
            original.last_offset,
            0,
        )
    assert log.log_end_offset == 12
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(batch(1, producer_id=9, producer_epoch=0, base_sequence=40), 0, now_ms=NOW)
    assert code(error) is ErrorCode.out_of_order_sequence_number


def test_followers_take_the_leaders_offsets() -> None:
    log = load(new_disk(), LogConfig(cleanup_policy=frozenset({"compact"})))
    data = batch(2, base_offset=0, leader_epoch=3) + batch(3, base_offset=5, leader_epoch=4)
    info = log.append_as_follower(data, now_ms=NOW)
    assert (info.first_offset, info.last_offset, info.batch_count, log.log_end_offset) == (0, 7, 2, 8)
    assert read_offsets(log, 2) == [5, 6, 7]  # a gap is skipped
    assert [tuple(entry) for entry in log.epochs.entries] == [(3, 0), (4, 5)]
    with pytest.raises(KafkaError):
        log.append_as_follower(batch(1, base_offset=7, leader_epoch=4), now_ms=NOW)


def test_an_empty_follower_takes_a_batch_that_its_leaders_log_starts_inside_of() -> None:
    """DeleteRecords moves the start of a log to any offset; what is fetched from there begins before it."""
    log = load(new_disk())
    log.truncate_fully_and_start_at(7)
    info = log.append_as_follower(batch(5, base_offset=4, leader_epoch=3), now_ms=NOW)
    assert (info.first_offset, info.last_offset, log.log_start_offset, log.log_end_offset) == (4, 8, 4, 9)
    log.high_watermark = 9
    log.advance_log_start(7)
    with pytest.raises(KafkaError, match="Unexpected offset"):
        log.append_as_follower(batch(5, base_offset=8, leader_epoch=3), now_ms=NOW)
    other = load(new_disk())
    other.truncate_fully_and_start_at(7)
    with pytest.raises(KafkaError, match="Unexpected offset"):
        other.append_as_follower(batch(3, base_offset=4, leader_epoch=3), now_ms=NOW)  # ends below


def test_epochs() -> None:
    log = load(new_disk())
    log.assign_epoch(0)
    append(log, 4, epoch=0)
    append(log, 3, epoch=2)
    log.assign_epoch(5)
    assert log.latest_epoch == 5
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 4, 5, 6)] == [
        (0, 4),
        (0, 4),
        (2, 7),
        (2, 7),
        (5, 7),
        (-1, -1),
    ]
    assert [log.epoch_for_offset(offset) for offset in (0, 3, 4, 7)] == [0, 0, 2, 5]


def test_look_up_by_time_on_a_log_out_of_order() -> None:
    log = load(new_disk(), SMALL)
    times = [10, 30, 20, 20, 50, 40, 45, 50, 60, 5] * 3
    for offset, timestamp in enumerate(times):
        assert append(log, 1, timestamp=timestamp, size=300).first_offset == offset
    for wanted in range(0, 70, 5):
        expected = next(((time, offset, 0) for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    assert log.offset_of_max_timestamp() == (60, 8, 0)


def test_look_up_by_time_never_goes_below_the_log_start() -> None:
    log = load(new_disk(), SMALL)
    for timestamp in (10, 90, 20, 30, 80, 40):
        append(log, 1, timestamp=timestamp, size=700)
    assert len(log.segments) == 3
    log.delete_records(2)
    assert log.offset_for_timestamp(0) == (20, 2, 0)
    assert log.offset_for_timestamp(50) == (80, 4, 0)  # the first segment that reaches 50 does so below the start
    assert log.offset_of_max_timestamp() == (80, 4, 0)
    log.delete_records(5)
    assert log.offset_for_timestamp(41) is None
    assert log.offset_of_max_timestamp() == (40, 5, 0)


def test_max_timestamp_is_the_record_inside_the_batch() -> None:
    log = load(new_disk())
    append(log, 1, timestamp=5)
    append(log, 4, timestamp=100)  # 100..103
    append(log, 1, timestamp=103)
    assert log.offset_of_max_timestamp() == (103, 4, 0)


def test_delete_records() -> None:
    log = load(new_disk(), SMALL)
    for _ in range(20):
        append(log, 1, size=300)
    append(log, 1, commit=False)
    assert log.delete_records(7) == 7
    assert log.delete_records(3) == 7  # never back
    assert log.log_start_offset == 7
    for bad in (21, -2):
        with pytest.raises(KafkaError) as error:
            log.delete_records(bad)
        assert code(error) is ErrorCode.offset_out_of_range
    before = len(log.segments)
    assert log.delete_old_segments(NOW) > 0
    assert len(log.segments) < before and log.segments[0].base_offset <= 7
    assert all_offsets(log)[-1] == 20
    assert log.delete_records(-1) == 20
    log.update_config(LogConfig(cleanup_policy=frozenset({"compact"})))
    with pytest.raises(KafkaError) as error:
        log.delete_records(20)
    assert code(error) is ErrorCode.policy_violation


def test_readers_keep_what_they_read_while_it_is_deleted() -> None:
    fs = new_disk()
    log = load(fs, LogConfig(segment_bytes=500, retention_ms=10, file_delete_delay_ms=1))
    for _ in range(6):
        append(log, 1, size=200)
    found = log.read(0, 10_000, up_to=6)
    assert found is not None
    expected = found.read()
    assert log.delete_old_segments(NOW + 1000) == 6
    for _, path in log.scheduled_deletions:
        fs.remove(path)
    assert found.read() == expected
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert append(log).first_offset == 6


def test_retention_by_size() -> None:
    log = load(new_disk(), LogConfig(segment_bytes=500, retention_bytes=1000, retention_ms=-1))
    for _ in range(12):
        append(log, 1, size=200)
    before = log.size_bytes
    count = log.delete_old_segments(NOW)
    assert before > log.size_bytes >= 1000
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert count and log.delete_old_segments(NOW) == 0


def test_retention_spares_what_is_not_committed() -> None:
    log = load(new_disk(), LogConfig(segment_bytes=500, retention_ms=10))
    for _ in range(6):
        append(log, 1, size=200, commit=False)
    assert log.delete_old_segments(NOW + 1000) == 0
    log.high_watermark = 3
    log.delete_old_segments(NOW + 1000)
    assert 0 < log.log_start_offset <= 3


def test_truncation() -> None:
    log = load(new_disk(), SMALL)
    for number in range(30):
        append(log, 2, epoch=number // 10, size=60, timestamp=NOW + number)
    log.truncate_to(100)
    assert log.log_end_offset == 60
    log.truncate_to(33)  # inside the batch 32..33, which goes as a whole
    assert all_offsets(log) == list(range(32))
    assert log.log_end_offset == 32
    assert log.latest_epoch == 1
    assert log.high_watermark == 32
    append(log, 2, epoch=7)
    assert all_offsets(log) == list(range(34))
    log.truncate_to(0)
    assert (log.log_end_offset, log.size_bytes, log.latest_epoch) == (0, 0, None)
    assert append(log, 1, epoch=8).first_offset == 0


def test_truncation_takes_producers_back() -> None:
    log = load(new_disk())
    for number in range(4):
        append(log, 1, producer_id=5, producer_epoch=0, base_sequence=number)
    log.truncate_to(2)
    info = append(log, 1, producer_id=5, producer_epoch=0, base_sequence=2)
    assert (info.is_duplicate, info.first_offset) == (False, 2)


def test_truncate_fully_and_start_at() -> None:
    log = load(new_disk(), SMALL)
    for _ in range(20):
        append(log, 1, size=300)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, len(log.segments)) == (1000, 1000, 1000, 1)
    assert append(log).first_offset == 1000


def test_the_high_watermark_stays_within_the_log_and_does_not_go_back() -> None:
    log = load(new_disk())
    append(log, 5, commit=False)
    log.high_watermark = 3
    log.high_watermark = 2
    assert log.high_watermark == 3
    log.high_watermark = 99
    assert log.high_watermark == 5


def test_open_transactions_hold_the_last_stable_offset() -> None:
    log = load(new_disk())
    append(log, 2)
    data = batch(2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(data, 0, now_ms=NOW, origin=COORDINATOR)
    append(log, 2)
    assert (log.high_watermark, log.last_stable_offset) == (6, 2)


def test_one_fsync_serves_all_who_wait() -> None:
    fs = new_disk()
    log = load(fs, LogConfig(flush_messages=1))
    infos = [append(log, 1, commit=False) for _ in range(10)]
    assert all(info.needs_flush for info in infos)
    runs = 0
    run = fs.run

    def counting(work: object) -> object:
        nonlocal runs
        runs += 1
        return run(work)  # type: ignore[arg-type]

    fs.run = counting  # type: ignore[method-assign,assignment]

    async def main() -> None:
        await asyncio.gather(*(log.flush_async(info.last_offset + 1) for info in infos))

    asyncio.run(main())
    assert runs == 1
    assert (log.durable_offset, log.recovery_point) == (10, 0)
    log.flush()
    assert log.recovery_point == 10


def test_appends_during_an_fsync_wait_for_the_next() -> None:
    fs = new_disk()
    log = load(fs, LogConfig(flush_messages=1))

    async def main() -> None:
        append(log)
        first = asyncio.ensure_future(log.flush_async(1))
        await asyncio.sleep(0)
        append(log)
        await log.flush_async(2)
        assert log.durable_offset == 2 and first.done()

    asyncio.run(main())


@pytest.mark.parametrize(("messages", "expected"), [(1, [True] * 4), (3, [False, False, True, True])])
def test_flush_messages_counts_records(messages: int, expected: list[bool]) -> None:
    log = load(new_disk(), LogConfig(flush_messages=messages))
    assert [append(log).needs_flush for _ in range(4)] == expected


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_takes_the_log_offline(number: int) -> None:
    """Also for want of space: the pages that did not fit are lost, unlike those of a write that was refused."""
    fs = new_disk()
    log = load(fs, LogConfig(flush_messages=1))
    append(log)
    fs.fail("fsync", number, path=ROOT)
    with pytest.raises(KafkaError) as error:
        asyncio.run(log.flush_async())
    assert code(error) is ErrorCode.kafka_storage_error
    fs.heal()
    for call in (lambda: append(log), lambda: log.read(0, 10, up_to=1), log.flush, log.roll):
        with pytest.raises(KafkaError) as error:
            call()
        assert code(error) is ErrorCode.kafka_storage_error
    log.close()  # without writing


def test_a_full_disk_refuses_an_append_and_the_log_goes_on() -> None:
    fs = new_disk()
    log = load(fs)
    append(log, 3)
    fs.capacity_bytes = sum(map(len, fs.files(ROOT).values())) + 50
    with pytest.raises(KafkaError) as error:
        append(log, 1, size=1000)
    assert code(error) is ErrorCode.kafka_storage_error
    fs.heal()
    assert append(log, 1, size=1000).first_offset == 3
    assert all_offsets(log) == [0, 1, 2, 3]


def test_a_cold_look_up_asks_to_be_warmed(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = new_disk()
    log = load(fs, SMALL)
    for _ in range(20):
        append(log, 1, size=300)
    log.close()
    log = load(fs, SMALL, clean_shutdown=True)
    found = log.read(1, 1000, up_to=20, nowait=True)
    assert found is not None
    file_type = type(found.file)
    monkeypatch.setattr(file_type, "pread_nowait", lambda self, length, position: None)
    with pytest.raises(ColdRead) as cold:
        log.read(6, 1000, up_to=20, nowait=True)
    cold.value.warm()
    monkeypatch.undo()
    assert log.read(6, 1000, up_to=20, nowait=True) is not None


def test_configuration_changes_apply_to_the_next_append() -> None:
    log = load(new_disk())
    append(log, 1, size=300)
    log.update_config(LogConfig(segment_bytes=500, max_message_bytes=450))
    append(log, 1, size=300)
    assert len(log.segments) == 2
    with pytest.raises(KafkaError) as error:
        append(log, 1, size=400)
    assert code(error) is ErrorCode.message_too_large


def test_renaming_for_deletion_closes_but_slices_live() -> None:
    fs = new_disk()
    log = load(fs)
    append(log, 2)
    found = log.read(0, 1000, up_to=2)
    log.rename_for_deletion()
    assert found is not None and found.read()
    assert log.directory.startswith(f"{ROOT}/t-0.") and log.directory.endswith("-delete")
    with pytest.raises(KafkaError):
        append(log)
    fs.rmtree(log.directory)
    assert fs.listdir(ROOT) == []


def test_long_topic_names_are_cut_for_deletion() -> None:
    fs = new_disk()
    name = "x" * 249
    log = load_log(
        fs,
        f"{ROOT}/{name}-0",
        TopicPartition(name, 0),
        None,
        LogConfig(),
        now_ms=NOW,
        random=__import__("random").Random(1),
    )
    log.rename_for_deletion()
    assert len(log.directory.rpartition("/")[2]) == 255


def test_closing_leaves_what_a_clean_start_needs() -> None:
    fs = new_disk()
    log = load(fs, SMALL)
    for number in range(20):
        append(log, 1, size=300, producer_id=3, producer_epoch=0, base_sequence=number, timestamp=NOW + number)
    log.close()
    names = fs.listdir(DIRECTORY)
    assert f"{20:020d}.snapshot" in names
    again = load(fs, SMALL, clean_shutdown=True, recovery_point=20)
    assert (again.log_end_offset, again.recovery_point, again.recovery.recovered_bytes) == (20, 20, 0)
    assert again.offset_of_max_timestamp() == (NOW + 19, 19, 0)
    assert append(again, 1, size=300, producer_id=3, producer_epoch=0, base_sequence=19).is_duplicate
