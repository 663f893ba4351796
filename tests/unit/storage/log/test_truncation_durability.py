"""What is on disk after a log was cut: power failures behind a cut must not bring back what was dropped."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest

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
