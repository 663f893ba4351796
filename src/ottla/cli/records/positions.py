"""Where reading a topic starts and where it stops: offsets, times, ends, and the ends that a group finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.options import parse_time_ms
from ottla.cli.records.reader import EARLIEST, LATEST, Reader

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

POSITIONS = "beginning, end, an offset, -N, a time such as 2026-05-01T12:00 or an age such as 10m"
"""Forms of --from and --to."""

START_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


class GroupEnd:
    """Subscribes, and stops once every partition of the assignment was at its end."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._waiting: set[int] | None = None
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._waiting = {p.partition for p in partitions}

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._waiting = None

    def at_end(self, message: Message) -> None:
        """Take note of an end of a partition."""
        number = message.partition()
        if self._waiting is not None and number is not None:
            self._waiting.discard(number)

    def reached(self) -> bool:
        """Whether everything was read that was there."""
        return self._waiting is not None and not self._waiting


def chosen(topic: str, known: list[int], wanted: Iterable[int] | None) -> list[int]:
    """The partitions to read: those wanted, else all. Raises CommandFailed for one that is not there."""
    for number in wanted or ():
        if number not in known:
            raise CommandFailed(f"topic {topic!r} has no partition {number}; it has 0 to {len(known) - 1}", MISUSED)
    return sorted(set(wanted)) if wanted else known


def stretch(
    reader: Reader, numbers: list[int], start: str, to: str | None, follow: bool
) -> tuple[dict[int, int], dict[int, int] | None]:
    """Where to begin in each partition, and where to stop (None: never). Raises CommandFailed."""
    lows, highs = reader.offsets(numbers, EARLIEST), reader.offsets(numbers, LATEST)
    starts = _resolve(reader, start, lows, highs, "--from")
    if follow:
        return starts, None
    stops = highs
    if to is not None:
        found = _resolve(reader, to, lows, highs, "--to")
        stops = {number: min(high, found[number]) for number, high in highs.items()}
    return starts, stops


def _resolve(reader: Reader, text: str, lows: dict[int, int], highs: dict[int, int], option: str) -> dict[int, int]:
    """Offsets for one of the words of --from and --to, kept inside what each partition holds."""
    place = position_of(text)
    if place is not None:
        return {number: min(max(place(low, highs[number]), low), highs[number]) for number, low in lows.items()}
    timestamp_ms = parse_time_ms(text, time.time_ns() // 1_000_000)
    if timestamp_ms is None:
        raise CommandFailed(f"{option} must be {POSITIONS}, not {text!r}", MISUSED)
    found = reader.offsets(lows, timestamp_ms)
    return {number: offset if offset >= 0 else highs[number] for number, offset in found.items()}


def position_of(text: str) -> Callable[[int, int], int] | None:
    """(low, high) -> offset, for a word or a number; None for a time."""
    if text in START_WORDS:
        return (lambda low, high: low) if START_WORDS[text] == "earliest" else (lambda low, high: high)
    try:
        number = int(text)
    except ValueError:
        return None
    return (lambda low, high: high + number) if number < 0 or text.startswith("-") else (lambda low, high: number)
