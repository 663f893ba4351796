"""What is on disk after a log was cut: power failures behind a cut must not bring back what was dropped."""

from __future__ import annotations

import asyncio
import errno
import random
from uuid import UUID

import pytest

from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import (
    SimpleRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    set_base_offset_and_epoch,
)
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import NOW, all_offsets
from tests.unit.storage.test_log_manager import Managed

ID = UUID(int=77)
T0 = TopicPartition("t", 0)
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=500, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))


def disk(seed: int) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(seed))
    fs.makedirs("/data")
    return fs


def leaders_batch(base: int, count: int = 3, *, epoch: int = 1, value: bytes = b"old", timestamp: int = NOW) -> bytes:
    """A batch as a follower gets it: with offsets from `base` on."""
    batch = build_batch([SimpleRecord(timestamp + i, b"k%d" % (base + i), value) for i in range(count)])
    set_base_offset_and_epoch(batch, 0, base, epoch)
    return bytes(batch)


def filled(fs: SimulatedFileSystem, config: LogConfig, *, without: tuple[int, ...] = ()) -> tuple[Managed, Log]:
    """A log with the offsets 0 to 29 of one epoch in two segments, all on disk, and the checkpoints say so. Batches
    at the offsets `without` are missing, as in the log of a leader that was compacted."""
    managed = Managed(fs, defaults=config)
    log = managed.logs.create(T0, ID)
    if without:
        log.cleaned_offset = 0
    for base in range(0, 30, 3):
        if base not in without:
            log.append_as_follower(leaders_batch(base), now_ms=NOW)
    assert len(log.segments) > 1
    log.flush()
    managed.background(10**6)
    fs.fsync_all()
    return managed, log


