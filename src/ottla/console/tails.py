"""Live tail: the records of a topic as they are written, for one browser, in rounds.

A round is asked for when the browser has taken the one before, so a slow browser holds up nobody: what was written
meanwhile, beyond what a round may hold, is skipped and counted. Without news a round costs one ListOffsets for each
leader, and no Fetch; all tails of a user on the same partitions share it, and what is read (`feeds.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.console.asking import Asking, Problem, problem_of
from ottla.console.brokers import NodeAway, Refused
from ottla.console.cluster import EARLIEST, LATEST, read_offsets
from ottla.console.feeds import Ends, Failure, Feed, Look, Span
from ottla.console.records.reading import Limits, Match, Part, Reader, Record, merged
from ottla.console.views.messages import (
    Message,
    decode_of,
    log_reading,
    match_of,
    message_of,
    numbers_of,
    places_of,
)
from ottla.console.views.topic import found_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

ROWS_MAX: Final = 100
"""Records of a round."""
SEARCH_MAX: Final = 20_000
"""Records of a partition that a round searches, where there is a filter; older ones are skipped."""
BYTES_MAX: Final = 16 * 1024 * 1024
ROUND_SECONDS_MAX: Final = 2.0
FAILURES_MAX: Final = 5
"""Rounds in a row that may fail: a leader moves, a broker restarts."""
LOG_S: Final = 10.0
"""Between two lines of the audit log."""


@dataclass
class Round:
    """What came since the round before."""

    rows: list[Any] = field(default_factory=list)
    """As the browser gets them."""
    scanned: int = 0
    skipped: int = 0
    """Offsets that were passed over, as there were too many."""
    places: str = ""
    """Where the next round begins, as the parameter `at`."""
    problem: Problem | None = None
    silent: dict[int, str] = field(default_factory=dict)
    """Partitions of which nothing is known at the moment, and why; records of the others are shown."""
    back: list[int] = field(default_factory=list)
    """Partitions that were silent in the round before."""
    is_news: bool = False
    """Whether other partitions are silent than in the round before."""
    is_over: bool = False
    """Whether there is no use in another round."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.skipped or self.problem or self.is_news)


def bare(_: Asking, message: Message) -> Message:
    return message


