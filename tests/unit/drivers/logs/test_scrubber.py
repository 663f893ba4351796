"""The scrubber on logs of a simulated disk, and who tells it what to check."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.drivers.logs.log_cleaner import CleanerSettings, LogCleaner
from ottla.drivers.logs.log_mover import LogMover
from ottla.drivers.logs.scrubber import LOOK_EVERY_S, STEP_BYTES, LogScrubber, ScrubSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.checkpoints.partition_metadata import PartitionIdentity, read_identity
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.recovery.damage import DamagedLog
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import NOW, append, new_disk
from tests.unit.storage.test_log_manager import ID, T0, T1, Managed

OF_KAFKA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAATQ"


class Scrubbed:
    """A manager with a scrubber, and what it found."""

    def __init__(self, fs: SimulatedFileSystem, **settings: Any) -> None:
        self.fs = fs
        self.managed = Managed(fs)
        self.logs = self.managed.logs
        self.found: list[tuple[Log, DamagedLog]] = []
        self.scrubber = LogScrubber(
            fs,
            self.logs,
            lambda: ScrubSettings(**settings),
            lambda log, error: self.found.append((log, error)),
            lambda key: 9,
        )
        self.logs.on_log_suspected = self.scrubber.suspect


def run(fs: SimulatedFileSystem, work: Callable[[Scrubbed], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        scrubbed = Scrubbed(fs, **settings)
        scrubbed.scrubber.start()
        try:
            async with asyncio.timeout(60):
                await work(scrubbed)
        finally:
            await scrubbed.scrubber.stop()

    asyncio.run(main())


async def until(found: Callable[[], bool]) -> None:
    while not found():  # noqa: ASYNC110  by the scrubber's task, which has no event for it
        await asyncio.sleep(0)


def flip(fs: SimulatedFileSystem, log: Log, position: int) -> None:
    fs.flip_bit(log.active_segment.path(".log"), 8 * position)


def test_the_scrubber_names_a_directory_of_kafkas() -> None:
    fs = new_disk()
    managed = Managed(fs)
    append(managed.logs.create(T0, ID), 3)
    managed.logs.shutdown()
    fs.write_atomic("/data/t-0/partition.metadata", OF_KAFKA)

    async def work(scrubbed: Scrubbed) -> None:
        assert scrubbed.logs.unnamed
        scrubbed.scrubber.scrub_all()
        await until(lambda: scrubbed.scrubber.totals.logs == 1)
        assert not scrubbed.logs.unnamed
        assert read_identity(fs, "/data/t-0") == PartitionIdentity(ID, "t-0")

    run(fs, work)
    assert fs.read_bytes("/data/t-0/partition.metadata").startswith(OF_KAFKA + b"\n")


def test_what_was_read_is_not_read_again_before_the_interval_is_over() -> None:
    async def work(scrubbed: Scrubbed) -> None:
        for key in (T0, T1):
            append(scrubbed.logs.create(key, ID), 10)
        scrubbed.scrubber.scrub_all()
        await until(lambda: scrubbed.scrubber.totals.logs == 2)
        read = scrubbed.scrubber.totals.bytes_read
        assert read == sum(log.size_bytes for log in scrubbed.logs) < STEP_BYTES
        for _ in range(20):
            assert not await scrubbed.scrubber._scrub_next()
        assert scrubbed.scrubber.totals.bytes_read == read and not scrubbed.found
        scrubbed.scrubber._checked_s.update(dict.fromkeys(scrubbed.logs, -1e9))
        assert await scrubbed.scrubber._scrub_next() and scrubbed.scrubber.totals.bytes_read > read

    run(new_disk(), work)


def test_who_is_suspected_without_a_reason_is_read_once() -> None:
    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        append(log, 10)
        for _ in range(5):
            log.health.suspect(KafkaError(ErrorCode.corrupt_message), 3)
            await until(lambda: not scrubbed.scrubber._suspected and bool(scrubbed.scrubber._suspicions_s))
        assert scrubbed.scrubber.totals.bytes_read == log.size_bytes

    run(new_disk(), work, bytes_per_second=0)


async def _read(scrubbed: Scrubbed, log: Log) -> None:
    with pytest.raises(KafkaError):
        for offset in range(10):
            log.read(offset, 1, up_to=10)


async def _look_up_a_timestamp(scrubbed: Scrubbed, log: Log) -> None:
    with pytest.raises(KafkaError):
        log.offset_for_timestamp(NOW)


async def _clean(scrubbed: Scrubbed, log: Log) -> None:
    clock: Any = SimpleNamespace(now_ms=lambda: 0)
    cleaner = LogCleaner(scrubbed.fs, scrubbed.logs, clock, scrubbed.logs._opener.random, CleanerSettings)
    cleaner._give_up(log, KafkaError(ErrorCode.corrupt_message))


@pytest.mark.parametrize("meet", [_read, _look_up_a_timestamp, _clean])
def test_who_meets_damage_has_the_log_checked(meet: Callable[[Scrubbed, Log], Awaitable[None]]) -> None:
    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID, LogConfig(index_interval_bytes=1 << 20))
        for _ in range(10):
            append(log, 1, size=200)
        flip(scrubbed.fs, log, 8)  # the length of the first batch
        await meet(scrubbed, log)
        await until(lambda: bool(scrubbed.found))
        ((found, error),) = scrubbed.found
        assert found is log and error.damage.position == 0 and "cut short" in str(error)

    run(new_disk(), work, bytes_per_second=0)


def test_a_log_that_is_cut_while_it_is_read_is_not_damaged() -> None:
    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        append(log, 10)
        append(log, 10)
        check = asyncio.ensure_future(scrubbed.scrubber.check(log, hurry=True))
        await asyncio.sleep(0)
        await scrubbed.logs.truncate({log: 10})
        assert not await check and not scrubbed.found
        assert await scrubbed.scrubber.check(log)

    run(new_disk(), work)


def test_the_scrubber_rests_for_its_rate() -> None:
    rests: list[float] = []

    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        while log.size_bytes < 5 * STEP_BYTES:
            append(log, 50, size=1000)

        async def wait(seconds: float) -> None:
            if seconds != LOOK_EVERY_S:  # of the scrubber's own task, which has nothing to do
                rests.append(seconds)
            await asyncio.sleep(0)

        scrubbed.scrubber._wait = wait  # type: ignore[method-assign]
        assert await scrubbed.scrubber.check(log)
        read = scrubbed.scrubber.totals.bytes_read
        assert read >= log.size_bytes and len(rests) >= 4
        assert sum(rests) > 0.5 * read / 100_000

    run(new_disk(), work, bytes_per_second=100_000)


def test_a_move_that_meets_damage_has_the_log_checked() -> None:
    """Between log directories: the copy refuses what the log has."""

    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        append(log, 10, size=100)
        scrubbed.fs.makedirs("/other")
        copy = scrubbed.logs.futures.create(T0, ID, log.config, "/other")
        flip(scrubbed.fs, log, 300)
        node = SimpleNamespace(fs=scrubbed.fs, clock=scrubbed.managed.clock)
        mover = cast(LogMover, SimpleNamespace(_node=node))
        with pytest.raises(KafkaError, match="corrupt_message"):
            await LogMover._copy_some(mover, cast(Any, None), log, copy)
        await until(lambda: bool(scrubbed.found))
        assert "checksum" in str(scrubbed.found[0][1]) and copy.log_end_offset == 0

    run(new_disk(), work, bytes_per_second=0)


def test_a_log_that_rolls_while_it_is_read_is_not_damaged() -> None:
    """What was its active segment when the check began has others behind it when its turn comes."""

    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        for _ in range(3):
            append(log, 10)
            log.roll()
        append(log, 10)
        check = asyncio.ensure_future(scrubbed.scrubber.check(log))
        while not check.done():
            append(log, 1)
            log.roll()
            await asyncio.sleep(0)
        assert check.result() and not scrubbed.found

    run(new_disk(), work)


@pytest.mark.parametrize(("epochs", "is_sound"), [((5, 5, 0, 0, 1), True), ((5, 5, 0, 1, 0), False)])
def test_a_log_of_kafka_whose_epochs_began_again_is_sound(epochs: tuple[int, ...], is_sound: bool) -> None:
    """As where a cluster lost its ZooKeeper and kept its logs. Kafka's checkpoint has the epochs from there on."""

    async def work(scrubbed: Scrubbed) -> None:
        log = scrubbed.logs.create(T0, ID)
        for epoch in epochs:
            append(log, epoch=epoch)
        log.epochs.replace([(0, 2), (1, 4 if is_sound else 3)])
        assert await scrubbed.scrubber.check(log) is is_sound
        assert len(scrubbed.found) == (not is_sound)
        assert log.epochs.entries[0] == (0, 2)

    run(new_disk(), work)
