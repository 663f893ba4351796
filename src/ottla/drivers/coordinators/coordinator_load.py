"""Reads a partition of a coordinator's topic into its shard, as its new leader does.

A group that commits every second leaves 600,000 records a week, of which the last counts. Records are therefore
applied as if the log had been compacted: only the newest of each key is decoded. Where a transaction comes in, what was
held back is applied first, since it matters which offset was committed before which. A coordinator whose records add up
(that of share groups) has all of them replayed.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.filesystem import FileSystem
from ottla.metrics.windows import Windows
from ottla.model import NO_PRODUCER_ID, Buffer, Offset
from ottla.protocol.records.record_batch import (
    ABORT_KEY,
    COMMIT_KEY,
    BatchHeader,
    CorruptBatch,
    Record,
    crc_is_valid,
    iterate_batches,
    iterate_records,
)
from ottla.storage.recovery.damage import Damage, DamagedLog

if TYPE_CHECKING:
    from ottla.drivers.ports import LoadedCore, ReadableLog

WHOLE = "what lies behind it was not looked at"
RECORDS_BETWEEN_YIELDS = 1_000
"""A few milliseconds of work, for which other clients have to wait."""


Decode: TypeAlias = Callable[[Buffer, Buffer | None], Any]
"""Key and value to a record for `replay`, or None for what is passed over. Raises MalformedRecord."""


async def load(
    core: LoadedCore, log: ReadableLog, fs: FileSystem, buffer_bytes: int, decode: Decode, *, all_records: bool = False
) -> None:
    """Replay the whole log; of each key the newest record, or `all_records`. Raises KafkaError, MalformedRecord or
    OSError."""
    loader = _Loader(core, decode, all_records)
    position = log.log_start_offset
    while position < log.log_end_offset:
        part = log.read(position, buffer_bytes, up_to=log.log_end_offset)
        if part is None:
            break
        data = await fs.run(part.read)
        try:
            position = await loader.take(data, position)
        except CorruptBatch as error:
            file = part.file.path
            raise DamagedLog(
                Damage(posixpath.dirname(file), file, None, f"from byte {part.position} on {error.message}", WHOLE)
            ) from error
    await loader.apply()


class _Loader:
    def __init__(self, core: LoadedCore, decode: Decode, all_records: bool) -> None:
        self._core = core
        self._decode = decode
        self._all_records = all_records
        self._latest: dict[bytes, Record] = {}
        """The newest record of each key that is not applied yet."""
        self._since_yield = 0

    async def take(self, data: bytes, position: Offset) -> Offset:
        """Take batches, which start at `position`; returns the offset after them."""
        latest = self._latest
        for start, header in iterate_batches(data):
            if not crc_is_valid(data, start, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match its bytes")
            if header.is_transactional:
                await self.apply()
                self._take_of_transaction(header, data, start)
            elif self._all_records:
                for record in iterate_records(data, start):
                    self._replay(record, NO_PRODUCER_ID)
            else:
                for record in iterate_records(data, start):
                    if record.key is not None:
                        latest[record.key] = record
            position = header.next_offset
            await self._worked(header.count)
        return position

    def _take_of_transaction(self, header: BatchHeader, data: bytes, start: int) -> None:
        for record in iterate_records(data, start):
            if not header.is_control:
                self._replay(record, header.producer_id)
            elif record.key in (COMMIT_KEY, ABORT_KEY):
                self._core.replay_transaction_end(header.producer_id, record.key == COMMIT_KEY)

    async def apply(self) -> None:
        """Replay what was held back, in the order of the log."""
        if not self._latest:
            return
        records = sorted(self._latest.values(), key=lambda record: record.offset)
        self._latest.clear()
        for record in records:
            self._replay(record, NO_PRODUCER_ID)
            await self._worked(1)

    def _replay(self, record: Record, producer_id: int) -> None:
        if record.key is not None:
            decoded = self._decode(record.key, record.value)
            if decoded is not None:
                self._core.replay(decoded, record.offset, producer_id)

    async def _worked(self, records: int) -> None:
        self._since_yield += records
        if self._since_yield >= RECORDS_BETWEEN_YIELDS:
            self._since_yield = 0
            await asyncio.sleep(0)


class LoadTimes:
    """How long it took lately to load a partition (Kafka's `partition-load-time`)."""

    def __init__(self) -> None:
        self._windows = Windows()

    def add(self, milliseconds: float) -> None:
        self._windows.record(milliseconds, asyncio.get_running_loop().time())

    def average_ms(self) -> float:
        """NaN where nothing was loaded in the last 30 to 60 seconds."""
        return self._windows.average(asyncio.get_running_loop().time())

    def maximum_ms(self) -> float:
        """NaN where nothing was."""
        return self._windows.maximum(asyncio.get_running_loop().time())
