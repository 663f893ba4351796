"""Records of a topic, forward from offsets or backward from them, within limits of time, bytes and records.

Nothing is read for ever: a search ends at its limits and says how far it came, as offsets to go on from.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla.console.brokers import PIECE_BYTES, Brokers, failure
from ottla.console.cluster import Cluster, Topic, leader_of
from ottla.console.records.local_logs import LocalReading
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer, TopicPartition
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic, records_length
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.record_batch import iterate_batches, iterate_records, records_section

FETCH_BYTES: Final = 1024 * 1024
SEARCH_FETCH_BYTES: Final = 64 * 1024
"""A broker is kept by each Fetch of a search for as long as it takes to send so much."""
FILE_BYTES: Final = 256 * 1024
"""A search reads at least so much of a file at once. A batch that is too large for its memory is fetched; after that
the memory is large enough."""
PAUSE_PART: Final = 4.0
"""Pause after a Fetch of a search, as a part of the time that it took."""
PAUSE_MAX_S: Final = 0.05
KEPT_MAX: Final = 4 * 1024 * 1024
"""Bytes of memory that a thread of a search keeps for its following answers."""
BESIDE_BYTES: Final = 4096
"""More than an answer has beside its records, but for one with many aborted transactions."""
WAIT_MS: Final = 100
WINDOW_MAX: Final = 20_000
"""Offsets that are gone through at once when reading backward."""
SEARCH_WINDOW: Final = 1_000
PASSED_OVER: Final = 4
"""A batch that is passed over counts as this part of one that is read, for the limits: it takes no memory."""
FIRST_MAX: Final = 10
"""Matches that are kept to be shown before a reading ends."""


class Record(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Match = Callable[[Record], bool]


@dataclass
class Limits:
    """Limits that the partitions of one request share."""

    deadline: float
    """By the monotonic clock."""
    records_left: int
    bytes_left: int
    is_stopped: Callable[[], bool] = lambda: False
    """Whether nobody waits for the records any more."""
    records_read: int = 0
    bytes_read: int = 0
    matches: int = 0
    first: list[Record] = field(default_factory=list)
    """The first records that matched, for those who look before the reading ends."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def over(self) -> str:
        """The limit that is reached: stopped, time, records or bytes; empty for none."""
        if self.is_stopped():
            return "stopped"
        if time.monotonic() >= self.deadline:
            return "time"
        if self.records_left <= 0:
            return "records"
        return "bytes" if self.bytes_left <= 0 else ""

    def use(self, records: int, size: int, passed_records: int = 0, passed_size: int = 0) -> None:
        """What was fetched; the last two are what was passed over of it."""
        with self._lock:
            self.records_left -= records - passed_records + passed_records // PASSED_OVER
            self.bytes_left -= size - passed_size + passed_size // PASSED_OVER
            self.records_read += records
            self.bytes_read += size

    def matched(self, record: Record) -> None:
        with self._lock:
            self.matches += 1
            if len(self.first) < FIRST_MAX:
                self.first.append(record)


class Turns:
    """Searches have one Fetch at brokers at a time, all together, and leave brokers alone after it for PAUSE_PART times
    as long as it took: a broker that has much to do, and answers late, is asked less. Records are looked at meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = 0.0
        """When the next may begin, by the monotonic clock."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._lock:
            time.sleep(max(0.0, self._free - time.monotonic()))
            began = time.monotonic()
            try:
                yield
            finally:
                ended = time.monotonic()
                self._free = ended + min(PAUSE_MAX_S, PAUSE_PART * (ended - began))


@dataclass
class Part:
    """What was read of one partition."""

    number: int
    start: int
    reached: int
    """Reading forward the offset to go on from, backward the offset before which to go on."""
    found: list[Record] = field(default_factory=list)
    """Records that match, in the order in which they were asked for."""
    scanned: int = 0
    stopped: str = ""
    """The limit that ended it before its end; empty for none."""
    failure: KafkaError | OSError | None = None


