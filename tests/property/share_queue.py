"""A share-partition as a queue: members that take, finish and forget records, a coordinator that keeps what it is told,
or does not, and leaders that are lost; with an order by key, times of delivery and back-offs.

    python -m tests.property.share_queue --records 1000000 --seed 1      # the same with more records, by hand

Checked is every delivery: that everything before it of its key is done with, that its time has come, that its back-off
is over, that nobody has it, and that it was not done with; in the end, that each record was accepted or is dead once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.coordinator.share.combining import combine
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acknowledgement import StateWrite
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.ranges import count_records
from ottla.replication.share.share_partition import LoadedState, SharePartition

ACCEPT, RELEASE, REJECT = 1, 2, 3
WALL_MS = 1_800_000_000_000
"""Milliseconds since 1970 at the start."""
LOCK_MS = 2_000
LIMIT = 4
CALM_AFTER = 5_000
"""Steps without a record that is done with, after which no leader is lost: each begins the last back-offs again."""
READ_BATCHES = 40
"""Batches that are read at once of one place."""


class Mark(NamedTuple):
    """A record, as `read_marks` finds it."""

    offset: int
    key: int | None
    due_ms: int


@dataclass
class Load:
    records: int = 10_000
    keys: int = 300
    keyless: float = 0.1
    delayed: float = 0.05
    """Share of the records with a time of delivery, up to `delay_ms_max` ahead of the start."""
    delay_ms_max: int = 60_000
    poison: float = 0.01
    """Share of the records that fail each time."""
    failovers: float = 0.001
    """By step; as many writes fail."""
    gaps: float = 0.01
    config: ShareConfig = field(default_factory=lambda: ShareConfig(
        LOCK_MS, LIMIT, 400, True, 300, 2_000, b"at", is_ordered_by_key=True, waiting_max=3_000,
    ))  # fmt: skip


class Wrong(AssertionError):
    pass


class World:
    def __init__(self, seed: int, load: Load) -> None:
        self.random = random.Random(seed)
        self.load = load
        self.now_ms = 1_000
        self.marks: list[Mark] = []
        self.batches: list[ReadBatch] = []
        self._make_log()
        self.poison = {mark.offset for mark in self.marks if self.random.random() < load.poison}
        self.before: dict[int, int] = {}
        """The record before it of the same key, if it has one."""
        last: dict[int, int] = {}
        for mark in self.marks:
            if mark.key is not None:
                if mark.key in last:
                    self.before[mark.offset] = last[mark.key]
                last[mark.key] = mark.offset
        self.by_offset = {mark.offset: mark for mark in self.marks}
        self.done: dict[int, int] = {}
        """What became of a record, once that is kept."""
        self.held: dict[int, tuple[str, int]] = {}
        """Member that has a record, and until when."""
        self.free_from: dict[int, int] = {}
        """When the back-off of a record is over."""
        self.kept: tuple[int, tuple[StateBatch, ...]] = (0, ())
        self.writes: list[tuple[StateWrite, dict[int, int], bool]] = []
        """On their way to the coordinator, with what becomes of the records, and whether that may fail: the leader does
        not undo that a lock has ended, as in Kafka."""
        self._below = 0
        """Records before the start that is kept."""
        self.deliveries = self.failovers = self.most_runs = self.stuck = 0
        self.core = self._lead(0, ())

    def _make_log(self) -> None:
        offset, chance, load = 0, self.random.random, self.load
        while len(self.marks) < load.records:
            first = offset
            for _ in range(self.random.randint(1, 40)):
                if chance() < load.gaps:
                    offset += 1
                key = None if chance() < load.keyless else self.random.randrange(load.keys)
                due_ms = WALL_MS + self.random.randrange(load.delay_ms_max) if chance() < load.delayed else 0
                self.marks.append(Mark(offset, key, due_ms))
                offset += 1
            self.batches.append(ReadBatch(first, offset - 1))
            offset += chance() < load.gaps

    # The leader

    def _lead(self, start: int, batches: Sequence[StateBatch]) -> SharePartition:
        core = SharePartition(LoadedState(0, start, batches), self.failovers, self.load.config)
        core.ahead_ms = WALL_MS
        self.held.clear()
        self.free_from.clear()
        for each in batches:
            if each.delivery_state == DeliveryState.AVAILABLE:
                wait_ms = self.load.config.backoff_ms(each.delivery_count)
                for offset in range(each.first_offset, each.last_offset + 1):
                    self.free_from[offset] = self.now_ms + wait_ms
        return core

    def fail_over(self) -> None:
        while self.writes and self.random.random() < 0.5:
            self.commit(committed=True, lost=True)
        self.writes.clear()
        self.failovers += 1
        self.core = self._lead(*self.kept)

    def commit(self, *, committed: bool, lost: bool = False) -> None:
        """The coordinator has kept the oldest write, or not; the leader hears of it unless it is `lost`."""
        write, fates, _ = self.writes.pop(0)
        if committed:
            start, batches = self.kept
            start = max(start, write.start_offset)
            self.kept = start, combine(batches, write.kept(), start)
            for offset, fate in fates.items():
                if offset in self.done:
                    raise Wrong(f"{offset} is done with twice")
                self.done[offset] = fate
            while self._below < len(self.marks) and self.marks[self._below].offset < start:
                # Its last lock had ended when its acknowledgement could not be kept: it is dead, and the window closes.
                self.done.setdefault(self.marks[self._below].offset, DeliveryState.ARCHIVED)
                self._below += 1
        if not lost:
            self.core.written(write, self.now_ms, committed=committed)
            for each in write.batches:
                if committed and each.delivery_state == DeliveryState.AVAILABLE:
                    self._free(each)

    def _free(self, batch: StateBatch) -> None:
        wait_ms = self.load.config.backoff_ms(batch.delivery_count)
        for offset in range(batch.first_offset, batch.last_offset + 1):
            self.free_from.setdefault(offset, self.now_ms + wait_ms)

    def _write(self, write: StateWrite | None, *, may_fail: bool = True) -> None:
        if write is None:
            return
        fates = {
            offset: each.delivery_state
            for each in write.batches
            if each.delivery_state != DeliveryState.AVAILABLE
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        self.writes.append((write, fates, may_fail))

    # Members

    def fetch(self, member: str, records: int) -> list[int]:
        core = self.core
        if not core.can_acquire():
            return []
        selection = core.selection
        assert selection is not None
        batches: list[ReadBatch] = []
        read: list[OffsetRange] = []
        for first, until in core.parts(records):
            first = max(first, batches[-1].last_offset + 1) if batches else first
            if first <= until and (some := self._read(first, until)):
                if read and read[-1].last_offset + 1 == first:
                    first = read.pop().first_offset
                batches += some
                read.append(OffsetRange(first, some[-1].last_offset))
        if not batches:
            return []
        marks: list[Mark] | None = None
        if read[-1].last_offset >= selection.scan_from and self.load.config.mark_settings is not None:
            new = range(max(selection.scan_from, selection.marked_until + 1), batches[-1].last_offset + 1)
            marks = [*selection.ahead, *(self.by_offset[at] for at in new if at in self.by_offset)]
        wanted = Wanted(member, records, records)
        acquired = core.acquire(wanted, read[0].first_offset, batches, self.now_ms, (), marks, read)
        if count_records(acquired) > records:
            raise Wrong("more than was wanted")
        return [at for each in acquired for at in self._taken(member, each)]

    def _read(self, offset: int, until: int) -> list[ReadBatch]:
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        found = []
        for batch in self.batches[low : low + READ_BATCHES]:
            found.append(batch)
            if batch.last_offset >= until:
                break
        return found

    def _taken(self, member: str, acquired: Acquired) -> list[int]:
        taken = []
        first, last, count = acquired
        for offset in range(first, last + 1):
            mark = self.by_offset.get(offset)
            if mark is None:
                raise Wrong(f"{offset} was delivered, where no record is")
            self.deliveries += 1
            if offset in self.done:
                raise Wrong(f"{offset} was delivered, and was done with")
            if offset in self.held:
                raise Wrong(f"{offset} was delivered to {member}, and is with {self.held[offset]}")
            before = self.before.get(offset) if self.load.config.is_ordered_by_key else None
            if before is not None and before not in self.done:
                raise Wrong(f"order: {offset} was delivered before {before}, which has the same key")
            if self.load.config.delivery_time_header and mark.due_ms > WALL_MS + self.now_ms:
                raise Wrong(f"time: {offset} was delivered {mark.due_ms - WALL_MS - self.now_ms} ms early")
            if self.now_ms < self.free_from.get(offset, 0):
                raise Wrong(f"back-off: {offset} was delivered {self.free_from[offset] - self.now_ms} ms early")
            self.free_from.pop(offset, None)
            if not 1 <= count <= LIMIT:
                raise Wrong(f"{offset} was delivered {count} times")
            self.held[offset] = member, self.now_ms + LOCK_MS
            taken.append(offset)
        return taken

    def finish(self, member: str) -> None:
        """A member finishes some of what it has, and forgets some."""
        mine = [offset for offset, (name, _) in self.held.items() if name == member]
        said = []
        for offset in mine:
            chance = self.random.random()
            fate = RELEASE if offset in self.poison or chance < 0.03 else REJECT if chance < 0.032 else ACCEPT
            if chance > 0.998 or offset not in self.held:
                continue
            del self.held[offset]
            said.append((offset, offset, (fate,)))
        if said:
            self._write(self.core.acknowledge(member, said, self.now_ms))

    def wait(self, ms: int) -> None:
        """Time passes, by the timer of the leader."""
        end = self.now_ms + ms
        while (deadline := self.core.next_deadline()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            write = self.core.advance(self.now_ms)
            for offset in [offset for offset, (_, until) in self.held.items() if until <= self.now_ms]:
                del self.held[offset]
            if write is not None:
                for each in write.batches:
                    if each.delivery_state == DeliveryState.AVAILABLE:
                        self._free(each)
                self._write(write, may_fail=False)
        self.now_ms = end

    def step(self) -> None:
        chance, load = self.random.random(), self.load
        member = f"m{self.random.randrange(4)}"
        if chance < load.failovers and self.stuck < CALM_AFTER:
            self.fail_over()
        elif self.writes and chance < 0.3:
            self.commit(committed=not (chance < 3 * load.failovers and self.writes[0][2]))
        elif chance < 0.6:
            self.fetch(member, self.random.choice((1, 20, 100)))
        elif chance < 0.9:
            self.finish(member)
        else:
            self.wait(self.random.choice((1, 5, 50)))
        if self.core.selection is not None and self.deliveries % 64 == 0:
            self.most_runs = max(self.most_runs, sum(len(batch.runs) for batch in self.core.window.batches))

    def dead(self) -> set[int]:
        return {offset for offset, fate in self.done.items() if fate == DeliveryState.ARCHIVED}

    def run(self) -> None:
        before = -1
        while len(self.done) < len(self.marks):
            self.step()
            self.stuck = self.stuck + 1 if len(self.done) == before else 0
            before = len(self.done)
            if self.stuck > 4 * CALM_AFTER:
                left = [mark for mark in self.marks if mark.offset not in self.done]
                raise Wrong(f"{len(left)} records are never delivered, such as {left[0]}")
        if not self.poison <= self.dead():
            raise Wrong("a record that always fails was accepted")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    world = World(options.seed, Load(records=options.records, keys=max(10, options.records // 30)))
    began = time.perf_counter()
    world.run()
    dead = sum(fate == DeliveryState.ARCHIVED for fate in world.done.values())
    print(
        f"{len(world.done):,} records: {len(world.done) - dead:,} accepted, {dead:,} dead, in order by key; "
        f"{world.deliveries:,} deliveries, {world.failovers} changes of leader, at most {world.most_runs:,} runs, "
        f"{time.perf_counter() - began:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
