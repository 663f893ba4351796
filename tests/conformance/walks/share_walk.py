"""The same calls for Ottla's SharePartition and for Kafka's own class, from a seed; every answer has to be the same.

The log has batches of different sizes, gaps where it was compacted, batches of transactions that were aborted, and
control batches. Members fetch, acknowledge, renew, leave and forget; writes to the share coordinator are late, or fail.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, deque
from typing import Any

from ottla.errors import KafkaError
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import ReadBatch, aborted_ranges
from ottla.replication.share.acknowledgement import Acknowledgement, StateWrite
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.share_partition import LoadedState, SharePartition
from tests.conformance.line_program import Lines

MEMBERS = ("a", "b", "c")
LOCK_MS = 1_000
STEPS = 120
FAILURES = ("IllegalStateException: Batch record not found", "IllegalArgumentException: inconsistent range")
"""Failures for batches of aborted transactions that begin before the window, and for reads that end before it."""


class KafkaFails(Exception):
    """An error of Kafka's own class, after which it is of no use."""


class Walk:
    def __init__(self, seed: int, kafka: Lines) -> None:
        self.random = random.Random(seed)
        self.kafka = kafka
        self.now_ms = 0
        self.batches = self._log()
        self.aborted_transactions = self._aborted()
        self.writes: deque[StateWrite] = deque()
        self.held: dict[str, list[Acquired]] = {member: [] for member in MEMBERS}
        self.done: Counter[str] = Counter()
        self.lines: list[str] = []
        self.log_start = 0
        loaded = self._loaded()
        locks, limit = self.random.choice((12, 40, 200)), self.random.choice((2, 3, 5, 10))
        config = ShareConfig(LOCK_MS, limit, locks)
        self.ottla = SharePartition(LoadedState(1, loaded[0], loaded[1]), 1, config)
        parts = [f"{b.first_offset},{b.last_offset},{int(b.delivery_state)},{b.delivery_count}" for b in loaded[1]]
        self.compare(" ".join(["load", str(locks), str(limit), str(loaded[0]), *parts]), self.state(), [])

    def _log(self) -> list[ReadBatch]:
        batches, offset = [], 0
        while offset < 400:
            offset += self.random.choice((0, 0, 0, 0, 1, 5))
            producer = self.random.choice((-1, -1, 7, 8))
            if producer >= 0 and self.random.random() < 0.3:
                batches.append(ReadBatch(offset, offset, producer, True, True))
                offset += 1
                continue
            last = offset + self.random.choice((0, 0, 2, 9, 24))
            batches.append(ReadBatch(offset, last, producer, producer >= 0))
            offset = last + 1
        return batches

    def _aborted(self) -> list[tuple[int, int]]:
        """Each producer's transactions that end with a marker; some of them are reported as committed."""
        found: list[tuple[int, int]] = []
        first: dict[int, int] = {}
        for batch in self.batches:
            if batch.is_abort_marker:
                if batch.producer_id in first:
                    found.append((batch.producer_id, first.pop(batch.producer_id)))
            elif batch.is_transactional:
                first.setdefault(batch.producer_id, batch.base_offset)
        return found

    def _loaded(self) -> tuple[int, list[StateBatch]]:
        start = self.random.choice((0, 0, 3, 20))
        batches, offset = [], start
        for _ in range(self.random.choice((0, 0, 2, 5))):
            offset += self.random.choice((0, 0, 3, 12))
            last = offset + self.random.choice((0, 4, 10))
            state, count = self.random.choice(((0, 1), (0, 1), (2, 1), (4, 2)))
            batches.append(StateBatch(offset, last, state, count))
            offset = last + 1
        return start, batches

    # Comparing

    def state(self) -> str:
        it = self.ottla
        return (
            f"next={it.next_fetch_offset()} start={it.window.start_offset} end={it.window.end_offset}"
            f" can={str(it.can_acquire()).lower()} done={it.window.complete_count()}"
        )

    def counts_alike(self) -> bool:
        """Kafka's number of complete offsets, which it counts in passing, drifts where the log is cut or transactions
        are aborted: it counts offsets before the window too."""
        return not (self.done["start"] or self.done["aborted"])

    def is_same(self, ours: str, theirs: str) -> bool:
        if self.counts_alike():
            return ours == theirs
        return ours.partition(" done=")[0] == theirs.partition(" done=")[0]

    def compare(self, line: str, answer: str, writes: list[StateWrite | None]) -> None:
        self.lines.append(line)
        self.writes.extend(write for write in writes if write is not None)
        theirs, events = self.kafka.ask(line)
        if any(each in theirs for each in FAILURES):
            raise KafkaFails(theirs)
        ours = [_write(write.start_offset, write.delivery_complete_count, write.batches) for write in writes if write]
        assert self.is_same(answer, theirs), f"{self.script()}\n ottla: {answer}\n kafka: {theirs}"
        merged = [_parsed(each) for each in events]
        if not self.counts_alike():
            ours, merged = ([(start, offsets) for start, _, offsets in some] for some in (ours, merged))
        assert ours == merged, f"{self.script()}\n ottla: {ours}\n kafka: {merged}"

    def script(self) -> str:
        return "\n".join(self.lines)

    # Steps

    def step(self) -> None:
        names = ("acquire", "acknowledge", "written", "time", "release", "start")
        name = self.random.choices(names, (30, 34, 30, 12, 4, 3))[0]
        self.done[name] += 1
        getattr(self, name)()

    def acquire(self) -> None:
        fetch_offset = self.ottla.next_fetch_offset()
        if not self.ottla.can_acquire():
            self.done["full"] += 1
            return
        index = bisect_left(self.batches, fetch_offset, key=lambda batch: batch.last_offset)
        read = self.batches[index : index + self.random.choice((1, 2, 6))]
        if not read:
            return
        wanted = Wanted(
            self.random.choice(MEMBERS),
            self.random.choice((1, 4, 500)),
            self.random.choice((1, 5, 500)),
            self.random.random() < 0.35,
        )
        transactions = (
            [each for each in self.aborted_transactions if each[1] <= read[-1].last_offset]
            if self.random.random() < 0.6
            else []
        )
        # The log names the aborted transactions that overlap what was read.
        transactions = [each for each in transactions if self._end(each) >= read[0].base_offset]
        ranges = aborted_ranges(read, transactions)
        acquired = self.ottla.acquire(wanted, fetch_offset, read, self.now_ms, ranges)
        self.held[wanted.member] += acquired
        self.done["acquired"] += len(acquired)
        self.done["aborted"] += len(ranges)
        self.done["again"] += any(count > 1 for _, _, count in acquired)
        answer = "".join(f":{first},{last},{count}" for first, last, count in acquired)
        aborted = ";".join(f"{pid},{first}" for pid, first in transactions) or "-"
        batches = [f"{b.base_offset},{b.last_offset},{b.producer_id},{str(b.is_abort_marker).lower()}" for b in read]
        line = ["acquire", wanted.member, wanted.records_max, wanted.batch_size, str(wanted.strict).lower()]
        self.compare(
            " ".join(map(str, [*line, fetch_offset, aborted, *batches])), f"acquired{answer} {self.state()}", []
        )

    def _end(self, transaction: tuple[int, int]) -> int:
        producer, first = transaction
        return next(
            b.base_offset
            for b in self.batches
            if b.is_abort_marker and b.producer_id == producer and b.base_offset > first
        )

    def acknowledge(self) -> None:
        member = self.random.choice(MEMBERS)
        held = self.held[member if self.random.random() < 0.95 else self.random.choice(MEMBERS)]
        if not held:
            return
        some = sorted(self.random.sample(held, self.random.randint(1, min(3, len(held)))))
        asked: list[Acknowledgement] = []
        for first, last, _ in some:
            if asked and first <= asked[-1][1]:
                continue
            if self.random.random() < 0.3:
                first = self.random.randint(first, last)
                last = self.random.randint(first, last)
            if self.random.random() < 0.7:
                types = [self.random.choice((1, 1, 1, 2, 2, 3, 4, 0))]
            else:
                types = [self.random.choice((1, 1, 2, 3, 4, 0)) for _ in range(last - first + 1)]
            if self.random.random() < 0.02:
                types[-1] = 9
            asked.append((first, last, types))
        if self.random.random() < 0.6:
            for each in some:
                if each in held:
                    held.remove(each)
        try:
            write = self.ottla.acknowledge(member, asked, self.now_ms)
            answer = "ok"
        except KafkaError as error:
            write, answer = None, error.code.name.upper()
        self.done[answer] += 1
        parts = [",".join(map(str, (first, last, *types))) for first, last, types in asked]
        self.compare(" ".join(["acknowledge", member, *parts]), f"{answer} {self.state()}", [write])

    def written(self) -> None:
        if self.writes:
            committed = self.random.random() < 0.8
            self.done["failed"] += not committed
            self.ottla.written(self.writes.popleft(), self.now_ms, committed=committed)
            self.compare(f"written {str(committed).lower()}", self.state(), [])

    def time(self) -> None:
        self.now_ms += self.random.choice((10, 300, 1_000))
        write = self.ottla.advance(self.now_ms)
        self.done["expired"] += write is not None
        self.expired(f"time {self.now_ms}", write)

    def expired(self, line: str, write: StateWrite | None) -> None:
        """Kafka writes for each lock that ended, Ottla once: the same batches, and the same of each when committed."""
        self.lines.append(line)
        theirs, events = self.kafka.ask(line)
        assert self.is_same(self.state(), theirs), f"{self.script()}\n ottla: {self.state()}\n kafka: {theirs}"
        parsed = [_parsed(each) for each in events]
        merged = sorted(batch for each in parsed for batch in each[2])
        assert merged == (_merged(write.batches) if write else []), self.script()
        if write is None:
            return
        # Done with before anything else, for the two have not as many writes under way.
        while self.writes:
            self.written()
        for _ in parsed:
            self.lines.append("written true")
            answer = self.kafka.ask("written true")[0]
        self.ottla.written(write, self.now_ms, committed=True)
        assert self.is_same(self.state(), answer), f"{self.script()}\n ottla: {self.state()}\n kafka: {answer}"

    def release(self) -> None:
        member = self.random.choice(MEMBERS)
        write = self.ottla.release(member)
        self.held[member].clear()
        self.compare(f"release {member}", f"ok {self.state()}", [write])

    def start(self) -> None:
        start = self.ottla.window.start_offset + self.random.choice((1, 3, 15))
        if not any(batch.base_offset <= start <= batch.last_offset for batch in self.batches):
            return  # Kafka's class fails with a NullPointerException where its window begins in a gap
        if self.ottla.window.batches and start > self.ottla.window.end_offset:
            return  # and moves its window back from there
        while self.writes:
            # Kafka loses track of those of which the new start is in the middle, and delivers too early.
            self.written()
        self.ottla.move_start(start)
        self.compare(f"start {start}", self.state(), [])


def _write(start: int, done: int, batches: list[StateBatch]) -> Any:
    return (start, done, _merged(batches))


def _parsed(event: str) -> Any:
    _, start, done, *batches = event.split(":")
    return _write(int(start), int(done), [StateBatch(*map(int, each.split(","))) for each in batches])


def _merged(batches: list[StateBatch]) -> list[tuple[int, int, int]]:
    """State and count of each offset, for Kafka writes each for itself at times."""
    found = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            found[offset] = (offset, int(batch.delivery_state), batch.delivery_count)
    return [found[offset] for offset in sorted(found)]