@dataclass(frozen=True)
class Reader:
    """Reads partitions of one topic for one request."""

    brokers: Brokers
    cluster: Cluster
    topic: Topic
    limits: Limits
    match: Match | None = None
    is_committed: bool = True
    """Whether records of open and aborted transactions are left out."""
    turns: Turns | None = None
    """Turns of searches at brokers. None: it waits for none."""
    sieve: bytes = b""
    """Every record that matches has these bytes: batches without them are passed over. Empty for none."""
    files: LocalReading | None = None
    """Files of logs on this machine, which a search reads in place of Fetches; None: it fetches all."""
    threads: Callable[[], Executor] | None = None
    """Makes the threads that read partitions; None: those of all pages' requests read."""

    def forward(self, starts: Mapping[int, tuple[int, int]], wanted: int) -> list[Part]:
        """Up to `wanted` records of each partition from its first offset up to before its second one."""

        def reading(number: int, start: int, stop: int) -> Callable[[], Part]:
            return lambda: self._caught(Part(number, start, start), lambda part: self._ahead(part, stop, wanted))

        return self._all([reading(number, *each) for number, each in starts.items()])

    def backward(self, ends: Mapping[int, tuple[int, int]], wanted: int) -> list[Part]:
        """Up to `wanted` records of each partition, newest first, from before its second offset down to its first."""

        def reading(number: int, begin: int, before: int) -> Callable[[], Part]:
            return lambda: self._caught(Part(number, before, before), lambda part: self._back(part, begin, wanted))

        return self._all([reading(number, *each) for number, each in ends.items()])

    def _all(self, calls: list[Callable[[], Part]]) -> list[Part]:
        with nullcontext() if self.threads is None else self.threads() as executor:
            return [each for each in self.brokers.gather(calls, executor) if isinstance(each, Part)]

    def _caught(self, part: Part, read: Callable[[Part], None]) -> Part:
        try:
            read(part)
        except (KafkaError, OSError) as error:
            part.failure = error
        return part

    def _ahead(self, part: Part, stop: int, wanted: int) -> None:
        while part.reached < stop and len(part.found) < wanted:
            part.stopped = self.limits.over
            if part.stopped:
                return
            before = part.reached
            for record in self._fetch(part, stop):
                if len(part.found) >= wanted:
                    part.reached = record.offset
                    return
                part.scanned += 1
                if self.match is None:
                    part.found.append(record)
                elif self.match(record):
                    part.found.append(record)
                    self.limits.matched(record)
            if part.reached == before:  # nothing is committed there yet
                return

    def _back(self, part: Part, begin: int, wanted: int) -> None:
        """Windows that double, each read forward. One that a limit cuts short is dropped, as it has a hole behind."""
        size = wanted if self.match is None else SEARCH_WINDOW
        while part.reached > begin and len(part.found) < wanted:
            part.stopped = self.limits.over
            if part.stopped:
                return
            low, high = max(begin, part.reached - size), part.reached
            window = Part(part.number, low, low)
            self._ahead(window, high, WINDOW_MAX + 1)
            if window.stopped:
                part.stopped = window.stopped
                return
            part.found += reversed(window.found)
            part.scanned += window.scanned
            part.reached = low
            size = min(2 * size, WINDOW_MAX)
        if len(part.found) > wanted:
            del part.found[wanted:]
            part.reached = part.found[-1].offset

    def _fetch(self, part: Part, stop: int) -> Iterable[Record]:
        """The records of one Fetch, or of one piece of a file, from `part.reached` on, which moves behind them."""
        row = self._of_files(part, stop) or self._row(part)
        data = memoryview(row.records) if row.records else memoryview(b"")  # type: ignore[arg-type]
        aborted = Aborted(row.aborted_transactions) if self.is_committed else None
        found: list[Record] = []
        start, seen, passed, passed_size = part.reached, 0, 0, 0
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size]
            seen += header.count
            is_aborted = aborted is not None and aborted.covers(header, batch)
            part.reached = max(part.reached, header.next_offset)
            if header.is_control or is_aborted or header.last_offset < start:
                continue
            if self.sieve and not _has(records_section(batch, header), self.sieve):
                inside = min(stop, header.next_offset) - max(start, header.base_offset)
                part.scanned += max(0, min(header.count, inside))
                passed, passed_size = passed + header.count, passed_size + header.size
                continue
            for each in iterate_records(batch):
                if start <= each.offset < stop:
                    headers = tuple((_name(name), value) for name, value in each.headers)
                    found.append(Record(part.number, each.offset, each.timestamp, each.key, each.value, headers))
            if part.reached >= stop:
                break
        part.reached = min(part.reached, stop)
        self.limits.use(seen, len(data), passed, passed_size)
        return found

    def _of_files(self, part: Part, stop: int) -> FetchedPartition | None:
        """What a Fetch would bring, from files; None where it has to be asked for. Raises OSError."""
        if self.files is None:
            return None
        if self.files.is_due(part.number):
            row = None
            with suppress(KafkaError):  # the Fetch of records will have it too
                row, is_throttled = self._asked(part.number, stop, 1, 0)
                row = None if is_throttled else row
            self.files.learn(part.number, row)
        _kept.make_room(FILE_BYTES)
        found = self.files.read(part.number, part.reached, stop, _kept.memory)
        return None if found is None else FetchedPartition(part.number, records=found)

    def _row(self, part: Part) -> FetchedPartition:
        """Raises KafkaError, OSError."""
        size = FETCH_BYTES if self.turns is None else SEARCH_FETCH_BYTES
        row, _ = self._asked(part.number, part.reached, size, WAIT_MS)
        if self.turns is not None:
            _kept.make_room(records_length(row.records))
        return row

    def _asked(self, number: int, offset: int, size: int, wait_ms: int) -> tuple[FetchedPartition, bool]:
        """The answer to a Fetch that waits so long for a first byte, and whether the user is throttled. Raises
        KafkaError, OSError."""
        at = TopicPartition(self.topic.name, number)
        leader = leader_of(self.cluster, at)
        if leader < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"{at.topic}-{at.partition} has no leader")
        rows = [FetchPartition(number, offset, size)]
        request = FetchRequest(
            wait_ms, min(1, wait_ms), size, [FetchTopic(self.topic.name, self.topic.id, rows)], int(self.is_committed)
        )
        with nullcontext() if self.turns is None else self.turns.turn():
            response = self.brokers.fetch(leader, request, None if self.turns is None else _kept.memory)
        if response.error_code:
            raise failure(ApiKey.FETCH, response.error_code, self.topic.name)
        if not response.topics or not response.topics[0].partitions:
            return FetchedPartition(number), False
        row = response.topics[0].partitions[0]
        if row.error_code:
            raise failure(ApiKey.FETCH, row.error_code, self.topic.name)
        return row, response.throttle_time_ms > 0


