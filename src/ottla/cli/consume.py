"""`ottla consume`: read a topic from any offset or time, once or for as long as records come."""

from __future__ import annotations

import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ottla.cli import client
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_time_ms
from ottla.cli.output import bytes_field, dim, iso_time, print_json_line, printable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

POLL_S = 0.2
START_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


def consume(
    topic: str,
    /,
    *,
    from_: Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    to: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[Flag, Parameter(alias="-f")] = False,
    count: Annotated[int | None, Parameter(alias="-n")] = None,
    partition: Annotated[list[int] | None, Parameter(alias="-p", negative="", consume_multiple=False)] = None,
    group: Annotated[str | None, Parameter(alias="-g")] = None,
    values_only: Flag = False,
    uncommitted: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Read a topic: from the beginning to where it ends now, unless told otherwise.

    A terminal shows partition, offset, time and key beside each value; a pipe gets the values alone, one a line.

    Parameters
    ----------
    topic
        What to read.
    from_
        Where to begin: beginning, end, an offset, -N for the last N records of each partition, a time such as
        2026-05-01T12:00, or an age such as 90s, 10m, 2h, 7d.
    to
        Where to stop, in the same words; what lies there is left out.
    follow
        Go on with what arrives, until Ctrl-C.
    count
        Stop after so many records.
    partition
        Read only this partition; may be repeated.
    group
        Join this consumer group and commit what was read. Begins where the group stands; --from (beginning or end)
        then says where a group without commits begins.
    values_only
        Values alone, one a line, on a terminal too.
    uncommitted
        Also records of open and aborted transactions.
    json
        One JSON object a line, for programs and for `ottla produce --from-json`.
    """
    if to is not None and follow:
        raise CommandFailed("--to and --follow exclude each other", MISUSED)
    if group is not None and (partition or to or (from_ is not None and from_ not in START_WORDS)):
        raise CommandFailed("with --group only --from beginning or end make sense, not --to or --partition", MISUSED)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    consumer = client.consumer(bootstrap, _consumer_settings(group, from_, uncommitted))
    emit = _emitter(json, values_only)
    try:
        known = _partitions(consumer, topic)
        if group is not None:
            stop: _Stop = _GroupEnd(consumer, topic)
        else:
            wanted = _chosen(topic, known, partition)
            stop = _assign(consumer, topic, wanted, from_ or "beginning", to, follow, uncommitted)
        _read(consumer, emit, stop, follow, count, commit=group is not None)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        _flush()
        consumer.close()
    return OK


def _consumer_settings(group: str | None, from_: str | None, uncommitted: bool) -> dict[str, Any]:
    return {
        "group.id": group or f"ottla-cli-{uuid.uuid4()}",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": START_WORDS[from_ or "beginning"] if group is not None else "error",
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 500,
        # Enough for a full pipe; librdkafka's default would buffer 64 MB of a topic that `head` reads a line of.
        "queued.max.messages.kbytes": 8192,
    }


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=client.REQUEST_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        sentence, unreachable = client.explain(metadata.error, f"topic {topic!r}: ")
        raise CommandFailed(sentence, UNREACHABLE if unreachable else FAILED)
    return sorted(metadata.partitions)


def _chosen(topic: str, known: list[int], wanted: Iterable[int] | None) -> list[int]:
    for number in wanted or ():
        if number not in known:
            raise CommandFailed(f"topic {topic!r} has no partition {number}; it has 0 to {len(known) - 1}", MISUSED)
    return sorted(set(wanted)) if wanted else known


class _Stop:
    """Decides when everything asked for was read."""

    def position(self, message: Message) -> bool:
        """Take note of a record or of an end of a partition. False for a record that lies past the stop."""
        return True

    def reached(self) -> bool:
        return False


class _Bounds(_Stop):
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


class _GroupEnd(_Stop):
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


def _assign(
    consumer: Consumer, topic: str, numbers: list[int], start: str, to: str | None, follow: bool, uncommitted: bool
) -> _Stop:
    """Point the consumer at its start offsets and say where each partition stops."""
    from confluent_kafka import TopicPartition

    watermarks = {number: _watermarks(consumer, TopicPartition(topic, number)) for number in numbers}
    starts = _resolve(consumer, topic, start, watermarks, "--from")
    ends = {number: high for number, (_, high) in watermarks.items()}
    if to is not None:
        stops = _resolve(consumer, topic, to, watermarks, "--to")
        ends = {number: min(end, stops[number]) for number, end in ends.items()}
    consumer.assign([TopicPartition(topic, n, starts[n]) for n in numbers if follow or starts[n] < ends[n]])
    return _Bounds(None if follow else {n: ends[n] for n in numbers if starts[n] < ends[n]})


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    low, high = consumer.get_watermark_offsets(partition, timeout=client.REQUEST_TIMEOUT_S)
    return int(low), int(high)


def _resolve(
    consumer: Consumer, topic: str, text: str, watermarks: dict[int, tuple[int, int]], option: str
) -> dict[int, int]:
    """Offsets for one of the words of --from and --to, kept inside what each partition holds."""
    place = _place(text)
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
    found = consumer.offsets_for_times(asked, timeout=client.REQUEST_TIMEOUT_S)
    return {tp.partition: tp.offset if tp.offset >= 0 else watermarks[tp.partition][1] for tp in found}


def _place(text: str) -> Callable[[int, int], int] | None:
    """(low, high) -> offset, for a word or a number; None for a time."""
    if text in START_WORDS:
        return (lambda low, high: low) if START_WORDS[text] == "earliest" else (lambda low, high: high)
    try:
        number = int(text)
    except ValueError:
        return None
    return (lambda low, high: high + number) if number < 0 or text.startswith("-") else (lambda low, high: number)


def _read(
    consumer: Consumer, emit: Callable[[Message], None], stop: _Stop, follow: bool, count: int | None, *, commit: bool
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    left = count
    while left != 0 and (follow or not stop.reached()):
        message = consumer.poll(0)
        if message is None:
            _flush()  # nothing at hand: let the reader see what there is
            message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if not stop.position(message) or error is not None:
            continue
        emit(message)
        if commit:
            consumer.store_offsets(message)
        if left is not None:
            left -= 1


def _emitter(as_json: bool, values_only: bool) -> Callable[[Message], None]:
    if as_json:
        return _emit_json
    if sys.stdout.isatty() and not values_only:
        return _emit_line
    return _emit_value


def _emit_value(message: Message) -> None:
    sys.stdout.buffer.write((_raw(message.value()) or b"") + b"\n")


def _emit_line(message: Message) -> None:
    _, timestamp_ms = message.timestamp()
    moment = (iso_time(timestamp_ms) or "-").replace("T", " ").removesuffix("Z")
    where = f"{message.partition()}:{message.offset()}"
    key = _raw(message.key())
    key_text = "" if key is None else printable(key) + "  "
    headers = "".join(f"  {name}={printable(value)}" for name, value in _headers(message))
    print(f"{dim(f'{where:<10} {moment:<23}')}  {dim(key_text)}{printable(_raw(message.value()))}{dim(headers)}")


def _emit_json(message: Message) -> None:
    _, timestamp_ms = message.timestamp()
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        **bytes_field("key", _raw(message.key())),
        **bytes_field("value", _raw(message.value())),
    }
    headers = _headers(message)
    if headers:
        record["headers"] = [{"name": name, **bytes_field("value", value)} for name, value in headers]
    print_json_line(record)


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    return [(str(name), _raw(value)) for name, value in list(message.headers() or ())]


def _raw(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
