"""Records of a topic: the newest, from an offset, from a time; searched within limits, decoded, masked."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from ottla.config.units import iso_time
from ottla.console.access.roles import Forbidden
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.cluster import EARLIEST, LATEST, Topic, read_offsets
from ottla.console.decoding import Decode, Shown, for_a_page, shown
from ottla.console.masks import NOTHING_HIDDEN, TopicMask
from ottla.console.records.reading import Limits, Match, Part, Reader, Record, merged
from ottla.console.views.topic import found_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

POSITIONS: Final = ("end", "begin", "offset", "time")
PARTITIONS_MAX: Final = 100
"""Partitions that are read at once; of more the user names one."""
SCANNED_MAX: Final = 1_000_000
BYTES_MAX: Final = 256 * 1024 * 1024
HEADERS_MAX: Final = 100
_PLACES: Final = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")


@dataclass(frozen=True)
class Header:
    name: str
    value: Shown


@dataclass(frozen=True)
class Message:
    partition: int
    offset: str
    timestamp: str | None
    key: Shown
    value: Shown
    headers: list[Header]
    headers_left_out: int


@dataclass(frozen=True)
class PartProgress:
    """How far the reading of one partition came."""

    partition: int
    begin: str
    end: str
    reached: str
    """Reading goes on from this offset, or backward before it."""


@dataclass(frozen=True)
class Messages:
    topic: str
    partitions: list[int]
    """All partitions of the topic."""
    rows: list[Message]
    direction: str
    """backward: newest first; forward: oldest first."""
    scanned: str
    stopped: str
    """Why it ended before the end of the topic: time, bytes, records, enough, stopped; empty at the end."""
    progress: list[PartProgress]
    following: str
    """Where to go on, as the parameter `at` (forward) or `before` (backward); empty at the end."""
    partitions_left_out: int
    is_masked: bool
    may_download: bool


def messages(asking: Asking) -> Messages:
    topic = found_topic(asking)
    mask = asking.mask(topic.name)
    numbers = numbers_of(asking, topic)
    bounds = _bounds(asking, topic, numbers)
    backward = not asking.text("at") and (bool(asking.text("before")) or asking.text("from") in ("", "end"))
    limit = asking.number("limit")
    decode = decode_of(asking)
    limits = Limits(time.monotonic() + asking.number("seconds"), SCANNED_MAX, BYTES_MAX, asking.halt.is_set)
    committed = asking.text("isolation") != "uncommitted"
    reader = Reader(
        asking.brokers, asking.cluster(), topic, limits, match_of(asking, mask, decode), is_committed=committed
    )
    if asking.text("q"):
        searches = asking.site.searches
        reader = replace(
            reader,
            turns=searches.turns,
            sieve=sieve_of(asking, mask, decode),
            files=searches.files.reading(reader.cluster, topic, is_committed=committed),
            threads=searches.threads,
        )
    how = asking.text("format")

    def show(record: Record) -> Message:
        return message_of(record, how, mask, decode)

    ranges = _ranges(asking, topic, bounds, backward)
    with asking.site.searches.running(asking.user.name, asking.text("run"), limits, asking.halt, topic.name, show):
        parts = reader.backward(ranges, limit) if backward else reader.forward(ranges, limit)
    asking.fail_all("messages", [each.failure for each in parts if each.failure is not None])
    found = merged(parts, limit, is_backward=backward)
    log_reading(asking, topic.name, parts, len(found.records))
    with for_a_page():
        rows = [show(each) for each in found.records]
    return Messages(
        topic.name,
        [each.number for each in topic.partitions],
        rows,
        "backward" if backward else "forward",
        str(sum(each.scanned for each in parts)),
        _stopped(parts, found.following, bounds, backward),
        [
            PartProgress(number, str(bounds[number][0]), str(bounds[number][1]), str(reached))
            for number, reached in sorted(found.following.items())
        ],
        _following(found.following, bounds, backward),
        len(topic.partitions) - len(numbers) if not asking.text("partition") else 0,
        not mask.is_empty,
        mask.is_empty and asking.rights.may_download,
    )


@dataclass(frozen=True)
class Content:
    """A key, value or header to download."""

    data: bytes
    name: str


def content(asking: Asking) -> Content:
    """Raises NotFound where there is no such record, Forbidden where it may not be seen whole."""
    asking.rights.ensure_download()
    topic = found_topic(asking)
    asking.rights.ensure_whole(topic.name, "downloaded")
    number, offset, part = asking.number("partition"), asking.number("offset"), asking.text("part")
    if all(each.number != number for each in topic.partitions):
        raise NotFound(f"Topic {topic.name} has no partition {number}.")
    limits = Limits(time.monotonic() + asking.number("seconds"), SCANNED_MAX, BYTES_MAX)
    reader = Reader(asking.brokers, asking.cluster(), topic, limits, is_committed=False)
    (read,) = reader.forward({number: (offset, offset + 1)}, 1)
    log_reading(asking, topic.name, [read], len(read.found), "download")
    is_outside = isinstance(read.failure, KafkaError) and read.failure.code is ErrorCode.offset_out_of_range
    if read.failure is not None and not is_outside:
        raise read.failure
    if not read.found:
        raise NotFound(f"There is no record at offset {offset} of {topic.name}-{number}.")
    record = read.found[0]
    data = record.key if part == "key" else record.value
    if data is None:
        raise NotFound(f"The {part} of the record is null.")
    return Content(data, f"{topic.name}-{number}-{offset}-{part}.bin")


def numbers_of(asking: Asking, topic: Topic) -> list[int]:
    every = [each.number for each in topic.partitions]
    chosen = asking.text("partition")
    if not chosen:
        return every[:PARTITIONS_MAX]
    if int(chosen) not in every:
        raise NotFound(f"Topic {topic.name} has no partition {chosen}.")
    return [int(chosen)]


def _bounds(asking: Asking, topic: Topic, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Begin and end of each partition that can be asked for."""
    every = [TopicPartition(topic.name, number) for number in numbers]
    cluster = asking.cluster()
    begins = read_offsets(asking.brokers, cluster, dict.fromkeys(every, EARLIEST))
    ends = read_offsets(asking.brokers, cluster, dict.fromkeys(every, LATEST))
    asking.fail_all("messages", [*begins.failures.values(), *ends.failures.values()])
    return {at.partition: (begins.found[at], ends.found[at]) for at in every if at in begins.found and at in ends.found}


