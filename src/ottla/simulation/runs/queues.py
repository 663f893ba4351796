"""A run of groups whose share group makes records wait: ordered by key, with times of delivery and back-offs.

Beside what holds for every share group, a record is not delivered before those before it of its key are done with, not
before its time, and not before its back-off is over, whichever leader delivers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.records.record_batch import Record, SimpleRecord, iterate_batches, iterate_records
from ottla.simulation.checks.history import Key
from ottla.simulation.clients.clients import Producer
from ottla.simulation.clients.share_members import Jobs, Process, ShareMember
from ottla.simulation.clients.wire import Wire
from ottla.simulation.runs.group_protocols import SHARERS, Employer, GroupRun
from ottla.simulation.runs.quorum import Plan

QUEUES = "queues"

HEADER = "at"
BACKOFF_MS, BACKOFF_MAX_MS = 300, 1000
DELAY_MS_MAX = 2000
KEYS = 6
MAY_BE_DEAD = 3
"""Deliveries that were heard of, from which a record may have come to its last one: answers are lost."""


@dataclass(frozen=True)
class _Delivery:
    sent_s: float
    """When it was asked for."""
    count: int


@dataclass
class Queue(Jobs):
    """What the members know of the order."""

    last: dict[tuple[Key, int], _Delivery] = field(default_factory=dict)
    """The last delivery of a record."""
    by_key: dict[tuple[Key, bytes], list[int]] = field(default_factory=dict)
    """Delivered records of a key."""


class QueueMember(ShareMember):
    jobs: Queue

    def _take(self, key: Key, row: dict[str, Any], process: Process, sent_s: float, wire: Wire) -> list[int]:
        offsets = super()._take(key, row, process, sent_s, wire)
        if not offsets:
            return offsets
        data = row["records"] or b""
        records = {each.offset: each for at, _ in iterate_batches(data) for each in iterate_records(data, at)}
        counts = {
            offset: batch["delivery_count"]
            for batch in row["acquired_records"]
            for offset in range(batch["first_offset"], batch["last_offset"] + 1)
        }
        for offset in offsets:
            if self.jobs.leads(process[0], key):
                self._check(key, records[offset], counts[offset], process[0])
            self.jobs.last[key, offset] = _Delivery(sent_s, counts[offset])
            if (name := records[offset].key) is not None:
                known = self.jobs.by_key.setdefault((key, name), [])
                if offset not in known:
                    known.append(offset)
        return offsets

    def _check(self, key: Key, record: Record, count: int, host: str) -> None:
        world, jobs, offset = self.world, self.jobs, record.offset
        before = jobs.last.get((key, offset))
        if before is not None and count == before.count + 1:
            wait_s = min(BACKOFF_MS << (before.count - 1), BACKOFF_MAX_MS) / 1000
            self.world.counts["back-offs checked"] += 1
            if world.time.now_s < before.sent_s + wait_s:
                world.violated(f"back-off: {key} {offset} at {world.time.now_s:.3f}, given at {before.sent_s:.3f}")
        for name, value in record.headers:
            if name == HEADER and value is not None:
                world.counts["times of delivery checked"] += 1
                # A clock that was set back since made the record later, not earlier.
                if world.machines[host].now_ms() < int(value) and not world.machines[host].skew_ms:
                    world.violated(f"time: {key} {offset} was delivered before {int(value)}")
        if record.key is None:
            return
        world.counts["order checked"] += 1
        for other in jobs.by_key.get((key, record.key), ()):
            earlier, later = min(other, offset), max(other, offset)
            if other != offset and (key, earlier) not in jobs.said and self._heard(key, earlier, offset, count):
                world.violated(f"order by key: {key} {later} was delivered, and {earlier} is not done with")

    def _heard(self, key: Key, earlier: int, offset: int, count: int) -> bool:
        """Whether the earlier of two records cannot be dead, by its deliveries."""
        known = self.jobs.last.get((key, earlier))
        deliveries = count if earlier == offset else known.count if known is not None else 0
        return deliveries < MAY_BE_DEAD


class QueueEmployer(Employer):
    def record(self, now_ms: int, value: bytes) -> SimpleRecord:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self.random.random() < 0.2:
            due_ms = now_ms + self.random.randrange(DELAY_MS_MAX)
            headers = ((HEADER, str(due_ms).encode()),)
        name = None if self.random.random() < 0.1 else f"k{self.random.randrange(KEYS)}".encode()
        return SimpleRecord(now_ms, name, value, headers)


class QueueRun(GroupRun):
    sharer = QueueMember
    group_settings = {
        **GroupRun.group_settings,
        "ottla.share.order": "key",
        "ottla.share.delivery.time.header": HEADER,
        "ottla.share.retry.backoff.ms": str(BACKOFF_MS),
        "ottla.share.retry.backoff.max.ms": str(BACKOFF_MAX_MS),
    }

    def __init__(self, seed: int, kind: str = QUEUES, plan: Plan | None = None) -> None:
        super().__init__(seed, kind, plan)
        self.jobs = Queue(SHARERS, self._leads)

    @property
    def employer(self) -> type[Producer]:
        return QueueEmployer

    def missed(self) -> list[str]:
        counts = self.counts()
        mine = ("back-offs checked", "times of delivery checked", "order checked")
        return [*super().missed(), *(f"the run met no {each}" for each in mine if not counts[each])]
