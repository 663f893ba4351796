"""Cutting many logs at once: off the event loop, in one batch, beside everything else that wants to use them."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from tests.unit.storage.logs import NOW, all_offsets, append, new_disk
from tests.unit.storage.test_log_manager import Managed

ID = UUID(int=77)
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
MODES = {"inside a segment": 7, "at a segment's start": 4, "everything": 0, "nothing": 100}


def key(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def filled(fs: SimulatedFileSystem, count: int, *, records: int = 20, **options: Any) -> tuple[Managed, list[Log]]:
    """Logs of several segments, each record with a leader epoch of its own and of an idempotent producer."""
    managed = Managed(fs, defaults=SMALL, **options)
    logs = [managed.logs.create(key(number), ID) for number in range(count)]
    for log in logs:
        for sequence in range(records):
            append(log, epoch=sequence // 3, size=60, producer_id=5, producer_epoch=0, base_sequence=sequence)
        assert len(log.segments) > 3
    return managed, logs


def content(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in fs.files("/data").items() if not path.endswith(".deleted")}


def checkpoint(fs: SimulatedFileSystem, managed: Managed, logs: list[Log]) -> None:
    """Have all of the logs on disk, and the recovery points say so."""
    for log in logs:
        log.flush()
    managed.background(10**6)
    assert fs.read_bytes("/data/recovery-point-offset-checkpoint").endswith(b" 20\n")
    fs.fsync_all()


class HeldDisk:
    """Work for disk threads begins when the test lets it; counts what is done in them and what on the loop."""

    def __init__(self, fs: SimulatedFileSystem) -> None:
        self.runs = 0
        self.inside = False
        self.on_loop: list[str] = []
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        check_fault = fs.check_fault

        def checked(operation: str, path: str, *, change: bool = False) -> None:
            if operation in ("fsync", "fsync_dir", "truncate", "rename", "read") and not self.inside:
                self.on_loop.append(f"{operation} {path}")
            check_fault(operation, path, change=change)

        async def run(work: Callable[[], Any]) -> Any:
            self.runs += 1
            self.began.set()
            await self.gate.wait()
            self.inside = True
            try:
                return work()
            finally:
                self.inside = False

        fs.check_fault = checked  # type: ignore[method-assign]
        fs.run = run  # type: ignore[method-assign, assignment]


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize("offset", MODES.values(), ids=MODES)
def test_many_logs_are_cut_in_one_batch_off_the_loop(offset: int) -> None:
    async def scene() -> None:
        fs = new_disk()
        managed, logs = filled(fs, 40)
        disk = HeldDisk(fs)
        end = min(offset, 20)
        cutting = asyncio.ensure_future(managed.logs.truncate(dict.fromkeys(logs, offset)))
        await disk.began.wait()
        for log in logs:
            assert (log.log_end_offset, log.high_watermark) == (end, end)
            assert log.truncator.is_busy and not log.is_open
            assert refusal(lambda log=log: append(log)) is ErrorCode.not_leader_or_follower  # type: ignore[misc]
            assert refusal(lambda log=log: log.read(0, 100, up_to=20)) is ErrorCode.not_leader_or_follower  # type: ignore[misc]
        managed.logs.periodic(NOW + 10**9)
        disk.gate.set()
        assert await cutting == {}
        assert disk.on_loop == []
        assert disk.runs == 2, "the files of all, and the checkpoint of the directory"
        for log in logs:
            assert log.is_open
            assert all_offsets(log) == list(range(end))
            info = append(log, epoch=9, size=60, producer_id=5, producer_epoch=0, base_sequence=end)
            assert (info.first_offset, info.is_duplicate) == (end, False), "the producer's state was cut too"
            assert log.end_offset_for_epoch(8)[1] == end

    asyncio.run(scene())


@pytest.mark.parametrize("offset", [*range(0, 21, 3), 19, 20])
def test_what_is_left_is_what_a_log_has_that_was_never_longer(offset: int) -> None:
    fs = new_disk()
    managed, (log,) = filled(fs, 1)
    assert asyncio.run(managed.logs.truncate({log: offset})) == {}
    other_fs = new_disk()
    other = Managed(other_fs, defaults=SMALL)
    expected = other.logs.create(key(0), ID)
    for sequence in range(offset):
        append(expected, epoch=sequence // 3, size=60, producer_id=5, producer_epoch=0, base_sequence=sequence)
    assert all_offsets(log) == all_offsets(expected)
    assert log.epochs.entries == expected.epochs.entries
    state, wanted = log.producer_state, expected.producer_state
    assert {who: entry.batches for who, entry in state.producers.items()} == {
        who: entry.batches for who, entry in wanted.producers.items()
    }
    assert log.active_segment.base_offset <= offset
    for each in (managed, other):
        each.logs.shutdown()
    again = Managed(fs, defaults=SMALL).logs.get(key(0))
    assert again is not None and all_offsets(again) == list(range(offset))
    assert again.end_offset_for_epoch(99) == (-1, -1)


def test_a_log_that_fails_is_offline_and_the_others_are_cut() -> None:
    fs = new_disk()
    managed, logs = filled(fs, 3)
    heard: list[str] = []
    logs[1].observe(
        lambda: None, lambda: heard.append("offline"), lambda offset: heard.append(f"cut {offset}"), lambda: None
    )
    fs.fail("truncate", errno.EIO, path="/data/t-1/", times=1)
    failed = asyncio.run(managed.logs.truncate(dict.fromkeys(logs, 5)))
    assert {log.topic_partition: error.code for log, error in failed.items()} == {key(1): ErrorCode.kafka_storage_error}
    assert heard == ["cut 5", "offline"]
    assert [log.is_open for log in logs] == [True, False, True]
    assert all_offsets(logs[0]) == all_offsets(logs[2]) == list(range(5))
    assert asyncio.run(managed.logs.truncate({logs[1]: 2})).keys() == {logs[1]}


def test_a_failed_checkpoint_takes_the_logs_offline_before_they_grow() -> None:
    fs = new_disk()
    managed, logs = filled(fs, 2)
    fs.fail("write", errno.EIO, path="recovery-point", times=1)
    assert asyncio.run(managed.logs.truncate(dict.fromkeys(logs, 5))).keys() == set(logs)
    assert not any(log.is_open for log in logs)


def test_a_log_deleted_while_it_is_cut_leaves_its_successor_alone() -> None:
    async def scene() -> None:
        fs = new_disk()
        managed, (log,) = filled(fs, 1)
        disk = HeldDisk(fs)
        cutting = asyncio.ensure_future(managed.logs.truncate({log: 5}))
        await disk.began.wait()
        managed.logs.delete(key(0))
        successor = managed.logs.create(key(0), UUID(int=78))
        for _ in range(8):
            append(successor, size=60)
        disk.gate.set()
        assert (await cutting).keys() == {log}
        assert all_offsets(successor) == list(range(8))

    asyncio.run(scene())


def test_fsyncs_that_began_before_end_before_the_files_are_cut() -> None:
    async def scene() -> None:
        fs = new_disk()
        managed, (log,) = filled(fs, 1)
        disk = HeldDisk(fs)
        waiting = asyncio.ensure_future(log.flush_async())
        await disk.began.wait()
        cutting = asyncio.ensure_future(managed.logs.truncate({log: 5}))
        for _ in range(2):
            await asyncio.sleep(0)
        assert log.truncator.is_busy
        assert disk.runs == 1
        disk.gate.set()
        assert await cutting == {}
        with pytest.raises(KafkaError):
            await waiting
        assert log.durable_offset <= 5
        await log.flush_async()
        assert log.durable_offset == 5

    asyncio.run(scene())


def test_a_truncation_whose_caller_is_gone_comes_to_its_end_before_the_logs_are_closed() -> None:
    async def scene() -> None:
        fs = new_disk()
        managed, logs = filled(fs, 3)
        disk = HeldDisk(fs)
        cutting = asyncio.ensure_future(managed.logs.truncate(dict.fromkeys(logs, 5)))
        await disk.began.wait()
        cutting.cancel()
        closing = asyncio.ensure_future(managed.logs.close_logs(1))
        await asyncio.sleep(0)
        disk.gate.set()
        await closing
        managed.logs.shutdown()
        again = Managed(fs, defaults=SMALL)
        assert [all_offsets(again.logs.get(key(number))) for number in range(3)] == [list(range(5))] * 3  # type: ignore[arg-type]

    asyncio.run(scene())


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("offset", [0, 5, 8, 17])
def test_a_crash_anywhere_leaves_a_prefix_between_both_ends(offset: int, power_loss: bool) -> None:
    """The recovery points of the longer logs are on disk: recovery misses what they call fsynced."""
    steps = 0
    while True:
        fs = new_disk()
        managed, logs = filled(fs, 2)
        checkpoint(fs, managed, logs)
        fs.crash_after(steps)
        try:
            assert asyncio.run(managed.logs.truncate(dict.fromkeys(logs, offset))) == {}
            done = not fs.crashed
        except SimulatedCrash:
            done = False
        fs.restart(power_loss=power_loss)
        again = Managed(fs, defaults=SMALL)
        for number in range(2):
            log = again.logs.get(key(number))
            assert log is not None, again.warnings
            found = all_offsets(log)
            assert found == list(range(len(found))) and offset <= len(found) <= 20, (steps, found)
            assert not done or len(found) == offset
            append(log, epoch=30, size=60)
        if done:
            break
        steps += 1
    assert steps >= 5


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_anywhere_in_starting_over_leaves_a_log_that_opens(power_loss: bool) -> None:
    ranges: set[tuple[int, int]] = set()
    steps, done = 0, False
    while not done:
        fs = new_disk()
        managed, logs = filled(fs, 2)
        checkpoint(fs, managed, logs)
        fs.crash_after(steps)
        try:
            assert asyncio.run(managed.logs.start_over(dict.fromkeys(logs, 1000))) == {}
            logs[0].append_as_follower(build_batch([SimpleRecord(NOW, None, b"new")], base_offset=1000), now_ms=NOW)
            managed.background(10**6)
            done = not fs.crashed
        except SimulatedCrash:
            pass
        fs.restart(power_loss=power_loss)
        again = Managed(fs, defaults=SMALL)
        for number in range(2):
            log = again.logs.get(key(number))
            assert log is not None, (steps, again.warnings)
            assert log.log_end_offset <= 20 or log.log_start_offset == 1000
            ranges.add((log.log_start_offset, log.log_end_offset))
        steps += 1
    assert {(0, 20), (1000, 1000), (1000, 1001)} <= ranges


def test_appends_reads_and_fsyncs_race_with_truncations() -> None:
    """Whatever is refused meanwhile: what was appended after the latest cut is there, and nothing else."""

    async def scene(seed: int) -> int:
        rng = random.Random(seed)
        fs = new_disk()
        managed, (log,) = filled(fs, 1, records=15)
        model = list(range(15))
        refused = 0

        def on_truncated(offset: int) -> None:
            del model[offset:]

        log.observe(lambda: None, lambda: None, on_truncated, lambda: None)

        async def cut() -> None:
            for _ in range(6):
                await asyncio.sleep(0)
                offset = rng.randrange(0, 20)
                assert await managed.logs.truncate({log: offset}) == {}

        async def write() -> None:
            nonlocal refused
            for number in range(60):
                await asyncio.sleep(0)
                try:
                    info = append(log, epoch=10, size=60 + number, commit=bool(rng.randrange(2)))
                except KafkaError as error:
                    assert error.code is ErrorCode.not_leader_or_follower
                    refused += 1
                    continue
                assert info.first_offset == len(model)
                model.append(info.first_offset)

        async def use() -> None:
            for _ in range(60):
                await asyncio.sleep(0)
                try:
                    assert all_offsets(log) == model
                    await log.flush_async()
                except KafkaError as error:
                    assert error.code is ErrorCode.not_leader_or_follower
                assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
                assert log.durable_offset <= log.log_end_offset

        await asyncio.gather(cut(), write(), use())
        assert all_offsets(log) == model
        return refused

    refused = [asyncio.run(scene(seed)) for seed in range(30)]
    assert sum(refused) > 100, "nothing raced"