class _Kept(threading.local):
    """Memory of a thread that searches, for one answer after the other: new memory costs more than to read into it."""

    def __init__(self) -> None:
        self.memory = bytearray()

    def make_room(self, size: int) -> None:
        """For following answers with records of this size. The memory before stays that of the last answer."""
        if len(self.memory) - BESIDE_BYTES < size <= KEPT_MAX:
            self.memory = bytearray(max(size, SEARCH_FETCH_BYTES) + BESIDE_BYTES)


_kept = _Kept()


def _has(section: Buffer, sought: bytes) -> bool:
    pattern = re.compile(re.escape(sought))
    for begin in range(0, len(section), PIECE_BYTES):
        if pattern.search(section, begin, begin + PIECE_BYTES + len(sought) - 1):
            return True
        os.sched_yield()
    return False


def _name(name: Any) -> str:
    return name if isinstance(name, str) else bytes(name).decode(errors="replace")


class Merged(NamedTuple):
    records: list[Record]
    following: dict[int, int]
    """Where to go on in each partition, in the direction of reading."""


def merged(parts: Iterable[Part], limit: int, *, is_backward: bool) -> Merged:
    """The first records of all partitions by timestamp. Each partition's own order is kept, so that no record is left
    out where reading goes on."""
    all_parts = list(parts)

    def key(record: Record) -> int:
        return -record.timestamp if is_backward else record.timestamp

    records = list(islice(merge(*(part.found for part in all_parts), key=key), limit))
    taken: dict[int, int] = {}
    for record in records:
        taken[record.partition] = taken.get(record.partition, 0) + 1
    following = {}
    for part in all_parts:
        count = taken.get(part.number, 0)
        if count == len(part.found):
            following[part.number] = part.reached
        else:
            left = part.found[count]
            following[part.number] = left.offset + 1 if is_backward else left.offset
    return Merged(records, following)