def values(log: Log) -> list[tuple[int, bytes]]:
    """The offsets and values of all records."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while (part := log.read(offset, 10_000, log.log_end_offset)) is not None:
        data = part.read()
        records = [record for at, _ in iterate_batches(data) for record in iterate_records(data, at)]
        found += [(record.offset, bytes(record.value or b"")) for record in records]
        offset = found[-1][0] + 1
    return found


@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["whole", "compacted"])
def test_dropped_segments_do_not_come_back_behind_what_was_fsynced_since(config: LogConfig) -> None:
    for seed in range(12):
        fs = disk(seed)
        managed, log = filled(fs, config, without=(9, 12) if config is COMPACTED else ())

        async def scene(managed: Managed = managed, log: Log = log) -> None:
            assert not await managed.logs.truncate({log: 6})
            for base in range(6, 15, 3):
                log.append_as_follower(leaders_batch(base, epoch=2, value=b"new"), now_ms=NOW)
            await log.flush_async()
            assert log.durable_offset == 15, "acknowledged"

        asyncio.run(scene())
        wanted = values(log)
        fs.crash()
        fs.restart(power_loss=True)
        again = Managed(fs, defaults=config)
        found = again.logs.get(T0)
        assert found is not None, (seed, again.warnings)
        assert values(found) == wanted, seed
        assert found.epochs.entries == ((1, 0), (2, 6)), seed
        again.logs.shutdown()


def test_a_cut_fsyncs_the_directory_once_and_before_the_file_is_cut() -> None:
    """Replacing the file of the leader epochs does it, too."""
    for epochs in (1, 2):
        fs = disk(1)
        managed, log = filled(fs, SMALL)
        if epochs == 2:
            log.append_as_follower(leaders_batch(30, epoch=2), now_ms=NOW)
            log.flush()
        steps: list[str] = []
        fs.observer = steps.append
        assert asyncio.run(managed.logs.truncate({log: 6})) == {}
        fs.observer = None
        assert steps.count("fsync of /data/t-0") == 1
        cut = next(number for number, step in enumerate(steps) if step.startswith("truncate of /data/t-0/0"))
        renames = [number for number, step in enumerate(steps) if step.startswith("rename of /data/t-0/0")]
        assert renames
        assert max(renames) < steps.index("fsync of /data/t-0") < cut
        assert all_offsets(log) == list(range(6))


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_starts_over_inside_a_batch_opens_after_a_power_failure(seed: int) -> None:
    """The leader's log starts at 15, inside its batch 10 to 19: the log of a follower starts over at 15, which is
    fsynced and checkpointed, and then with the batch at 10."""
    fs = disk(seed)
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    log.append_as_follower(leaders_batch(0), now_ms=NOW)
    asyncio.run(managed.logs.start_over({log: 15}))
    log.flush()
    managed.background(10**6)
    assert fs.read_bytes("/data/recovery-point-offset-checkpoint").endswith(b"t 0 15\n")
    fs.fsync_all()
    log.append_as_follower(leaders_batch(10, 10), now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (10, 20)
    fs.fsync_dir("/data/t-0")  # a journal may commit names before data
    fs.crash()
    fs.restart(power_loss=True)
    again = Managed(fs)
    assert again.logs.get(T0) is not None, again.warnings


def test_a_log_that_cannot_write_its_recovery_point_does_not_start_over() -> None:
    fs = disk(1)
    managed = Managed(fs)
    log = managed.logs.create(T0, ID)
    asyncio.run(managed.logs.start_over({log: 15}))
    log.flush()
    fault = fs.fail("write", errno.ENOSPC, path="recovery-point", times=1)
    with pytest.raises(KafkaError):
        log.append_as_follower(leaders_batch(10, 10), now_ms=NOW)
    assert fault.fired
    assert log.is_open
    assert log.log_start_offset == 15
    log.append_as_follower(leaders_batch(10, 10), now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset) == (10, 20)


def with_a_gap(fs: SimulatedFileSystem) -> tuple[Managed, Log]:
    """A compacted log with the offsets 0 to 3, a second apart, and 20."""
    managed = Managed(fs, defaults=LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=150))
    log = managed.logs.create(T0, ID)
    for offset in range(4):
        log.append_as_follower(leaders_batch(offset, 1, value=b"v" * 10, timestamp=NOW + 1000 * offset), now_ms=NOW)
    log.cleaned_offset = 0
    log.append_as_follower(leaders_batch(20, 1, timestamp=NOW + 9000), now_ms=NOW)
    return managed, log


def test_the_segment_before_a_gap_keeps_its_largest_timestamp() -> None:
    fs = disk(1)
    managed, log = with_a_gap(fs)
    assert asyncio.run(managed.logs.truncate({log: 10})) == {}
    assert (log.log_end_offset, [segment.base_offset for segment in log.segments]) == (10, [0, 10])
    managed.logs.shutdown()
    again = Managed(fs, defaults=log.config).logs.get(T0)
    assert again is not None
    assert again.offset_for_timestamp(NOW + 3000) == (NOW + 3000, 3, 1)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_cut_in_a_gap_waits_for_room_for_the_empty_segment(error: int) -> None:
    fs = disk(1)
    managed, log = with_a_gap(fs)
    fault = fs.fail("create", error, path="0010.", times=1)
    failed = asyncio.run(managed.logs.truncate({log: 10}))
    assert fault.fired
    assert log.is_open is (error == errno.ENOSPC)
    assert failed.keys() == (set() if log.is_open else {log})
    if log.is_open:
        log.append_as_follower(leaders_batch(10, epoch=2), now_ms=NOW)
        assert all_offsets(log) == [0, 1, 2, 3, 10, 11, 12]


def test_logs_that_are_cut_stay_online_where_a_later_attempt_for_others_fails() -> None:
    """The disk is full for the files of one log at first, then for the checkpoint too, and the node stops."""
    fs = disk(1)
    managed = Managed(fs)
    cut, waits = (managed.logs.create(TopicPartition("t", number), ID) for number in range(2))
    for log in (cut, waits):
        for base in (0, 3):
            log.append_as_follower(leaders_batch(base), now_ms=NOW)
    fs.fail("truncate", errno.ENOSPC, path="/data/t-1/")
    fs.fail("write", errno.ENOSPC, path="recovery-point", skip=1)

    async def scene() -> None:
        path = cut.segments[0].path(".log")
        is_cut = asyncio.Event()
        fs.observer = lambda step: is_cut.set() if step == f"truncate of {path}" else None
        cutting = asyncio.ensure_future(managed.logs.truncate({cut: 3, waits: 3}))
        await is_cut.wait()
        stopping = asyncio.ensure_future(managed.logs.close_logs(1))
        assert (await cutting).keys() == {waits}
        assert cut.failure is None
        await stopping

    asyncio.run(scene())


@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_was_closed_empty_is_on_disk_with_its_first_records(seed: int) -> None:
    """Nothing of it is fsynced when it is closed. After a clean restart its names have to be, with the first fsync: of
    the log file alone, as an acknowledgement asks for it."""

    async def scene() -> None:
        fs = disk(seed)
        fs.fsync_all()
        first = Managed(fs)
        first.logs.create(T0, ID)
        first.logs.shutdown(broker_epoch=1)
        log = Managed(fs).logs.get(T0)
        assert log is not None
        log.append_as_leader(bytearray(leaders_batch(0)), 0, now_ms=NOW)
        await log.flush_async()
        assert log.durable_offset == 3, "acknowledged"
        fs.crash()
        fs.restart(power_loss=True)
        found = Managed(fs).logs.get(T0)
        assert found is not None and all_offsets(found) == [0, 1, 2]

    asyncio.run(scene())
