"""`flush.ms` is kept by one timer for all logs, and a stop fsyncs off the event loop: in virtual time, from seeds."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest

from ottla.model import TopicPartition
from ottla.storage.checkpoints.offset_checkpoint import CLEAN_SHUTDOWN_FILE
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log_manager import LogManager
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import NOW, append

T = TypeVar("T")
ID = UUID(int=77)
SEEDS = 20


class HandleWithoutTime:
    """As uvloop's for what is due within half a millisecond: nobody can ask it for its time."""

    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self.cancel = handle.cancel
        self._source_traceback = handle._source_traceback  # type: ignore[attr-defined]  # asyncio looks at it
        self.cancelled = handle.cancelled


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time goes on only when there is nothing else to do, and then to the next timer at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers = 0
        """Set by others than `asyncio.sleep`."""

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, **kwargs: Any) -> Any:
        self.timers += getattr(callback, "__module__", None) == "ottla.storage.flush_timer"
        return HandleWithoutTime(super().call_at(when, callback, *args, **kwargs))

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class CountingDisk(SimulatedFileSystem):
    """Notes how much is away from the event loop at once, and each fsync of a log on the loop."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.makedirs("/data")
        self.fsync_all()
        self.fsync_seconds = 0.0
        self.running = self.most = 0
        self.in_thread = False
        self.on_loop: list[str] = []

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        def noted() -> T:
            self.in_thread = True
            try:
                return work()
            finally:
                self.in_thread = False

        async def counted() -> T:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(self.fsync_seconds)
                return await super(CountingDisk, self).run(noted)
            finally:
                self.running -= 1

        return counted()

    def check_fault(self, operation: str, path: str, *, change: bool = False) -> None:
        if operation == "fsync" and not self.in_thread and path.startswith("/data/t-"):
            self.on_loop.append(path)
        super().check_fault(operation, path, change=change)


class Clock:
    def now_ms(self) -> int:
        return NOW


def manager(fs: SimulatedFileSystem) -> LogManager:
    logs = LogManager(fs, ["/data"], LogConfig(), Clock(), random.Random(1))
    logs.lock()
    logs.load()
    return logs


def create(logs: LogManager, count: int, *flush_ms: int) -> list[Log]:
    configs = [LogConfig(flush_ms=each) for each in flush_ms] or [LogConfig()]
    return [logs.create(TopicPartition("t", n), ID, configs[n % len(configs)]) for n in range(count)]


async def stop(logs: LogManager, threads: int = 2) -> None:
    await logs.close_logs(threads)
    logs.shutdown()


def loop() -> VirtualLoop:
    found = asyncio.get_running_loop()
    assert isinstance(found, VirtualLoop)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_record_stays_unflushed_for_longer_than_flush_ms(seed: int) -> None:
    """The fsyncs of this disk take no time: what is left is the bound itself."""

    async def search() -> None:
        logs, chance = manager(CountingDisk()), random.Random(seed)
        logs.start_flush_timer()
        opened = create(logs, 12, 20, 100, 1500)
        appended: list[tuple[float, Log, int]] = []
        kept = 0
        for _ in range(400):
            if chance.random() < 0.7:
                log = chance.choice(opened)
                append(log)
                appended.append((loop().time(), log, log.log_end_offset))
            await asyncio.sleep(chance.choice((0, 0.001, 0.013, 0.04)))
            for at, log, end in appended:
                if loop().time() - at > log.config.flush_ms / 1000 + 0.0005:  # not in the same instant
                    assert log.durable_offset >= end, f"seed {seed}: {log} after {loop().time() - at} s"
                    kept += 1
        assert kept > 1000 and len(appended) > 200
        await asyncio.sleep(1.6)
        timers = loop().timers
        await asyncio.sleep(60)
        assert loop().timers == timers, "nothing is due where nothing is written"
        await stop(logs)

    run(search())


@pytest.mark.parametrize("fsync_seconds", [0.03, 0.09, 0.4])
def test_what_is_appended_during_an_fsync_waits_for_one_more(fsync_seconds: float) -> None:
    async def check() -> None:
        disk = CountingDisk()
        logs = manager(disk)
        logs.start_flush_timer()
        (log,) = create(logs, 1, 100)
        disk.fsync_seconds = fsync_seconds
        appended: list[tuple[float, int]] = []
        for _ in range(300):
            if disk.running or not appended or log.durable_offset == log.log_end_offset:
                append(log)
                appended.append((loop().time(), log.log_end_offset))
            await asyncio.sleep(0.007)
            bound = max(0.1, fsync_seconds) + fsync_seconds + 0.0005
            assert all(log.durable_offset >= end for at, end in appended if loop().time() - at > bound)
        assert len(appended) > 50
        await stop(logs)

    run(check())


def test_an_fsync_is_not_early() -> None:
    async def check() -> None:
        logs = manager(CountingDisk())
        logs.start_flush_timer()
        (log,) = create(logs, 1, 100)
        for _ in range(10):
            append(log)
            await asyncio.sleep(0.0099)
        assert log.durable_offset == 0
        await asyncio.sleep(0.0011)
        assert log.durable_offset == log.log_end_offset == 10
        await stop(logs)

    run(check())


def test_many_logs_share_a_timer_and_those_without_flush_ms_set_none() -> None:
    async def check() -> None:
        disk = CountingDisk()
        logs = manager(disk)
        logs.start_flush_timer()
        opened = create(logs, 50)
        for log in opened:
            append(log)
        assert loop().timers == 0
        await asyncio.sleep(10)
        assert all(log.durable_offset == 0 for log in opened)
        logs.update_topic_config("t", LogConfig(flush_ms=100))
        assert loop().timers == 1
        await asyncio.sleep(0.101)
        assert all(log.durable_offset == 1 for log in opened)
        assert disk.most == 2, "reads have threads beside them"
        await stop(logs)

    run(check())


def test_a_shorter_flush_ms_holds_for_what_is_written() -> None:
    async def check() -> None:
        logs = manager(CountingDisk())
        logs.start_flush_timer()
        (log,) = create(logs, 1, 3_600_000)
        append(log)
        logs.update_topic_config("t", LogConfig(flush_ms=200))
        await asyncio.sleep(0.201)
        assert log.durable_offset == 1
        append(log)
        logs.delete(log.topic_partition)
        await asyncio.sleep(1)
        assert log.durable_offset == 1
        await stop(logs)

    run(check())


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_stop_fsyncs_logs_at_once_and_off_the_loop(threads: int) -> None:
    async def check() -> None:
        disk = CountingDisk()
        logs = manager(disk)
        for log in create(logs, 40):
            append(log, 3)
        await stop(logs, threads)
        assert disk.most == threads
        assert disk.on_loop == []
        assert disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")
        disk.restart(power_loss=True)
        again = manager(disk)
        assert {log.log_end_offset for log in again} == {3} and len(again) == 40
        assert not any(log.recovery.recovered_bytes for log in again)

    run(check())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_stop_is_clean_only_if_every_log_is_on_disk(seed: int) -> None:
    async def check() -> None:
        disk, chance = CountingDisk(), random.Random(seed)
        logs = manager(disk)
        for log in create(logs, 10):
            append(log, chance.randint(1, 5))
        suffix = chance.choice((".log", ".index", ".timeindex"))
        fault = disk.fail("fsync", errno.EIO, path=suffix, skip=chance.randrange(10), times=1)
        await stop(logs, 3)
        assert fault.fired == 1
        assert not disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")

    run(check())
