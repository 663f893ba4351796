"""Acts on records: write one, send one again with changes, copy one to another topic."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import Final

from ottla.config.units import iso_time
from ottla.console.acts.act import Act, Change, Field, Misfit, Plan, chosen, command, found_topic, pairs, topic_page
from ottla.console.acts.topics import TIMEOUT_MS, TOPIC
from ottla.console.asking import Asking, Invalid, NotFound, now_ms
from ottla.console.brokers import failure
from ottla.console.cluster import Cluster, Topic, leader_of
from ottla.console.records.reading import Limits, Reader, Record
from ottla.console.views.messages import log_reading, moment_of
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.protocol.records._batch_rows import murmur2
from ottla.protocol.records.compression import CODECS
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

DATA_MAX: Final = 1024 * 1024
"""Characters of a key or value: that of a record with the usual limits."""
BODY_MAX: Final = 8 * DATA_MAX
"""A form writes a byte as up to three characters, and a key may be as long as a value."""
READ_S: Final = 10.0
BY_SCHEMA: Final = "schema"
_WORDS: Final = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}
"""What a registry calls a type, and what the command does."""
FORMATS: Final = ("text", "hex", "null", BY_SCHEMA)
_FORMAT_WHAT: Final = (
    "How it is written: text, hex for any bytes, null for none, or schema: JSON that the registry's schema encodes."
)


def produce(asking: Asking) -> Plan:
    name = asking.text("topic")
    key, key_note = _bytes(asking, "key")
    value, value_note = _bytes(asking, "value")
    codec, written_at = asking.text("compression"), _timestamp(asking)
    headers = tuple((each, text.encode()) for each, text in pairs(asking.text("headers"), "headers").items())
    cluster, topic = found_topic(asking, name)
    at = TopicPartition(name, _partition(asking, "partition", topic, key))
    record = SimpleRecord(now_ms() if written_at is None else written_at, key, value, headers)
    size = len(key or b"") + len(value or b"")
    changes = [
        Change("partition", None, str(at.partition), "by the key's hash" if _is_by_key(asking, key) else ""),
        Change("key", None, "null" if key is None else f"{len(key):,} bytes", key_note),
        Change("value", None, "null" if value is None else f"{len(value):,} bytes", value_note),
        Change("headers", None, str(len(headers))),
        Change(
            "timestamp",
            None,
            iso_time(record.timestamp) or str(record.timestamp),
            "now" if written_at is None else "a topic with message.timestamp.type=LogAppendTime takes its own",
        ),
        *([Change("compression", None, codec)] if codec != "none" else []),
    ]
    return Plan(
        f"A record of {size:,} bytes is written to {name}.",
        lambda: _write(asking, cluster, at, record, codec),
        changes,
        _command(asking, name, at.partition, value_note.partition(",")[0]),
        ["A record without a value deletes its key in a compacted topic."] if value is None else [],
        pinned={"partition": str(at.partition)},
        back=_messages(name),
    )


def _is_by_key(asking: Asking, key: bytes | None) -> bool:
    return asking.text("partition") == "" and key is not None


def _bytes(asking: Asking, part: str) -> tuple[bytes | None, str]:
    """The key or value, and what it was encoded with. Raises Misfit."""
    text, how = asking.text(part), asking.text(f"{part}_format")
    if how == "null":
        if text:
            raise Misfit(part, "it must be empty where it is null")
        return None, ""
    if how == "text":
        return text.encode(), ""
    if how == BY_SCHEMA:
        return _encoded(asking, part, text)
    try:
        return bytes.fromhex(text), ""
    except ValueError:
        raise Misfit(part, "it must be pairs of hexadecimal digits") from None


def _encoded(asking: Asking, part: str, text: str) -> tuple[bytes, str]:
    """JSON by the newest schema of the subject, in the registry's wire format. Raises Misfit, OSError."""
    registry = asking.site.registry
    if registry is None:
        raise Misfit(f"{part}_format", "this console was given no schema registry: start it with --registry URL")
    from ottla.formats.errors import SchemaError
    from ottla.schemas import wire
    from ottla.schemas.client import NOT_FOUND, RegistryError, RegistryUnreachable
    from ottla.schemas.json_codecs import codec_of

    subject = asking.text(f"{part}_subject") or f"{asking.text('topic')}-{part}"
    try:
        found = registry.version(subject)
        codec = codec_of(found.schema, registry.parts(found.schema))
    except RegistryError as error:
        why = f"the registry has no subject {subject}" if error.http_status == NOT_FOUND else str(error)
        raise Misfit(f"{part}_subject", why) from error
    except RegistryUnreachable:
        raise
    except SchemaError as error:
        raise Misfit(f"{part}_subject", f"the schema of {subject} cannot be used: {error}") from error
    try:
        data = codec.to_bytes(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, character {error.colno}"
        raise Misfit(part, f"it must be JSON, to be encoded by {subject}: {error.msg} ({place})") from error
    except (ValueError, RecursionError) as error:
        raise Misfit(part, f"it does not fit version {found.version} of {subject}: {error}") from error
    note = f"{found.schema.type}, version {found.version} of {subject}, schema {found.id}"
    return wire.prefix(found.id) + data, note


def _timestamp(asking: Asking) -> int | None:
    """Raises Misfit."""
    text = asking.text("timestamp")
    if not text:
        return None
    try:
        return moment_of(text)
    except Invalid as error:
        raise Misfit("timestamp", str(error)) from None


def _partition(asking: Asking, parameter: str, topic: Topic, key: bytes | None) -> int:
    """The partition that is named, else the one that Kafka's own producer would choose."""
    numbers = [each.number for each in topic.partitions]
    given = chosen(asking, parameter, -1)
    if given >= 0:
        if given not in numbers:
            raise NotFound(f"Topic {topic.name} has no partition {given}.")
        return given
    if key is None:
        led = [each.number for each in topic.partitions if each.leader >= 0]
        return random.choice(led or numbers)
    return (murmur2(key) & 0x7FFFFFFF) % len(numbers)


def _write(asking: Asking, cluster: Cluster, at: TopicPartition, record: SimpleRecord, codec: str = "none") -> None:
    leader = leader_of(cluster, at)
    if leader < 0:
        raise KafkaError(ErrorCode.leader_not_available, f"{at.topic}-{at.partition} has no leader")
    part = {"index": at.partition, "records": bytes(build_batch([record], codec=CODECS[codec]))}
    topics = [{"name": at.topic, "partition_data": [part]}]
    values = {"transactional_id": None, "acks": -1, "timeout": TIMEOUT_MS, "topic_data": topics}
    answer = asking.brokers.change(ApiKey.PRODUCE, values, leader)
    for topic in answer["responses"]:
        for row in topic["partition_responses"]:
            if row["error_code"]:
                reasons = [row["error_message"], *(each["batch_index_error_message"] for each in row["record_errors"])]
                raise failure(ApiKey.PRODUCE, row["error_code"], at.topic, next(filter(None, reasons), None))


def _command(asking: Asking, name: str, partition: int, kind: str) -> str:
    """Without the record itself: a shell keeps what is typed. Standard input gives the value."""
    options: dict[str, str | int | None] = {"--file": "VALUE-FILE", "--partition": partition}
    options |= {"--key": "KEY"} if asking.text("key") else {}
    options |= {"--compression": asking.text("compression")} if asking.text("compression") != "none" else {}
    if kind:
        subject = asking.text("value_subject") or f"{name}-value"
        options |= {"--format": _WORDS[kind], "--subject": subject, "--registry": asking.site.registry_url}
    return command(asking, "produce", [name], options)


def _messages(name: str) -> tuple[str, str]:
    address, title = topic_page(name)
    return f"{address}/messages", f"Messages of {title.removeprefix('Topic ')}"


def fill(asking: Asking) -> Mapping[str, str]:
    """The form with a record that is there, if one is named."""
    number, offset = chosen(asking, "from_partition", -1), chosen(asking, "from_offset", -1)
    if number < 0 or offset < 0:
        return {}
    record, _ = _record(asking, asking.text("topic"), number, offset)
    found = {"partition": str(number), "from_partition": "", "from_offset": ""}
    for part, data in (("key", record.key), ("value", record.value)):
        text, how = _text(data)
        found |= {part: text, f"{part}_format": how}
    if len(found["key"]) > DATA_MAX or len(found["value"]) > DATA_MAX:
        raise Invalid("the record is too large for a form: copy it to a topic instead")
    lines = []
    for name, value in record.headers:
        text, how = _text(value)
        if how != "text" or "\n" in text or "=" in name or "\n" in name:
            raise Invalid(f"header {name[:100]!r} cannot be written in a form: copy the record to a topic instead")
        lines.append(f"{name}={text}")
    return {**found, "headers": "\n".join(lines)}


def _text(data: bytes | None) -> tuple[str, str]:
    """As text where a form gives back the same bytes: browsers change how lines end."""
    if data is None:
        return "", "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex(), "hex"
    return (text, "text") if "\r" not in text and "\0" not in text else (data.hex(), "hex")


def copy(asking: Asking) -> Plan:
    name, to = asking.text("topic"), asking.text("to")
    number, offset = asking.number("partition"), asking.number("offset")
    record, _ = _record(asking, name, number, offset)
    cluster, topic = found_topic(asking, to)
    at = TopicPartition(to, _partition(asking, "to_partition", topic, record.key))
    made = SimpleRecord(
        record.timestamp if asking.text("timestamp") == "keep" else now_ms(), record.key, record.value, record.headers
    )
    return Plan(
        f"The record at offset {offset} of {name}-{number} is copied to {to}.",
        lambda: _write(asking, cluster, at, made),
        [
            Change("partition", str(number), str(at.partition)),
            Change("key", None, "null" if record.key is None else f"{len(record.key):,} bytes"),
            Change("value", None, "null" if record.value is None else f"{len(record.value):,} bytes"),
            Change("headers", None, str(len(record.headers))),
        ],
        pinned={"to_partition": str(at.partition)},
        back=_messages(to),
    )


def _record(asking: Asking, name: str, number: int, offset: int) -> tuple[Record, Topic]:
    """One record, as this user reads it. Raises Forbidden where a mask hides parts of it."""
    cluster, topic = found_topic(asking, name)
    asking.rights.ensure_whole(name, "sent again or copied")
    if all(each.number != number for each in topic.partitions):
        raise NotFound(f"Topic {name} has no partition {number}.")
    limits = Limits(time.monotonic() + READ_S, 1_000_000, 256 * DATA_MAX)
    (read,) = Reader(asking.brokers, cluster, topic, limits).forward({number: (offset, offset + 1)}, 1)
    log_reading(asking, name, [read], len(read.found))
    is_outside = isinstance(read.failure, KafkaError) and read.failure.code is ErrorCode.offset_out_of_range
    if read.failure is not None and not is_outside:
        raise read.failure
    if not read.found:
        raise NotFound(f"There is no committed record at offset {offset} of {name}-{number}.")
    return read.found[0], topic


def _part(name: str, what: str) -> tuple[Field, ...]:
    return (
        Field(name, what, length_max=2 * DATA_MAX, widget="area", is_private=True, is_data=True),
        Field(f"{name}_format", _FORMAT_WHAT, FORMATS, "text", widget="choice", label=f"{name.capitalize()} is"),
        Field(
            f"{name}_subject",
            f"With the schema of this subject; TOPIC-{name} if left out.",
            label=f"Subject of the {name}",
            hint=f"TOPIC-{name}",
        ),
    )


_PARTITION: Final = Field("partition", "The partition; chosen by the key if left out.", low=0, high=2**31 - 1,
                          widget="number")  # fmt: skip
ACTS: Final = (
    Act("produce", "Write a record", "One record, written with acks=all. A form that is sent twice writes one.",
        "Write on the topic", produce,
        (TOPIC, *_part("key", "The record's key."), *_part("value", "The record's value."),
         Field("headers", "Headers, as NAME=VALUE on each line.", length_max=DATA_MAX, widget="area", is_private=True,
               is_data=True), _PARTITION,
         Field("timestamp", "Its time, in UTC unless it has a zone; the present if left out.",
               hint="2026-01-31T12:30:00"),
         Field("compression", "How the record is compressed.", tuple(CODECS), "none", widget="choice"),
         Field("from_partition", "Begin with the record of this partition ...", low=0, high=2**31 - 1, widget="hidden"),
         Field("from_offset", "... at this offset.", low=0, high=2**63 - 1, widget="hidden")),
        "topic", body_max=BODY_MAX, fill=fill),
    Act("copy-record", "Copy a record", "One record, with its headers, to another topic.",
        "Read on the topic, Write on the other one", copy,
        (TOPIC, Field("partition", "The record's partition.", low=0, high=2**31 - 1, is_required=True, widget="number"),
         Field("offset", "The record's offset.", low=0, high=2**63 - 1, is_required=True, widget="number"),
         Field("to", "The topic that gets the copy.", is_required=True, label="To topic"),
         Field("to_partition", "Its partition; chosen by the key if left out.", low=0, high=2**31 - 1,
               widget="number"),
         Field("timestamp", "Keep the record's timestamp, or take the present.", ("keep", "now"), "keep",
               widget="choice")),
        "messages", is_listed=False),
)  # fmt: skip
