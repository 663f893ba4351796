"""`ottla produce`: records from the command line, from standard input or from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from ottla.cli import client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.interrupts import Interrupted, call, code_of_end, held
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_pairs, unescape
from ottla.cli.output import plural, print_json
from ottla.cli.progress import bytes_in, shown
from ottla.cli.records.missing_topic import ensure_topic
from ottla.cli.records.produce_waits import Waits
from ottla.cli.records.record import Outgoing
from ottla.cli.records.records_in import RECORD_BYTES_MAX, Line, lines_of, parsed_lines, text_lines
from ottla.cli.schema.access import DEFAULT_URL, TYPES, Message, RegistryUrl, SchemaFile, Subject, encoded
from ottla.cli.values import FilePath, Partition, Raw, TopicName

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Compression = Annotated[Codec, Parameter(alias="-z", help="none, gzip, snappy, lz4 or zstd.")]
Idempotent = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Use an idempotent producer: the broker drops duplicates caused by retries.",
    ),
]
Create = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Create the topic if it does not exist. Without this option a terminal is asked; elsewhere the command "
        "fails.",
    ),
]
Form = Literal["lines", "json", "hex", "base64", "avro", "json-schema", "protobuf"]

DELIVERY_TIMEOUT_MS = 60_000
QUEUED_RECORDS_MAX = 100_000
QUEUED_KIB_MAX = 128 << 10
"""librdkafka's queue: enough to keep the pipe to the broker full, and for one record of the greatest size."""
BATCH_BYTES = 1_000_000
FLUSH_S = 0.2
"""Between two looks whether Ctrl-C was pressed while the last records are on their way."""
PARTITIONS_NAMED = 8
"""If there are more, they are counted, not named."""
LAST_S = 3.0
"""How long these are waited for once it was."""


@dataclass
class Delivered:
    """Acknowledged records by partition, and the first error."""

    partitions: dict[int, list[int]] = field(default_factory=dict)
    """[records, first offset, last offset]"""
    failed: int = 0
    first_error: Any = None
    first_line: Line | None = None
    """The line that `first_error` is about: the first of those that were refused."""

    @property
    def records(self) -> int:
        return sum(seen[0] for seen in self.partitions.values())

    def report(self, line: Line, error: Any, message: Any) -> None:
        """librdkafka's delivery callback."""
        if error is not None:
            self.refuse(line, error)
            return
        offset = message.offset()
        seen = self.partitions.get(message.partition())
        if seen is None:
            self.partitions[message.partition()] = [1, offset, offset]
        else:
            seen[0] += 1
            seen[1] = min(seen[1], offset)
            seen[2] = max(seen[2], offset)

    def refuse(self, line: Line, error: Any) -> None:
        self.failed += 1
        before = self.first_line
        if before is None or (before.where == line.where and line.number < before.number):
            self.first_error, self.first_line = error, line


