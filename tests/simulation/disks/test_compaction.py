"""A crash at every change that a cleaning makes to the disk, by a killed process and by lost power."""

from __future__ import annotations

import errno

import pytest

from ottla.drivers.logs.log_cleaner import CleanerSettings
from ottla.protocol.records.record_batch import Record
from ottla.storage.cleaner.cleaner_writer import CleanedSegments
from ottla.storage.config import LogConfig
from ottla.storage.segments.segment_list import CLEANED, SWAP
from ottla.testing.disk_nodes import SimulatedCrash
from tests.unit.storage.compaction import Compaction, compacted
from tests.unit.storage.logs import DIRECTORY

RETENTION_MS = 1000
CONFIG = compacted(segment_bytes=450, delete_retention_ms=RETENTION_MS)
SETTINGS = CleanerSettings(dedupe_buffer_bytes=24_000, io_buffer_bytes=1)


def scene(seed: int, config: LogConfig = CONFIG) -> Compaction:
    """A log that was cleaned before and is dirty again: tombstones whose time is over, transactions of both kinds."""
    log = Compaction(config, settings=SETTINGS, seed=seed)
    log.put([(b"gone", b"old"), (b"a", b"1")])
    for number in range(6):
        log.put([(b"k%d" % number, b"x" * 60), (b"shared", b"%d" % number)], codec=number % 5)
    log.put([(b"gone", None), (b"soon", b"1")])
    log.put([(b"t", b"aborted")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.marker(7, abort=True)
    log.put([(b"t", b"committed")], producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    log.marker(7, abort=False)
    log.log.roll()
    log.log.flush()
    assert log.clean_all() >= 1
    log.clock.now += 2 * RETENTION_MS
    for number in range(4):
        log.put([(b"k%d" % number, b"y" * 60), (b"shared", b"again %d" % number)])
        log.log.roll()
    log.put([(b"soon", None)])
    log.put([(b"u", b"undone")], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    log.put([(b"b", b"2")])
    log.marker(8, abort=True)
    log.log.roll()
    log.put([(b"last", b"active")])
    log.log.flush()
    log.fs.fsync_all()
    return log


def committed(log: Compaction) -> list[Record]:
    """Records for a read_committed consumer: without control records and aborted ones."""
    aborted = log.log.aborted_transactions(log.log.log_start_offset, log.log.log_end_offset)
    found = []
    for header in log.headers():
        gone = header.is_control or any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
        if not gone:
            found += [each for each in log.records() if header.base_offset <= each.offset <= header.last_offset]
    return found


def values(log: Compaction) -> dict[bytes | None, bytes | None]:
    """The last committed value of every key, deleted ones left out."""
    latest = {each.key: each.value for each in committed(log)}
    return {key: value for key, value in latest.items() if value is not None}


def restart(log: Compaction, *, power_loss: bool) -> None:
    log.fs.restart(power_loss=power_loss)
    log.start()
    log.log.high_watermark = log.log.log_end_offset


EXPECTED = {
    b"a": b"1", b"b": b"2", b"t": b"committed", b"shared": b"again 3", b"last": b"active",
    **{b"k%d" % number: (b"y" if number < 4 else b"x") * 60 for number in range(6)},
}  # fmt: skip


def test_the_scene_needs_a_cleaning_with_several_groups() -> None:
    log = scene(1)
    before = len(log.log.segments)
    assert values(log) == EXPECTED
    keys = [each.key for each in committed(log)]
    assert b"gone" in keys, "its tombstone goes in the cleaning that crashes"
    steps = log.fs.steps
    log.clean_all()
    assert 3 <= len(log.log.segments) < before
    assert log.fs.steps - steps > 60
    assert values(log) == EXPECTED
    keys = [each.key for each in committed(log)]
    assert b"gone" not in keys and b"soon" in keys and keys.count(b"shared") == 1


def steps_of_a_cleaning() -> int:
    log = scene(1)
    before = log.fs.steps
    log.clean_all()
    return log.fs.steps - before


@pytest.mark.parametrize("power_loss", [False, True])
def test_nothing_is_lost_and_nothing_comes_back(power_loss: bool) -> None:
    total = steps_of_a_cleaning()
    reference = scene(1)
    reference.clean_all()
    for step in range(total + 1):
        log = scene(step)
        producers = {
            producer_id: (entry.producer_epoch, entry.last_sequence, entry.current_txn_first_offset)
            for producer_id, entry in log.log.producer_state.producers.items()
        }
        log.fs.crash_after(step)
        if step < total:
            with pytest.raises(SimulatedCrash):
                log.clean_all()
        else:
            log.clean_all()
        restart(log, power_loss=power_loss)
        assert values(log) == EXPECTED, step
        assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith((CLEANED, SWAP))], step
        assert {
            producer_id: (entry.producer_epoch, entry.last_sequence, entry.current_txn_first_offset)
            for producer_id, entry in log.log.producer_state.producers.items()
        } == producers, step
        log.clean_all()
        assert values(log) == EXPECTED, step
        assert committed(log) == committed(reference), step


@pytest.mark.parametrize("power_loss", [False, True])
def test_gaps_of_a_cleaning_that_crashed_are_no_damage_for_another_policy(power_loss: bool) -> None:
    """Nothing but the checkpoint tells the next start that offsets may be missing."""
    for step in range(0, steps_of_a_cleaning(), 4):
        log = scene(step)
        log.fs.crash_after(step)
        with pytest.raises(SimulatedCrash):
            log.clean_all()
        log.config = LogConfig(segment_bytes=450)
        restart(log, power_loss=power_loss)
        assert values(log) == EXPECTED, step


def test_nothing_is_lost_where_segments_become_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when batches grow; the new ones are swapped in as one."""
    monkeypatch.setattr(CleanedSegments.__init__, "__defaults__", (160,))
    total = steps_of_a_cleaning()
    for step in range(0, total, 2):
        log = scene(step)
        log.fs.crash_after(step)
        with pytest.raises(SimulatedCrash):
            log.clean_all()
        restart(log, power_loss=bool(step % 4))
        assert values(log) == EXPECTED, step
        log.clean_all()
        assert values(log) == EXPECTED, step


def test_a_crash_while_the_start_finishes_a_swap() -> None:
    """Loading after a crash crashes as well, and the next start still finds the whole log."""
    total = steps_of_a_cleaning()
    again = 0
    for step in range(0, total, 3):
        for second in range(step % 7, 40, 7):
            log = scene(step)
            log.fs.crash_after(step)
            with pytest.raises(SimulatedCrash):
                log.clean_all()
            if not any(name.endswith(SWAP) for name in names_after_crash(log)):
                break
            log.fs.crash_after(second)
            try:
                log.start()
            except SimulatedCrash:
                again += 1
                restart(log, power_loss=bool(second % 2))
            log.log.high_watermark = log.log.log_end_offset
            assert values(log) == EXPECTED, (step, second)
    assert again > 20


def names_after_crash(log: Compaction) -> list[str]:
    log.fs.restart(power_loss=False)
    return log.fs.listdir(DIRECTORY)


EVERYWHERE = ("fsync_dir", "read", "truncate")
"""What a cleaning does to other files than those it writes."""


@pytest.mark.parametrize("operation", ["write", "fsync", "fsync_dir", "create", "open", "truncate", "read"])
def test_a_failing_disk_ends_a_cleaning_without_harm(operation: str) -> None:
    for skip in range(0, 12, 3):
        log = scene(skip)
        log.fs.fail(operation, errno.EIO, path="" if operation in EVERYWHERE else CLEANED, skip=skip)
        log.clean()
        log.fs.heal()
        log.logs.shutdown()
        restart(log, power_loss=False)
        assert values(log) == EXPECTED


def test_a_full_disk_ends_a_cleaning_until_there_is_room() -> None:
    log = scene(1)
    log.fs.fail("write", errno.ENOSPC, path=CLEANED, times=1)
    assert not log.clean()
    assert not [name for name in log.fs.listdir(DIRECTORY) if name.endswith((CLEANED, SWAP))]
    assert log.cleaner.uncleanable == set()
    assert log.clean_all()
    assert values(log) == EXPECTED
