"""Where reading a topic starts and where it stops: offsets, times, ends, and the ends that a group finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.client import REQUEST_TIMEOUT_S
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.options import parse_time_ms

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

START_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


class Stop:
    """Decides when everything asked for was read."""

    def position(self, message: Message) -> bool:
        """Take note of a record or of an end of a partition. False for a record that lies past the stop."""
        return True

    def reached(self) -> bool:
        return False


class Bounds(Stop):
    """Stops before an offset of each partition; never, where there are no bounds (following)."""

    def __init__(self, ends: dict[int, int] | None) -> None:
        self._open = None if ends is None else dict(ends)

    def position(self, message: Message) -> bool:
        if self._open is None:
            return True
        number, offset = message.partition() or 0, message.offset()
        end = self._open.get(number)
        if end is None or offset is None:
            return False
        # An end-of-partition event carries the offset that the next record will have.
        next_offset = offset if message.error() is not None else offset + 1
        if next_offset >= end:
            del self._open[number]
        return offset < end

    def reached(self) -> bool:
        return self._open is not None and not self._open


class GroupEnd(Stop):
    """Subscribes, and stops once every partition of the assignment was at its end."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._waiting: set[int] | None = None
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._waiting = {p.partition for p in partitions}

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._waiting = None

    def position(self, message: Message) -> bool:
        number = message.partition()
        if self._waiting is not None and number is not None and message.error() is not None:
            self._waiting.discard(number)
        return True

    def reached(self) -> bool:
        return self._waiting is not None and not self._waiting


def assign(consumer: Consumer, topic: str, numbers: list[int], start: str, to: str | None, follow: bool) -> Stop:
    """Point the consumer at its start offsets and say where each partition stops."""
    from confluent_kafka import TopicPartition

    watermarks = {number: _watermarks(consumer, TopicPartition(topic, number)) for number in numbers}
    starts = _resolve(consumer, topic, start, watermarks, "--from")
    ends = {number: high for number, (_, high) in watermarks.items()}
    if to is not None:
        stops = _resolve(consumer, topic, to, watermarks, "--to")
        ends = {number: min(end, stops[number]) for number, end in ends.items()}
    consumer.assign([TopicPartition(topic, n, starts[n]) for n in numbers if follow or starts[n] < ends[n]])
    return Bounds(None if follow else {n: ends[n] for n in numbers if starts[n] < ends[n]})


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(partition, timeout=REQUEST_TIMEOUT_S)
    return int(low), int(high)


def _resolve(
    consumer: Consumer, topic: str, text: str, watermarks: dict[int, tuple[int, int]], option: str
) -> dict[int, int]:
    """Offsets for one of the words of --from and --to, kept inside what each partition holds."""
    place = place_of(text)
    if place is not None:
        return {number: min(max(place(low, high), low), high) for number, (low, high) in watermarks.items()}
    timestamp_ms = parse_time_ms(text, time.time_ns() // 1_000_000)
    if timestamp_ms is None:
        raise CommandFailed(
            f"{option} wants beginning, end, an offset, -N, a time such as 2026-05-01T12:00 or an age such as 10m, "
            f"not {text!r}",
            MISUSED,
        )
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, number, timestamp_ms) for number in watermarks]
    found = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
    return {tp.partition: tp.offset if tp.offset >= 0 else watermarks[tp.partition][1] for tp in found}


def place_of(text: str) -> Callable[[int, int], int] | None:
    """(low, high) -> offset, for a word or a number; None for a time."""
    if text in START_WORDS:
        return (lambda low, high: low) if START_WORDS[text] == "earliest" else (lambda low, high: high)
    try:
        number = int(text)
    except ValueError:
        return None
    return (lambda low, high: high + number) if number < 0 or text.startswith("-") else (lambda low, high: number)