class Tail:
    """One live tail; rounds are called one after the other, from any thread, until it is closed."""

    def __init__(self, asking: Asking, row: Callable[[Asking, Message], Any] = bare) -> None:
        """Begins at the places of `at`, or else at the ends. `row` makes of a record what the browser gets. Raises
        NotFound, Invalid."""
        self._asking = asking
        self._topic = found_topic(asking)
        self._numbers = numbers_of(asking, self._topic)
        self._places = {number: at for number, at in places_of(asking, "at").items() if number in self._numbers}
        self._mask = asking.mask(self._topic.name)
        self._decode = decode_of(asking)
        self._match = match_of(asking, self._mask, self._decode)
        self._failures = 0
        self._shown, self._seen, self._logged = 0, dict[int, tuple[int, int]](), time.monotonic()
        self._committed = asking.text("isolation") != "uncommitted"
        self._most = ROWS_MAX if self._match is None else SEARCH_MAX
        self._followed = dict[int, None]()
        """Partitions in which it has come to what is read for all, and takes no other."""
        self._silent: dict[int, str] = {}
        """As the browser was told."""
        self._row = row
        self._key = self._topic.name, self._topic.id, tuple(self._numbers), self._committed, self._most
        self._feed: Feed | None = None

    def next_round(self) -> Round:
        """Never raises what a broker did."""
        try:
            found = self._round()
            self._failures = 0
        except (KafkaError, OSError) as error:
            found = Round(problem=problem_of(error))
            self._failures += 1
            found.is_over = isinstance(error, Refused) or self._failures >= FAILURES_MAX
        found.places = ",".join(f"{number}:{at}" for number, at in sorted(self._places.items()))
        return found

    def close(self) -> None:
        """The last line of the audit log."""
        if self._feed is not None:
            self._asking.user.feeds.leave(self._key)
            self._feed = None
        self._log()

    def _round(self) -> Round:
        found = Round()
        if self._feed is None:
            self._feed = self._asking.user.feeds.enter(self._key, self._most)
        look = self._feed.look(self._ends, self._read_all, lambda: self._limits(len(self._numbers)))
        starts: dict[int, tuple[int, int]] = {}
        parts: list[Part] = []
        for number, end in look.ends.items():
            at = self._begin(number, look, found)
            if at >= end:
                continue
            span = look.spans.get(number)
            if span is not None and at >= span.begin:
                parts.append(self._taken(number, span, at))
            else:
                starts[number] = at, end
        parts += self._reader(self._limits(len(starts)), self._match).forward(starts, ROWS_MAX) if starts else []
        if parts:
            self._show(parts, found, self._feed)
        failures = {**look.failures, **{each.number: each.failure for each in parts if each.failure is not None}}
        if failures and failures.keys() >= set(self._numbers):
            raise next(iter(failures.values()))
        self._name_silent(failures, found)
        return found

    def _name_silent(self, failures: Mapping[int, Failure], found: Round) -> None:
        """Partitions are named when they begin and end to be silent: their sentences change in each round."""
        found.silent = {number: _why(error) for number, error in sorted(failures.items())}
        found.back = sorted(self._silent.keys() - failures.keys())
        found.is_news = found.silent.keys() != self._silent.keys()
        self._silent = found.silent

    def _begin(self, number: int, look: Look, found: Round) -> int:
        """Where this round begins in a partition."""
        end, span = look.ends[number], look.spans.get(number)
        at = self._places.setdefault(number, end)
        if at > end:  # the log was cut, or the topic is another one of that name
            at = end
        first = end - self._most
        if span is not None and number in self._followed:
            first = max(first, span.begin)  # a slow browser makes nobody read again
        if at < first:
            found.skipped += first - at
            at = first
        if span is not None and at >= span.begin:
            self._followed[number] = None
        self._places[number] = at
        return at

    def _taken(self, number: int, span: Span, at: int) -> Part:
        """What was read for all, without what this tail is not about."""
        records = span.slice(at, span.reached)
        part = Part(number, at, max(at, span.reached), scanned=len(records))
        part.found = [each for each in records if self._match is None or self._match(each)]
        return part

    def _limits(self, partitions: int) -> Limits:
        halt = self._asking.halt
        return Limits(time.monotonic() + ROUND_SECONDS_MAX, SEARCH_MAX * partitions, BYTES_MAX, halt.is_set)

    def _reader(self, limits: Limits, match: Match | None) -> Reader:
        asking = self._asking
        return Reader(asking.brokers, asking.cluster(), self._topic, limits, match, self._committed)

    def _read_all(self, starts: Mapping[int, tuple[int, int]], keep: Match, limits: Limits) -> list[Part]:
        return self._reader(limits, keep).forward(starts, self._most)

    def _show(self, parts: list[Part], found: Round, feed: Feed) -> None:
        for part in parts:
            self._move(part, found)
        newest = merged(parts, ROWS_MAX * len(parts), is_backward=False).records
        found.skipped += len(newest[:-ROWS_MAX])
        view = feed.view(self._row, self._asking.text("format"), self._mask, self._asking.rights.may_download)
        found.rows = [view.row(each, self._made) for each in newest[-ROWS_MAX:]]
        self._shown += len(found.rows)
        if time.monotonic() - self._logged >= LOG_S:
            self._log()

    def _made(self, record: Record) -> Any:
        message = message_of(record, self._asking.text("format"), self._mask, self._decode)
        return self._row(self._asking, message)

    def _move(self, part: Part, found: Round) -> None:
        """Go on behind what was read of a partition."""
        found.scanned += part.scanned
        error = part.failure
        if isinstance(error, KafkaError) and error.code is ErrorCode.offset_out_of_range:
            # Deleted before it was read: by retention, or by DeleteRecords.
            place = TopicPartition(self._topic.name, part.number)
            asking = self._asking
            begin = read_offsets(asking.brokers, asking.cluster(), {place: EARLIEST}).found.get(place, part.reached)
            found.skipped += max(0, begin - part.reached)
            part.reached, part.failure = max(begin, part.reached), None
        self._places[part.number] = part.reached
        first, _ = self._seen.get(part.number, (part.start, 0))
        self._seen[part.number] = first, part.reached

    def _ends(self) -> Ends:
        """Raises what the first leader said, where none says anything."""
        asking = self._asking
        wanted = dict.fromkeys((TopicPartition(self._topic.name, number) for number in self._numbers), LATEST)
        answer = read_offsets(asking.brokers, asking.cluster(), wanted)
        if answer.failures and not answer.found:
            raise next(iter(answer.failures.values()))
        return Ends(
            {at.partition: offset for at, offset in answer.found.items()},
            {at.partition: error for at, error in answer.failures.items()},
        )

    def _log(self) -> None:
        if self._seen:
            parts = [Part(number, first, reached) for number, (first, reached) in sorted(self._seen.items())]
            log_reading(self._asking, self._topic.name, parts, self._shown)
        self._shown, self._logged = 0, time.monotonic()
        self._seen.clear()


def _why(error: Failure) -> str:
    """One sentence; of a node that could not be asked it begins with the node."""
    return f"{error}" if isinstance(error, NodeAway) else problem_of(error).sentence.rstrip(".")
