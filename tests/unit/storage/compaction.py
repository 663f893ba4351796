"""Help for the tests of compaction: one compacted log with its manager and cleaner, on a simulated disk."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.drivers.logs.log_cleaner import CleanerSettings, LogCleaner
from ottla.protocol.records.record_batch import BatchHeader, Record, build_batch, iterate_batches, iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log
from ottla.storage.log.validation import Origin
from ottla.storage.log_manager import LogManager
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.storage.logs import KEY, NOW, ROOT, new_disk

TOPIC_ID = UUID(int=5)
COMPACT = frozenset({"compact"})

Pair = tuple[bytes | None, bytes | None]


class FixedClock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now


def compacted(**options: Any) -> LogConfig:
    """A compacted topic that is cleaned whenever it is dirty."""
    defaults: dict[str, Any] = {
        "cleanup_policy": COMPACT,
        "min_cleanable_dirty_ratio": 0.0,
        "index_interval_bytes": 0,
    }
    return LogConfig(**(defaults | options))


class Compaction:
    def __init__(
        self,
        config: LogConfig | None = None,
        *,
        fs: SimulatedFileSystem | None = None,
        settings: CleanerSettings | None = None,
        seed: int = 1,
    ) -> None:
        self.fs = new_disk() if fs is None else fs
        self.clock = FixedClock()
        self.config = compacted() if config is None else config
        self.settings = settings or CleanerSettings(dedupe_buffer_bytes=24_000, io_buffer_bytes=1)
        self.random = random.Random(seed)
        self.warnings: list[tuple[str, dict[str, object]]] = []
        self.start()
        self.fs.fsync_all()

    def _warn(self, event: str, /, **found: object) -> None:
        self.warnings.append((event, found))

    def start(self) -> None:
        self.logs = LogManager(self.fs, (ROOT,), self.config, self.clock, self.random, warn=self._warn)
        self.logs.lock()
        self.logs.load()
        self.log: Log = self.logs.create(KEY, TOPIC_ID, self.config)
        self.cleaner = LogCleaner(self.fs, self.logs, self.clock, self.random, lambda: self.settings)

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.logs.shutdown()
        self.start()
        self.log.high_watermark = self.log.log_end_offset

    def put(self, pairs: Iterable[Pair], *, commit: bool = True, timestamp: int | None = None, **options: Any) -> int:
        """Append one batch; returns its first offset."""
        stamp = self.clock.now if timestamp is None else timestamp
        records = [(stamp + i, key, value, ()) for i, (key, value) in enumerate(pairs)]
        return self.append(build_batch(records, **options), commit=commit)

    def append(self, batch: bytearray, *, commit: bool = True, origin: Origin = Origin.COORDINATOR) -> int:
        info = self.log.append_as_leader(batch, 0, now_ms=self.clock.now, origin=origin)
        if commit:
            self.log.high_watermark = info.last_offset + 1
        return info.first_offset

    def marker(self, producer_id: int, *, abort: bool, epoch: int = 0) -> int:
        """End a transaction."""
        return self.append(end_marker(producer_id, abort=abort, epoch=epoch, timestamp=self.clock.now))

    def clean(self) -> bool:
        """Clean once; whether there was something to clean."""
        return asyncio.run(self.cleaner.clean_dirtiest())

    def clean_all(self) -> int:
        count = 0
        while self.clean():
            count += 1
            assert count < 100, "cleaning does not end"
        return count

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in batches(self.log)]

    def records(self) -> list[Record]:
        return [record for _, records in batches(self.log) for record in records]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def pairs(self) -> list[Pair]:
        return [(record.key, record.value) for record in self.records()]


def end_marker(producer_id: int, *, abort: bool, epoch: int = 0, timestamp: int = NOW) -> bytearray:
    key, value = struct.pack(">hh", 0, 0 if abort else 1), struct.pack(">hi", 0, 3)
    return build_batch(
        [(timestamp, key, value, ())], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )


def batches(log: Log, offset: int | None = None) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches from an offset on, as a consumer gets them."""
    at = log.log_start_offset if offset is None else offset
    found = []
    while (part := log.read(at, 1 << 20, up_to=log.log_end_offset)) is not None:
        data = part.read()
        for position, header in iterate_batches(data):
            found.append((header, list(iterate_records(data, position))))
            assert header.next_offset > at
            at = header.next_offset
    return found
