"""What is written to a topic, read once for all live tails of a user, and shown once where they show the same.

Nobody reads ahead: the first tail that wants news reads them (`Feed.look`), and the others take them from what is kept.
What is kept is bounded; a tail that comes for older records finds out where it can go on.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ottla.console.records.reading import Limits, Match, Part, Record
from ottla.errors import KafkaError

FRESH_S: Final = 0.4
"""News are read no more often. Less than the pause between two rounds of a tail, so that each round has news."""
KEPT_BYTES: Final = 12 * 1024 * 1024
"""Records of one reading of a feed."""
USER_BYTES: Final = 32 * 1024 * 1024
"""The bytes of all feeds of a user together, which share it."""
READINGS_KEPT: Final = 3
"""A tail that looks once in half a second misses none of so many readings."""
RECORD_BYTES: Final = 500
"""What a record takes beside its key, value and headers."""
VIEWS_MAX: Final = 8
"""Ways to show the records of a feed whose rows are kept."""
ROWS_KEPT: Final = 200
"""Rows of one way."""
_OFFSET: Final = attrgetter("offset")

Read = Callable[[Mapping[int, tuple[int, int]], Match, Limits], list[Part]]
"""Reads partitions from offsets up to before others: those records that match, within limits."""


Failure = KafkaError | OSError


class Ends(NamedTuple):
    """Ends of partitions, and why those of others are not known."""

    found: Mapping[int, int]
    failures: Mapping[int, Failure]


@dataclass
class Span:
    """Records of a partition without a gap, from `begin` up to before `reached`."""

    begin: int
    reached: int
    records: list[Record] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """Where the last readings began, the oldest first."""

    def slice(self, start: int, end: int) -> list[Record]:
        return self.records[bisect_left(self.records, start, key=_OFFSET) : bisect_left(self.records, end, key=_OFFSET)]

    def age(self) -> None:
        """Before a reading: what came with those that are long ago goes."""
        self.marks = [*self.marks[-READINGS_KEPT + 1 :], self.reached]
        self.begin = max(self.begin, self.marks[0])
        del self.records[: bisect_left(self.records, self.begin, key=_OFFSET)]


class Look(NamedTuple):
    """A feed at one moment."""

    ends: Mapping[int, int]
    """Ends of the partitions."""
    spans: Mapping[int, Span]
    """Copies, which stay as they are."""
    failures: Mapping[int, Failure]
    """Why the other partitions have no end."""


class Feed:
    """The newest records of some partitions of a topic. Any thread may look; one at a time reads."""

    def __init__(self, most: int, budget: Callable[[], int]) -> None:
        """`most`: records of a partition that one reading looks at; older ones are left out. `budget`: bytes that it
        keeps."""
        self.viewers = 0
        self._budget = budget
        self._most = most
        self._lock = threading.Lock()
        self._taken = float("-inf")
        """When it was read last, by the monotonic clock."""
        self._ends = Ends({}, {})
        self._failure: Failure | None = None
        self._spans: dict[int, Span] = {}
        self._views: list[View] = []

    def look(self, ends: Callable[[], Ends], read: Read, limits: Callable[[], Limits]) -> Look:
        """What is known, read again when that is old. Raises what reading raises, for all who look meanwhile."""
        with self._lock:
            if time.monotonic() - self._taken >= FRESH_S:
                try:
                    self._failure = None
                    self._ends = ends()
                    self._read(read, limits())
                except (KafkaError, OSError) as error:
                    self._failure = error
                self._taken = time.monotonic()
            if self._failure is not None:
                raise self._failure
            return Look(
                self._ends.found,
                {number: Span(each.begin, each.reached, [*each.records]) for number, each in self._spans.items()},
                self._ends.failures,
            )

    def _read(self, read: Read, limits: Limits) -> None:
        starts: dict[int, tuple[int, int]] = {}
        for number, end in self._ends.found.items():
            span = self._spans.get(number)
            if span is None or span.reached > end or end - span.reached > self._most:
                # The first look, a log that was cut, or more news than are read.
                at = end if span is None or span.reached > end else end - self._most
                span = self._spans[number] = Span(at, at)
            span.age()
            if span.reached < end:
                starts[number] = span.reached, end
        if starts:
            self._take(read, starts, limits)

    def _take(self, read: Read, starts: Mapping[int, tuple[int, int]], limits: Limits) -> None:
        size, budget, left_out, lock = 0, self._budget(), dict[int, int](), threading.Lock()

        def keep(record: Record) -> bool:
            """Called by a thread for each partition."""
            nonlocal size
            with lock:
                if record.partition in left_out or size >= budget:
                    left_out.setdefault(record.partition, record.offset)
                    return False
                size += size_of(record)
                return True

        stopped = limits.is_stopped
        limits.is_stopped = lambda: bool(left_out) or stopped()
        for part in read(starts, keep, limits):
            span = self._spans[part.number]
            if part.failure is not None:
                del self._spans[part.number]  # whoever needs it reads it, and hears why not
                continue
            span.records += part.found
            span.reached = left_out.get(part.number, part.reached)

    def view(self, *how: Any) -> View:
        """The rows of everyone who sees the records in this way; `how` is compared."""
        with self._lock:
            found = next((each for each in self._views if each.how == how), None)
            if found is None:
                found = View(how)
                self._views = [*self._views[1 - VIEWS_MAX :], found]
            return found


class View:
    """Rows as they are shown in one way, made once. For any thread: two may make the same row, which is no harm."""

    def __init__(self, how: Sequence[Any]) -> None:
        self.how = how
        self._lock = threading.Lock()
        self._rows: dict[Record, Any] = {}

    def row(self, record: Record, make: Callable[[Record], Any]) -> Any:
        found = self._rows.get(record)
        if found is None:
            found = make(record)
            with self._lock:
                self._rows[record] = found
                while len(self._rows) > ROWS_KEPT:
                    del self._rows[next(iter(self._rows))]
        return found


def size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


class Feeds:
    """The feeds of one user, whose connections read them, while somebody looks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, Feed] = {}

    def _budget(self) -> int:
        return min(KEPT_BYTES, USER_BYTES // max(1, len(self._open)))

    def enter(self, key: Any, most: int) -> Feed:
        with self._lock:
            found = self._open.setdefault(key, Feed(most, self._budget))
            found.viewers += 1
            return found

    def leave(self, key: Any) -> None:
        with self._lock:
            found = self._open[key]
            found.viewers -= 1
            if not found.viewers:
                del self._open[key]
