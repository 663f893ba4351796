"""Disks that refuse: full, failing, read-only, with flipped bits and missing files."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from random import Random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import HEADER_SIZE
from ottla.storage.checkpoints.offset_checkpoint import RECOVERY_POINT_CHECKPOINT
from ottla.storage.log.log import Log
from tests.simulation import checks
from tests.simulation.world import ROOT, SMALL, World, with_flush_on_append


def filled(seed: int = 1, batches: int = 20) -> World:
    world = World(seed)
    for number in range(batches):
        world.append(1 + number % 2, count=1 + number % 3, size=200)
    return world


def refused_append(world: World) -> ErrorCode:
    """The code of an append that fails; the batch may be in the log after a restart, or not."""
    with pytest.raises(KafkaError) as caught:
        world.append(1, count=2, size=500)
    return caught.value.code


@pytest.mark.parametrize("seed", range(8))
def test_a_full_disk_leaves_a_clean_log(seed: int) -> None:
    world = filled(seed)
    world.fs.capacity_bytes = sum(map(len, world.fs.files(ROOT).values())) + 300
    assert refused_append(world) is ErrorCode.kafka_storage_error
    assert [data for _, data in checks.batches(world.fs.files(ROOT), world.directory)] == [
        batch.data for batch in world.history
    ]
    world.uncertain = None
    world.fs.heal()
    world.crash(power_loss=False)
    world.append(1)
    world.check()


@pytest.mark.parametrize("is_grouped", [True, False])
def test_what_a_failed_write_left_does_not_come_back_with_a_power_loss(is_grouped: bool) -> None:
    """Found by the simulation of whole nodes: at the end of a segment that was full it was taken for damage, or cut off
    with all the segments behind it, which were fsynced."""
    for seed in range(40):
        world = World(seed, with_flush_on_append() if is_grouped else SMALL)
        for _ in range(3):
            world.append(1, size=300)
        world.flush()
        world.fs.capacity_bytes = sum(map(len, world.fs.files(ROOT).values())) + 300
        assert refused_append(world) is ErrorCode.kafka_storage_error
        world.uncertain = None
        world.fs.heal()
        world.roll()
        world.append(1)
        if not is_grouped:
            world.flush()
        assert world.durable == world.end == 4
        world.crash(power_loss=True)
        assert world.end == 4


@pytest.mark.parametrize("operation", ["write", "truncate", "fsync", "fsync_dir", "create", "rename"])
@pytest.mark.parametrize("skip", range(4))
def test_an_io_error_anywhere_never_costs_an_acknowledged_record(operation: str, skip: int) -> None:
    for seed in range(4):
        world = World(seed)
        for _ in range(5):
            world.append(1, count=2, size=300)
        world.flush()
        fault = world.fs.fail(operation, errno.EIO, path=str(world.directory), skip=skip, times=1)
        try:
            for number in range(24):
                world.append(1 + number % 2, size=600)
                if number % 3 == 2:
                    world.flush()
                    world.roll()
        except KafkaError as error:
            assert error.code is ErrorCode.kafka_storage_error
        assert fault.fired, seed
        world.crash(power_loss=False)
        world.append(1)
        world.check()


def test_after_a_failed_fsync_nothing_is_acknowledged_any_more() -> None:
    """A second fsync would succeed and mean nothing: the kernel has dropped the dirty pages."""
    for seed in range(20):
        world = filled(seed)
        world.flush()
        world.append(1)
        world.fs.fail("fsync", path=".log", times=1)
        with pytest.raises(KafkaError) as caught:
            world.flush()
        assert caught.value.code is ErrorCode.kafka_storage_error
        for attempt in (world.log.flush, partial(world.log.read, 0, 100, up_to=1), world.log.roll):
            with pytest.raises(KafkaError) as caught:
                attempt()
            assert caught.value.code is ErrorCode.kafka_storage_error
        assert refused_append(world) is ErrorCode.kafka_storage_error
        world.uncertain = None
        world.crash(power_loss=True)


def test_a_failed_group_fsync_fails_all_who_wait() -> None:
    world = World(1, with_flush_on_append())
    world.append(1)
    world.fs.fail("fsync", path=".log", times=1)
    log = world.log

    async def main() -> list[BaseException | None]:
        waiting = []
        for _ in range(5):
            sent = bytearray(world.build(-1, 1, 50))
            info = log.append_as_leader(memoryview(sent), 0, now_ms=world.clock.now)
            assert info.needs_flush
            waiting.append(log.flush_async(info.last_offset + 1))
        return await asyncio.gather(*waiting, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert all(isinstance(outcome, KafkaError) for outcome in outcomes)


def test_an_fsync_that_succeeds_beside_one_that_failed_says_nothing() -> None:
    """Found by the simulation of whole nodes: the recovery point passed what the failed one had left out, so that after
    a power loss the log was taken for damaged."""
    for seed in range(20):
        world = World(seed)
        world.append(1)
        world.flush()
        log, safe = world.log, world.end

        async def main(log: Log = log) -> list[BaseException | None]:
            return await asyncio.gather(log.flush_async(), log.flush_all_async(), return_exceptions=True)

        for _ in range(3):
            world.append(1, size=300)
        world.fs.fail("fsync", path=".log", times=1)
        outcomes = asyncio.run(main())
        assert all(isinstance(outcome, KafkaError) for outcome in outcomes), outcomes
        assert log.recovery_point == safe and not log.is_open
        asyncio.run(world.manager.checkpoint(RECOVERY_POINT_CHECKPOINT))
        world.crash(power_loss=True)
        world.append(1)


@pytest.mark.parametrize("path", [".index", "leader-epoch-checkpoint"])
def test_a_full_fsync_that_finds_no_room_leaves_the_log_open(path: str) -> None:
    """Found by the simulation of whole nodes: on a disk that was full for a moment, a log stayed offline for ever."""
    world = filled(batches=21)
    fault = world.fs.fail("write", errno.ENOSPC, path=path)
    with pytest.raises(KafkaError) as caught:
        world.flush()
    assert caught.value.code is ErrorCode.kafka_storage_error
    assert fault.fired and world.log.is_open
    with pytest.raises(KafkaError):
        asyncio.run(world.log.flush_all_async())
    assert world.log.is_open
    world.fs.heal()
    world.append(1)
    world.flush()
    world.crash(power_loss=True)
    world.check()


def test_one_fsync_serves_all_appends_of_a_moment() -> None:
    world = World(1, with_flush_on_append())
    log = world.log
    fsyncs = []
    run = world.fs.run
    world.fs.run = lambda work: fsyncs.append(work) or run(work)  # type: ignore[method-assign, func-returns-value]

    async def produce() -> None:
        sent = bytearray(world.build(-1, 1, 50))
        info = log.append_as_leader(memoryview(sent), 0, now_ms=world.clock.now)
        await log.flush_async(info.last_offset + 1)
        assert log.durable_offset > info.last_offset

    async def main() -> None:
        await asyncio.gather(*(produce() for _ in range(50)))

    asyncio.run(main())
    assert len(fsyncs) <= 2
    world.fs.crash()
    world.fs.restart(power_loss=True)
    world.open()
    assert world.log.log_end_offset == 50


def test_a_read_only_disk_refuses_appends_and_serves_reads() -> None:
    world = filled()
    world.fs.read_only = True
    assert refused_append(world) is ErrorCode.kafka_storage_error
    world.uncertain = None
    world.fs.heal()
    world.crash(power_loss=False)


def test_a_flipped_bit_in_the_unflushed_tail_ends_the_log_there() -> None:
    for seed in range(40):
        world = filled(seed, batches=6)
        path = max(path for path in world.fs.files(ROOT) if path.endswith(".log"))
        world.fs.crash()
        world.fs.restart(power_loss=False)
        bit = world.fs.flip_bit(path)
        base = int(path.rpartition("/")[2].removesuffix(".log"))
        position, end = 0, base
        for batch in [batch for batch in world.history if batch.base_offset >= base]:
            if position + len(batch.data) > bit // 8:
                outside_crc = 12 <= bit // 8 - position < 16  # the leader epoch, which no checksum covers
                break
            position, end = position + len(batch.data), batch.last_offset + 1
        world.open()
        if not outside_crc:
            assert world.log.log_end_offset <= end
        found = [data for _, data in checks.batches(world.fs.files(ROOT), world.directory)]
        expected = [batch.data for batch in world.history]
        assert [data[HEADER_SIZE:] for data in found] == [data[HEADER_SIZE:] for data in expected[: len(found)]]


DAMAGES = ["gone", "empty", "cut", "bits", "garbage"]


def damage(world: World, suffix: str, how: str, random: Random) -> int:
    """How many files were damaged."""
    count = 0
    for path, content in world.fs.files(ROOT).items():
        if not path.endswith(suffix) or not content:
            continue
        count += 1
        if how == "gone":
            world.fs.remove(path)
        elif how == "empty":
            world.fs.write_atomic(path, b"")
        elif how == "cut":
            world.fs.write_atomic(path, content[: random.randrange(len(content))])
        elif how == "bits":
            world.fs.flip_bit(path)
        else:
            world.fs.write_atomic(path, random.randbytes(len(content)))
    return count


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_what_can_be_rebuilt_is(suffix: str, how: str, clean: bool) -> None:
    """Indexes, snapshots and epochs are derived from the log: damage to them costs a scan and no record.

    After a clean stop indexes are trusted, as in Kafka: only a missing or empty one is rebuilt. What must not happen
    even then is that the log ends early.
    """
    for seed in range(4):
        world = filled(seed, batches=20)
        world.flush()  # which also writes the epochs
        for number in range(20):
            world.append(1 + number % 2, count=1 + number % 3, size=200)
        if clean:
            world.manager.shutdown()
        else:
            world.fs.crash()
        world.fs.restart(power_loss=False)
        assert damage(world, suffix, how, Random(seed))
        world.open()
        assert world.log.log_end_offset == world.end
        if suffix == "leader-epoch-checkpoint" and how in ("bits", "garbage"):
            continue  # another number is as good as the right one for a file without a checksum
        if not clean or how in ("gone", "empty") or suffix == ".snapshot":
            world.check_reads()
            world.check_times()


def test_files_that_interrupted_work_left_are_cleared() -> None:
    world = filled()
    world.fs.crash()
    world.fs.restart(power_loss=False)
    leftovers = [
        f"{world.directory}/00000000000000000000.log.deleted",
        f"{world.directory}/00000000000000000003.log.cleaned",
        f"{world.directory}/00000000000000000999.index",
        f"{world.directory}/00000000000000000005.snapshot.deleted",
        f"{world.directory}/leader-epoch-checkpoint.tmp",
    ]
    for path in leftovers:
        world.fs.write_atomic(path, b"leftover")
    world.open()
    left = set(leftovers[:-1]) & set(world.fs.files(ROOT))
    assert not left
    world.check()


def test_the_log_ends_where_batches_are_missing_between_segments() -> None:
    """A power failure may lose the end of one file and keep the next one whole; Kafka then serves a log with a hole."""
    world = filled(batches=40)
    path = min(path for path in world.fs.files(ROOT) if path.endswith(".log"))
    batches = [batch for batch in world.history if batch.base_offset < world.log.segments[1].base_offset]
    world.fs.crash()
    world.fs.restart(power_loss=False)
    world.fs.open(path).truncate(sum(len(batch.data) for batch in batches[:-1]))
    world.open()
    assert world.log.log_end_offset == batches[-1].base_offset
    assert len(world.log.segments) == 1


@pytest.mark.parametrize("seed", range(30))
def test_what_recovery_cut_away_does_not_come_back(seed: int) -> None:
    """Neither old batches behind new ones of the same size, nor later segments."""
    world = World(seed)
    for _ in range(30):
        world.append(-1, size=120)
    path = sorted(path for path in world.fs.files(ROOT) if path.endswith(".log"))[seed % 2]
    world.fs.crash()
    world.fs.restart(power_loss=False)
    world.fs.fsync_all()
    size = world.fs.size(path)
    world.fs.flip_bit(path, (size - 250) * 8)
    world.open()
    end = world.log.log_end_offset
    assert end < world.end
    world.history = [batch for batch in world.history if batch.last_offset < end]
    for _ in range(2):
        world.append(-1, size=120)
    world.crash(power_loss=True)
