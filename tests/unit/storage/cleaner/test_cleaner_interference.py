"""What happens to a log while it is compacted, and what compaction finds that is not as it should be."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from ottla.drivers.logs.log_cleaner import LogCleaner
from ottla.filesystem import FileSystem
from ottla.protocol.records.record_batch import MAGIC_POSITION
from ottla.storage.checkpoints.offset_checkpoint import RECOVERY_POINT_CHECKPOINT
from ottla.storage.cleaner.cleaner_manager import GROUP_SEGMENTS_MAX
from ottla.storage.cleaner.cleaner_round import GroupCleaner, MapBuilder
from ottla.storage.cleaner.cleaner_writer import CleanedSegments, NewSegment
from ottla.storage.config import LogConfig
from ottla.storage.recovery.interrupted_work import finish_interrupted_work
from ottla.storage.segments.segment_files import LOG, SUFFIXES
from ottla.storage.segments.segment_list import CLEANED, SWAP
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.storage.compaction import Compaction, compacted
from tests.unit.storage.logs import DIRECTORY, KEY, NOW, ROOT, new_disk

BOTH = compacted(cleanup_policy=frozenset({"compact", "delete"}))


def dirty(count: int = 6, config: LogConfig = BOTH) -> Compaction:
    """A segment for each record of a key."""
    log = Compaction(config)
    for number in range(count):
        log.put([(b"a", b"%d" % number * 40)], timestamp=NOW + number)
        log.log.roll()
    return log


@pytest.mark.parametrize("step", [MapBuilder, GroupCleaner])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_retention_may_take_segments_of_a_group_that_is_being_cleaned(
    step: type[MapBuilder | GroupCleaner], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the segments that come next have other names then, which is no fault of the log's."""
    log = dirty()
    original, taken = step.step, 0

    def and_retention(*arguments: object) -> int:
        nonlocal taken
        taken += 1
        if taken == steps:
            log.log.advance_log_start(5)
            assert log.log.delete_old_segments(NOW) == 5
        return original(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(step, "step", and_retention)
        log.clean()
    assert taken >= steps
    assert not log.cleaner.uncleanable
    log.put([(b"a", b"x")])
    log.log.roll()
    assert log.clean_all()
    assert log.pairs() == [(b"a", b"x")]
    assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith((CLEANED, SWAP))]


def test_a_topic_may_be_deleted_and_made_again_while_it_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty()
    assert log.log.topic_id is not None
    old, original = log.log, CleanedSegments.finish

    def and_a_new_topic(self: CleanedSegments, mtime_ms: int) -> list[NewSegment]:
        if log.log is old:
            log.logs.delete(KEY)
            log.log = log.logs.create(KEY, log.log.topic_id, BOTH)  # type: ignore[arg-type]
            log.put([(b"new", b"1"), (b"new", b"2")])
            log.log.roll()
        return original(self, mtime_ms)

    monkeypatch.setattr(CleanedSegments, "finish", and_a_new_topic)
    assert not log.clean()
    assert log.pairs() == [(b"new", b"1"), (b"new", b"2")]
    assert log.clean() and not log.cleaner.uncleanable
    assert log.pairs() == [(b"new", b"2")]


def test_originals_stay_when_what_should_replace_them_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty()
    original = CleanedSegments.finish

    def and_lose_it(self: CleanedSegments, mtime_ms: int) -> list[NewSegment]:
        finished = original(self, mtime_ms)
        log.fs.remove(f"{DIRECTORY}/{0:020d}{LOG}{CLEANED}")
        return finished

    with monkeypatch.context() as patch:
        patch.setattr(CleanedSegments, "finish", and_lose_it)
        assert not log.clean()
    log.fs.restart(power_loss=False)
    log.start()
    assert [value for _, value in log.pairs()] == [b"%d" % number * 40 for number in range(6)]


