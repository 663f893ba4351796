"""`ottla produce`: records from the command line, from standard input or from files."""

from __future__ import annotations

import base64
import json as jsonlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from cyclopts import Parameter

from ottla.cli import client
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_settings
from ottla.cli.output import plural, print_json
from ottla.cli.progress import bytes_in, watched

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

DELIVERY_TIMEOUT_MS = 60_000
QUEUED_RECORDS_MAX = 100_000
"""librdkafka's queue: enough to keep the pipe to the broker full, a few tens of MB of ordinary records."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send. None of `partition` and `timestamp_ms` means: let the client choose."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass
class Delivered:
    """What the broker acknowledged, by partition, and the first refusals."""

    partitions: dict[int, list[int]] = field(default_factory=dict)
    """[records, first offset, last offset]"""
    failed: int = 0
    first_error: Any = None

    def report(self, error: Any, message: Any) -> None:
        """librdkafka's delivery callback."""
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        offset = message.offset()
        seen = self.partitions.get(message.partition())
        if seen is None:
            self.partitions[message.partition()] = [1, offset, offset]
        else:
            seen[0] += 1
            seen[2] = offset


def produce(
    topic: str,
    /,
    *values: str,
    file: Annotated[list[Path] | None, Parameter(alias="-f", negative="", consume_multiple=False)] = None,
    key: Annotated[str | None, Parameter(alias="-k")] = None,
    key_separator: Annotated[str | None, Parameter(alias="-K")] = None,
    header: Annotated[list[str] | None, Parameter(alias="-H", negative="", consume_multiple=False)] = None,
    partition: Annotated[int | None, Parameter(alias="-p")] = None,
    null: str | None = None,
    from_json: Flag = False,
    compression: Annotated[Codec, Parameter(alias="-z")] = "none",
    acks: Literal["all", "1", "0"] = "all",
    idempotent: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> int:
    """Write records to a topic.

    Records are the values given, or the lines of the files, or the lines of standard input.

    Parameters
    ----------
    topic
        Where they go.
    values
        One record each.
    file
        Read records from this file, one a line; may be repeated.
    key
        The key of every record.
    key_separator
        Split each line at the first such text into key and value.
    header
        A header name=value of every record; may be repeated.
    partition
        Send everything to this partition.
    null
        Lines equal to this text become null values: tombstones in a compacted topic.
    from_json
        Lines are JSON objects as `ottla consume --json` prints them.
    compression
        none, gzip, snappy, lz4 or zstd.
    acks
        Wait for all in-sync replicas, for the leader (1) or for nobody (0).
    idempotent
        Let the broker drop the duplicates that retries make.
    """
    if idempotent and acks != "all":
        raise CommandFailed("--idempotent needs --acks all", MISUSED)
    common = Outgoing(
        value=None,
        key=None if key is None else key.encode(),
        headers=tuple((name, text.encode()) for name, text in parse_settings(header or (), "--header").items()),
        partition=partition,
    )
    separator = None if key_separator is None else key_separator.encode()
    lines = watched(_lines(values, file), "producing", bytes_in(file), lambda line: len(line) + 1)
    null_text = None if null is None else null.encode()
    records = (_from_json(line, common) for line in lines) if from_json else _plain(lines, common, separator, null_text)
    producer = client.producer(bootstrap, _producer_settings(acks, idempotent, compression))
    delivered = _send(producer, topic, records)
    return _conclude(topic, delivered, json, acks)


def _producer_settings(acks: str, idempotent: bool, compression: str) -> dict[str, Any]:
    return {
        "acks": acks,
        "enable.idempotence": idempotent,
        "compression.codec": compression,
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
        "topic.metadata.propagation.max.ms": 5000,
    }


def _lines(values: Sequence[str], files: list[Path] | None) -> Iterator[bytes]:
    for value in values:
        yield value.encode()
    for path in files or ():
        try:
            with path.open("rb") as stream:
                yield from _stripped(stream)
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    if not values and not files:
        if sys.stdin.isatty():
            print("Type one record a line; Ctrl-D ends.", file=sys.stderr)
        yield from _stripped(sys.stdin.buffer)


def _stripped(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")


def _plain(lines: Iterable[bytes], common: Outgoing, separator: bytes | None, null: bytes | None) -> Iterator[Outgoing]:
    for number, line in enumerate(lines, 1):
        key = common.key
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise CommandFailed(
                    f"record {number} has no {separator.decode()!r} between key and value: {_clip(line)}"
                )
        if value == null:
            value = None
        yield Outgoing(value, key, common.headers, common.partition)


def _from_json(line: bytes, common: Outgoing) -> Outgoing:
    """A record from one line of `ottla consume --json`; the options fill in what the line leaves out."""
    try:
        record = jsonlib.loads(line)
        headers = tuple((item["name"], _bytes_of(item, "value")) for item in record.get("headers", ()))
        partition = common.partition if common.partition is not None else record.get("partition")
        key = _bytes_of(record, "key")
        timestamp = record.get("timestamp")
        return Outgoing(
            _bytes_of(record, "value"),
            common.key if key is None else key,
            headers + common.headers,
            partition,
            timestamp,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommandFailed(f'not a record such as {{"key": "k", "value": "v"}}: {_clip(line)} ({error})') from error


def _bytes_of(record: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in record:
        return base64.b64decode(record[f"{name}_base64"], validate=True)
    value = record.get(name)
    if value is None or isinstance(value, str):
        return value.encode() if value is not None else None
    return jsonlib.dumps(value, ensure_ascii=False).encode()


def _clip(line: bytes, limit: int = 80) -> str:
    text = line.decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "..."


def _send(producer: Any, topic: str, records: Iterable[Outgoing]) -> Delivered:
    delivered = Delivered()
    try:
        for record in records:
            arguments: dict[str, Any] = {"on_delivery": delivered.report}
            if record.partition is not None:
                arguments["partition"] = record.partition
            if record.timestamp_ms is not None:
                arguments["timestamp"] = record.timestamp_ms
            if record.headers:
                arguments["headers"] = list(record.headers)
            while True:
                try:
                    producer.produce(topic, record.value, record.key, **arguments)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            if delivered.first_error is not None:
                break
    finally:
        producer.flush()
    return delivered


def _conclude(topic: str, delivered: Delivered, as_json: bool, acks: str) -> int:
    partitions = sorted(delivered.partitions.items())
    total = sum(records for _, (records, _, _) in partitions)
    if as_json:
        names = ("records", "first_offset", "last_offset")
        details = [{"partition": number, **dict(zip(names, seen, strict=True))} for number, seen in partitions]
        print_json({"topic": topic, "records": total, "failed": delivered.failed, "partitions": details})
    elif total or not delivered.failed:
        where = "; ".join(
            f"partition {number}, offset {first}" + (f" to {last}" if last != first else "")
            for number, (_, first, last) in partitions
        )
        known = partitions and acks != "0"
        print(f"{plural(total, 'record')} to {topic}" + (f": {where}" if known else ""))
    if delivered.first_error is None:
        return OK
    sentence, unreachable = client.explain(delivered.first_error, f"topic {topic!r}: ")
    count = f" ({plural(delivered.failed, 'record')} not written)" if delivered.failed else ""
    raise CommandFailed(
        sentence.replace("\n", f"{count}\n", 1) if "\n" in sentence else sentence + count,
        UNREACHABLE if unreachable else FAILED,
    )