def _ranges(
    asking: Asking, topic: Topic, bounds: Mapping[int, tuple[int, int]], backward: bool
) -> dict[int, tuple[int, int]]:
    """(first, end) of what is to be read of each partition."""
    given = places_of(asking, "before" if backward else "at")
    if given:
        inside = {number: (bounds[number], offset) for number, offset in given.items() if number in bounds}
        if backward:
            return {number: (begin, min(max(at, begin), end)) for number, ((begin, end), at) in inside.items()}
        return {number: (min(max(at, begin), end), end) for number, ((begin, end), at) in inside.items()}
    if asking.text("from") == "offset":
        offset = asking.number("offset")
        return {number: (min(max(offset, begin), end), end) for number, (begin, end) in bounds.items()}
    if asking.text("from") == "time":
        wanted = {TopicPartition(topic.name, number): moment_of(asking.text("time")) for number in bounds}
        found = read_offsets(asking.brokers, asking.cluster(), wanted).found
        return {
            number: (min(max(at, begin), end) if at >= 0 else end, end)
            for number, (begin, end) in bounds.items()
            for at in [found.get(TopicPartition(topic.name, number), -1)]
        }
    return dict(bounds)


def places_of(asking: Asking, name: str) -> dict[int, int]:
    """`0:120,1:7`: partitions and offsets."""
    text = asking.text(name)
    if not text:
        return {}
    if not _PLACES.fullmatch(text):
        raise Invalid(f"{name} must be partitions and offsets, such as 0:120,1:7")
    pairs = (each.split(":") for each in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def moment_of(text: str) -> int:
    """Milliseconds since the epoch of an ISO time, in UTC unless it has a zone. Raises Invalid."""
    try:
        moment = datetime.fromisoformat(text)
        whole = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, int(whole.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Invalid("time must be a date and a time in UTC, such as 2026-01-31T12:30") from None


def decode_of(asking: Asking) -> Decode | None:
    return None if asking.site.schemas is None else asking.site.schemas.decode


def match_of(asking: Asking, mask: TopicMask, decode: Decode | None) -> Match | None:
    """Whether a record has the text that is searched for; what a mask hides is not searched, else its contents could
    be guessed piece by piece. Raises Forbidden where all that is to be searched is hidden."""
    text, where = asking.text("q"), asking.text("in") or "any"
    if not text:
        return None
    if (where == "key" and mask.key is not None) or (where == "value" and mask.value is not None):
        raise Forbidden(f"a mask hides each {where} of {asking.text('topic')}, so it cannot be searched")
    wanted = text.encode()

    def bare(record: Record) -> bool:
        return (
            (where in ("any", "key") and record.key is not None and wanted in record.key)
            or (where in ("any", "value") and record.value is not None and wanted in record.value)
            or (where in ("any", "header") and any(_has(wanted, *each) for each in record.headers))
        )

    def masked(record: Record) -> bool:
        found = message_of(record, "auto", mask, decode)
        parts = [found.key] if where in ("any", "key") else []
        parts += [found.value] if where in ("any", "value") else []
        texts = [each.text for each in parts if each.kind != "masked"]
        if where in ("any", "header"):
            texts += [f"{each.name}\n{each.value.text}" for each in found.headers if each.value.kind != "masked"]
        return any(text in each for each in texts)

    def decoded(record: Record) -> bool:
        return bare(record) or masked(record)

    return masked if not mask.is_empty else bare if decode is None else decoded


def sieve_of(asking: Asking, mask: TopicMask, decode: Decode | None) -> bytes:
    """Bytes that each record which matches has as they are; empty where what is shown is searched instead."""
    text = asking.text("q")
    # Names of headers that are no UTF-8 are searched as they are shown, with U+FFFD.
    is_as_written = mask.is_empty and decode is None and "\N{REPLACEMENT CHARACTER}" not in text
    return text.encode() if is_as_written else b""


def _has(wanted: bytes, name: str, value: bytes | None) -> bool:
    return wanted in name.encode(errors="replace") or (value is not None and wanted in value)


def message_of(record: Record, how: str, mask: TopicMask, decode: Decode | None) -> Message:
    headers = [
        Header(name, shown(value, how, NOTHING_HIDDEN, None, hidden=mask.header(name)))
        for name, value in record.headers[:HEADERS_MAX]
    ]
    return Message(
        record.partition,
        str(record.offset),
        iso_time(record.timestamp),
        shown(record.key, how, mask, decode, hidden=mask.key),
        shown(record.value, how, mask, decode, hidden=mask.value),
        headers,
        max(0, len(record.headers) - HEADERS_MAX),
    )


def _is_left(at: int, bounds: tuple[int, int], backward: bool) -> bool:
    return at > bounds[0] if backward else at < bounds[1]


def _stopped(
    parts: Sequence[Part], following: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], backward: bool
) -> str:
    limit = next((each.stopped for each in parts if each.stopped), "")
    if limit:
        return limit
    is_left = any(_is_left(at, bounds[number], backward) for number, at in following.items())
    return "enough" if is_left and any(each.found for each in parts) else ""


def _following(following: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], backward: bool) -> str:
    if not any(_is_left(at, bounds[number], backward) for number, at in following.items()):
        return ""
    return ",".join(f"{number}:{at}" for number, at in sorted(following.items()))


def log_reading(asking: Asking, topic: str, parts: Sequence[Part], count: int, kind: str = "records read") -> None:
    """One line for each request that read records: which user saw what."""
    if all(isinstance(each.failure, KafkaError) and each.failure.code in _REFUSALS for each in parts) and parts:
        outcome = "refused"
    else:
        outcome = "read"
    ranges = ",".join(
        f"{each.number}:{min(each.start, each.reached)}-{max(each.start, each.reached)}" for each in parts
    )
    asking.site.trail.note(
        kind,
        asking.user.identity,
        outcome,
        topic=topic,
        ranges=ranges,
        shown=count,
        search=bool(asking.text("q")),
        masked=not asking.rights.mask(topic).is_empty,
    )


_REFUSALS: Final = (ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed)
