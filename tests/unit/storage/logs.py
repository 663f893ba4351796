"""Help for the storage tests: logs on a simulated disk, and batches to put into them."""

from __future__ import annotations

import random
from typing import Any

from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.log.append_info import AppendInfo
from ottla.storage.log.log import Log
from ottla.storage.log.log_loader import load_log
from ottla.testing.disk import SimulatedFileSystem

NOW = 1_700_000_000_000
ROOT = "/data"
DIRECTORY = f"{ROOT}/t-0"
KEY = TopicPartition("t", 0)


def new_disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(1))
    fs.makedirs(ROOT)
    return fs


def load(fs: Any, config: LogConfig | None = None, **options: Any) -> Log:
    options.setdefault("now_ms", NOW)
    return load_log(fs, DIRECTORY, KEY, None, config or LogConfig(), random=random.Random(1), **options)


def batch(count: int = 1, *, timestamp: int = NOW, size: int = 10, **options: Any) -> bytearray:
    """Records at `timestamp`, `timestamp` + 1, ..."""
    return build_batch([SimpleRecord(timestamp + i, b"k", bytes([i % 256]) * size) for i in range(count)], **options)


def append(log: Log, count: int = 1, *, epoch: int = 0, commit: bool = True, **options: Any) -> AppendInfo:
    info = log.append_as_leader(batch(count, **options), epoch, now_ms=NOW)
    if commit:
        log.high_watermark = info.last_offset + 1
    return info


def read_offsets(log: Log, offset: int, max_bytes: int = 1 << 20, up_to: int | None = None) -> list[int]:
    """The offsets in one read."""
    found = log.read(offset, max_bytes, up_to=log.log_end_offset if up_to is None else up_to)
    if found is None:
        return []
    data = found.read()
    assert len(data) == found.length
    offsets = [record.offset for at, _ in iterate_batches(data) for record in iterate_records(data, at)]
    assert offsets[0] == found.first_offset
    return offsets


def all_offsets(log: Log) -> list[int]:
    found: list[int] = []
    offset = log.log_start_offset
    while more := read_offsets(log, offset, 4000):
        found += more
        offset = more[-1] + 1
    return found