def test_an_older_message_format_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """A directory may have segments from before Kafka 0.11, which nobody reads here."""
    log = dirty(3)
    path = log.log.segments[1].path(LOG)
    content = bytearray(log.fs.read_bytes(path))
    content[MAGIC_POSITION] = 1
    log.log.segments[1].open().file.pwrite((content,), 0)
    with caplog.at_level(logging.INFO, "ottla.cleaner"):
        assert not log.clean()
    assert log.cleaner.uncleanable == {log.log}
    assert log.cleaner.dirty_bytes(log.log) > 2 * len(content)
    ((level, error),) = [(each.levelname, vars(each)["ottla_fields"]["error"]) for each in caplog.records]
    assert level == "ERROR" and "message format 1" in error
    assert log.fs.read_bytes(path) == content
    log.logs.delete(KEY)
    assert not log.cleaner.uncleanable


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.ENOSPC])
def test_what_passes_is_tried_again(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty()

    def fail(*_: object) -> int:
        raise OSError(number, "for now")

    with monkeypatch.context() as patch:
        patch.setattr(MapBuilder, "step", fail)
        assert not log.clean()
    assert not log.cleaner.uncleanable
    assert log.clean()


def test_a_recovery_point_that_finds_no_room_is_tried_again() -> None:
    """It is written before the first segment is replaced; that it cannot be says nothing about the log."""
    log = dirty()
    log.fs.fail("write", errno.ENOSPC, path=RECOVERY_POINT_CHECKPOINT, times=1)
    assert not log.clean()
    assert not log.cleaner.uncleanable
    assert log.clean()


def test_gaps_are_no_damage_when_nobody_knows_what_was_compacted() -> None:
    """The checkpoint that tells is damaged, the policy was changed, the process killed."""
    log = dirty(config=compacted(segment_bytes=130))
    log.put([(b"b", b"1")])
    log.clean()
    expected = log.pairs()
    log.fs.restart(power_loss=False)
    log.fs.write_atomic(f"{ROOT}/cleaner-offset-checkpoint", b"0\n9\nt 0")
    log.config = LogConfig()
    log.start()
    assert log.pairs() == expected
    assert log.log.cleaned_offset == 0


def test_a_cleaning_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = dirty()
    log.log.update_config(LogConfig())
    log.put([(None, b"from before the policy")])
    log.log.roll()
    log.log.update_config(BOTH)
    with caplog.at_level(logging.INFO, "ottla.cleaner"):
        assert log.clean()
    assert [each.message.split(" records=")[0] for each in caplog.records] == [
        "compacted",
        "records without a key were removed",
    ]
    totals, last = log.cleaner.totals, log.cleaner.last
    assert last is not None and last.records_read == 7 and last.records_kept == 1
    assert totals.cleanings == 1 and totals.bytes_written == last.bytes_written
    assert log.pairs() == [(b"a", b"5" * 40)]


def test_the_event_loop_is_not_kept_waiting_by_the_files_of_many_segments() -> None:
    log = dirty(2 * GROUP_SEGMENTS_MAX + 1)
    log.clean()
    assert len(log.log.segments) == 3 + 1, "one for each group, and the active one"
    log.put([(b"a", b"x")])
    log.log.roll()
    log.clean()
    assert len(log.log.segments) == 1 + 1, "together in the end"


def swapped() -> FileSystem:
    fs = new_disk()
    fs.makedirs(DIRECTORY)
    for base_offset in (0, 5):
        for suffix in SUFFIXES:
            fs.write_atomic(f"{DIRECTORY}/{base_offset:020d}{suffix}{SWAP}", f"new {base_offset}{suffix}".encode())
    return fs


def test_a_start_that_crashes_while_it_finishes_a_swap_loses_no_file() -> None:
    """The log gets its name before its indexes: a .swap log makes whatever else has its offset the original's, and a
    second start would remove an index that the first had finished."""
    for step in range(9):
        fs = swapped()
        fs.crash_after(step)  # type: ignore[attr-defined]
        try:
            finish_interrupted_work(fs, DIRECTORY, fs.listdir(DIRECTORY))
        except SimulatedCrash:
            assert step < 8
        fs.restart(power_loss=False)  # type: ignore[attr-defined]
        finish_interrupted_work(fs, DIRECTORY, fs.listdir(DIRECTORY))
        assert {name: fs.read_bytes(f"{DIRECTORY}/{name}") for name in fs.listdir(DIRECTORY)} == {
            f"{base_offset:020d}{suffix}": f"new {base_offset}{suffix}".encode()
            for base_offset in (0, 5)
            for suffix in SUFFIXES
        }, step


def test_a_stop_does_not_wait_for_the_rate() -> None:
    log = dirty()
    log.settings = log.settings._replace(io_bytes_per_second=0.001)

    async def scenario() -> None:
        log.cleaner.start()
        while not log.cleaner._in_progress:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)
        await log.cleaner.stop()

    asyncio.run(asyncio.wait_for(scenario(), 300))
    assert len(log.pairs()) == 6


def test_a_cleaning_that_found_no_room_is_tried_after_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty()
    log.settings = log.settings._replace(backoff_ms=12_345)
    log.fs.fail("write", errno.ENOSPC, path=CLEANED, times=1)
    waited: list[tuple[float, bool]] = []

    async def wait(cleaner: LogCleaner, seconds: float) -> None:
        waited.append((seconds, bool(cleaner.totals.cleanings)))
        if len(waited) == 2:
            cleaner._stopping = True

    monkeypatch.setattr(LogCleaner, "_wait", wait)

    async def scenario() -> None:
        log.cleaner.start()
        while log.cleaner._workers:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(scenario(), 300))
    assert waited == [(12.345, False), (12.345, True)]
    assert log.pairs() == [(b"a", b"5" * 40)]


@pytest.mark.parametrize("enough", [True, False])
def test_a_cleaning_needs_room_for_one_more_segment(enough: bool) -> None:
    """What was replaced before the disk was full stays replaced, and makes room once the old files go."""
    log = Compaction(compacted(segment_bytes=1000, file_delete_delay_ms=60_000))
    for number in range(40):
        log.put([(b"%d" % number, bytes(100)), (b"again", bytes(40))])
    log.log.roll()
    log.log.flush()
    expected = dict(log.pairs())
    assert len(log.log.segments) > 5
    files = 200  # checkpoints and indexes
    log.fs.capacity_bytes = sum(map(len, log.fs.files().values())) + (1000 if enough else 100) + files
    cleanings = 0
    while not log.clean() and cleanings < 20:
        cleanings += 1
        log.clock.now += 60_000
        asyncio.run(log.logs.background(log.clock.now))
    assert dict(log.pairs()) == expected
    assert 1 <= cleanings < 20 if enough else cleanings == 20