def produce(
    topic: TopicName,
    /,
    *values: Raw,
    file: Annotated[
        list[FilePath] | None, Parameter(alias="-f", negative="", consume_multiple=False, allow_leading_hyphen=True)
    ] = None,
    key: Annotated[Raw | None, Parameter(alias="-k")] = None,
    key_separator: Annotated[Raw | None, Parameter(alias="-K")] = None,
    header: Annotated[list[Raw] | None, Parameter(alias="-H", negative="", consume_multiple=False)] = None,
    partition: Annotated[Partition | None, Parameter(alias="-p")] = None,
    null: Raw | None = None,
    format: Form = "lines",
    from_json: Flag = False,
    schema: SchemaFile = None,
    subject: Subject = None,
    message: Message = None,
    registry: RegistryUrl = DEFAULT_URL,
    compression: Compression = "none",
    acks: Literal["all", "1", "0"] = "all",
    idempotent: Idempotent = False,
    create: Create = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Write records to a topic.

    Records are the VALUES, or the lines of the files, or the lines of standard input. Lines end with LF or CR LF;
    an empty line is an empty value. On Ctrl-C, records in flight are waited for and counted.

    Parameters
    ----------
    topic
        Where they go.
    values
        One record each.
    file
        Read records from this file, one per line; - is standard input. May be repeated.
    key
        The key of every record.
    key_separator
        Split each line into key and value at the first occurrence of this text; \\t is a tab.
    header
        A header as name=value for every record; may be repeated.
    partition
        Send every record to this partition.
    null
        A line equal to this text becomes a null value (a tombstone in a compacted topic).
    format
        Format of a line: the value (lines), or a whole record with key, headers, partition and timestamp, as printed by
        `ottla consume --format` (json, hex, base64). Options fill in what a line leaves out; --partition overrides it.
        With avro, json-schema and protobuf a line is the value as JSON, encoded with a schema of the registry.
    from_json
        Short for --format json.
    acks
        Wait for all in-sync replicas, for the leader only (1), or not at all (0).
    """
    _ensure_sense(idempotent and acks != "all", from_json, format, schema or subject or message)
    headers = tuple(map(_header, parse_pairs(header or (), "--header")))
    common = Outgoing(None, None if key is None else key.encode(errors="surrogateescape"), headers, partition)
    ensure_topic(bootstrap, topic, create)
    lines = shown(lines_of(values, file), "producing", bytes_in(file), lambda line: len(line.data) + 1)
    records = _records(lines, common, "json" if from_json else format, key_separator, null)
    settings = _producer_settings(acks, idempotent, compression)
    if format not in TYPES:
        return _produce(bootstrap, topic, records, settings, json, lines.close)
    client.probe(bootstrap)
    with encoded(records, registry, subject or f"{topic}-value", format, schema, message) as made:
        return _produce(bootstrap, topic, made, settings, json, lines.close)


def _ensure_sense(is_unsafe: bool, from_json: bool, format: Form, of_registry: object) -> None:
    if is_unsafe:
        raise CommandFailed("--idempotent needs --acks all", MISUSED)
    if from_json and format not in ("lines", "json"):
        raise CommandFailed("--from-json and --format cannot be used together", MISUSED)
    if of_registry and format not in TYPES:
        raise CommandFailed(f"--schema, --subject and --message need --format {', '.join(TYPES)}", MISUSED)


def _header(pair: tuple[str, str]) -> tuple[str, bytes]:
    name, text = pair
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CommandFailed(f"--header must be UTF-8, not {name!r}", MISUSED) from None
    return name, text.encode(errors="surrogateescape")


def _records(
    lines: Iterable[Line], common: Outgoing, form: str, separator: str | None, null: str | None
) -> Iterable[tuple[Line, Outgoing]]:
    if separator == "":
        raise CommandFailed("--key-separator must not be empty", MISUSED)
    if form == "lines" or form in TYPES:
        between = None if separator is None else unescape(separator)
        return text_lines(lines, common, between, None if null is None else null.encode(errors="surrogateescape"))
    if separator is not None or null is not None:
        raise CommandFailed("--key-separator and --null need --format lines", MISUSED)
    return parsed_lines(lines, common, form)


def _produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[Line, Outgoing]],
    settings: dict[str, Any],
    as_json: bool,
    remove_bar: Callable[[], None],
) -> int:
    waits = Waits(topic)
    sender = client.producer(bootstrap, settings | _sizes(bootstrap, topic) | waits.settings())
    delivered = Delivered()
    code, on_their_way = OK, 0
    try:
        _send(sender, topic, records, delivered, waits)
    except Interrupted:
        code, on_their_way = code_of_end(), _flush_last(sender)
    except CommandFailed as failure:
        count = f"{plural(delivered.records, 'record')} acknowledged before that" if delivered.records else ""
        raise CommandFailed(f"{failure}\n  {count}" if count else str(failure), failure.exit_code) from None
    finally:
        remove_bar()
    code = _conclude(topic, delivered, as_json, settings["acks"], waits.reason()) or code
    if on_their_way:
        few = f"{plural(on_their_way, 'record')} sent, not acknowledged"
        raise CommandFailed(f"interrupted with {few}: they may have been written", code)
    return code


def _producer_settings(acks: str, idempotent: bool, compression: str) -> dict[str, Any]:
    return {
        "acks": acks,
        "enable.idempotence": idempotent,
        "compression.codec": compression,
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
        "queue.buffering.max.kbytes": QUEUED_KIB_MAX,
        "topic.metadata.propagation.max.ms": 5000,
    }


def _sizes(bootstrap: str, topic: str) -> dict[str, int]:
    """Batches no larger than the topic takes: librdkafka does not split one that was refused, as Kafka's client does.

    A single record is the broker's to refuse.
    """
    from ottla.cli.wire import topic_setting

    limit = topic_setting(bootstrap, topic, "max.message.bytes")
    batch = min(BATCH_BYTES, max(1, int(limit))) if limit else BATCH_BYTES
    return {"batch.size": batch, "message.max.bytes": RECORD_BYTES_MAX + BATCH_BYTES}


def _send(
    producer: Any, topic: str, records: Iterable[tuple[Line, Outgoing]], delivered: Delivered, waits: Waits
) -> None:
    """Until the records end or one is refused; what was sent is acknowledged or refused when this returns.

    Raises Interrupted, which leaves it to `_flush_last` to wait.
    """
    try:
        for line, record in records:
            _send_one(producer, topic, line, record, delivered, waits)
            call(producer.poll, 0)
            if delivered.first_error is not None:
                break
    except Interrupted:
        raise
    except BaseException:
        _flush(producer, waits)
        raise
    _flush(producer, waits)


def _flush(producer: Any, waits: Waits) -> None:
    while waiting := call(producer.flush, FLUSH_S):
        waits.look(waiting)


def _flush_last(producer: Any) -> int:
    """After a signal: how many records nothing is known of."""
    with held():
        return int(producer.flush(LAST_S))


def _send_one(producer: Any, topic: str, line: Line, record: Outgoing, delivered: Delivered, waits: Waits) -> None:
    from confluent_kafka import KafkaException

    report = partial(delivered.report, Line(line.what, line.number, line.where, b""))
    arguments: dict[str, Any] = {"on_delivery": report}
    if record.partition is not None:
        arguments["partition"] = record.partition
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    if record.headers:
        arguments["headers"] = list(record.headers)
    while True:
        try:
            producer.produce(topic, record.value, record.key, **arguments)
            return
        except BufferError:
            call(producer.poll, 0.1)
            waits.look(len(producer))
        except KafkaException as exception:
            delivered.refuse(line, client.error_of(exception))
            return


def _conclude(topic: str, delivered: Delivered, as_json: bool, acks: str, last_answers: str) -> int:
    partitions = sorted(delivered.partitions.items())
    if as_json:
        names = ("records", "first_offset", "last_offset")
        details = [{"partition": number, **dict(zip(names, seen, strict=True))} for number, seen in partitions]
        print_json({"topic": topic, "records": delivered.records, "failed": delivered.failed, "partitions": details})
    elif delivered.records or not delivered.failed:
        where = "; ".join(
            f"partition {number}, offset {first}" + (f" to {last}" if last != first else "")
            for number, (_, first, last) in partitions[:PARTITIONS_NAMED]
        )
        if len(partitions) > PARTITIONS_NAMED:
            where = f"in {plural(len(partitions), 'partition')}; offsets: --json"
        known = partitions and acks != "0"
        print(f"{plural(delivered.records, 'record')} to {topic}" + (f": {where}" if known else ""))
    if delivered.first_error is None:
        return OK
    sentence, unreachable = client.explain(delivered.first_error, f"topic {topic!r}, {delivered.first_line}: ")
    first, newline, advice = sentence.partition("\n")
    if "MSG_TIMED_OUT" in first and last_answers:
        newline, advice = "\n", f"  the last errors: {last_answers}"
    count = f"{plural(delivered.failed, 'record')} not written, {delivered.records:,} acknowledged"
    raise CommandFailed(f"{first} ({count}){newline}{advice}", UNREACHABLE if unreachable else FAILED)
