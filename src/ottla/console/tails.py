"""Live tail: the records of a topic as they are written, for one browser, in rounds.

A round is asked for when the browser has taken the one before, so a slow browser holds up nobody: what was written
meanwhile, beyond what a round may hold, is skipped and counted. Without news a round costs one ListOffsets for each
leader, and no Fetch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.console.asking import Asking, Problem, problem_of
from ottla.console.brokers import Refused
from ottla.console.cluster import EARLIEST, LATEST, read_offsets
from ottla.console.reading import Limits, Part, Reader, merged
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

    rows: list[Message] = field(default_factory=list)
    scanned: int = 0
    skipped: int = 0
    """Offsets that were passed over, as there were too many."""
    places: str = ""
    """Where the next round begins, as the parameter `at`."""
    problem: Problem | None = None
    is_over: bool = False
    """Whether there is no use in another round."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.skipped or self.problem)


class Tail:
    """One live tail; rounds are called one after the other, from any thread."""

    def __init__(self, asking: Asking) -> None:
        """Begins at the places of `at`, or else at the ends. Raises NotFound, Invalid."""
        self._asking = asking
        self._topic = found_topic(asking)
        self._numbers = numbers_of(asking, self._topic)
        self._places = {number: at for number, at in places_of(asking, "at").items() if number in self._numbers}
        self._mask = asking.mask(self._topic.name)
        self._decode = decode_of(asking)
        self._match = match_of(asking, self._mask, self._decode)
        self._failures = 0
        self._shown, self._seen, self._logged = 0, dict[int, tuple[int, int]](), time.monotonic()

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
        self._log()

    def _round(self) -> Round:
        found = Round()
        ends = self._ends()
        starts: dict[int, tuple[int, int]] = {}
        most = ROWS_MAX if self._match is None else SEARCH_MAX
        for number, end in ends.items():
            at = self._places.setdefault(number, end)
            if at > end:  # the log was cut, or the topic is another one of that name
                at = self._places[number] = end
            if end - at > most:
                found.skipped += end - most - at
                at = self._places[number] = end - most
            if at < end:
                starts[number] = (at, end)
        if starts:
            self._read(starts, found)
        return found

    def _read(self, starts: Mapping[int, tuple[int, int]], found: Round) -> None:
        asking = self._asking
        limits = Limits(
            time.monotonic() + ROUND_SECONDS_MAX, SEARCH_MAX * len(starts), BYTES_MAX, asking.halt.is_set
        )  # fmt: skip
        committed = asking.text("isolation") != "uncommitted"
        reader = Reader(asking.brokers, asking.cluster(), self._topic, limits, self._match, committed)
        parts = reader.forward(starts, ROWS_MAX)
        for part in parts:
            self._move(part, found)
        newest = merged(parts, ROWS_MAX * len(parts), is_backward=False).records
        found.skipped += len(newest[:-ROWS_MAX])
        how = asking.text("format")
        found.rows = [message_of(each, how, self._mask, self._decode) for each in newest[-ROWS_MAX:]]
        self._shown += len(found.rows)
        if time.monotonic() - self._logged >= LOG_S:
            self._log()
        failed = [each.failure for each in parts if each.failure is not None]
        if failed and not found.rows:
            raise failed[0]

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

    def _ends(self) -> dict[int, int]:
        """Raises what the first leader said, where none says anything."""
        asking = self._asking
        wanted = dict.fromkeys((TopicPartition(self._topic.name, number) for number in self._numbers), LATEST)
        answer = read_offsets(asking.brokers, asking.cluster(), wanted)
        if answer.failures and not answer.found:
            raise next(iter(answer.failures.values()))
        return {at.partition: offset for at, offset in answer.found.items()}

    def _log(self) -> None:
        if self._seen:
            parts = [Part(number, first, reached) for number, (first, reached) in sorted(self._seen.items())]
            log_reading(self._asking, self._topic.name, parts, self._shown)
        self._shown, self._logged = 0, time.monotonic()
        self._seen.clear()
