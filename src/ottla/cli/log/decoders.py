"""Decoders for the records of Kafka's own topics: metadata log, committed offsets and groups, transactions, control
records."""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.cli.output import bytes_field, printable
from ottla.model import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTION_TOPIC, uuid_to_base64
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.records.record_batch import Record
from ottla.protocol.schemas import Message

Decoder = Callable[[Record], dict[str, Any]]
"""A record's content as JSON-able members. Raises MalformedRecord."""

HIDDEN = "[hidden]"

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+?)-(?P<partition>\d+)(\.[0-9a-f]{32}-(delete|future|stray))?")
_MARKERS = {0: "ABORT", 1: "COMMIT"}


def topic_of(directory: str) -> str | None:
    """The topic whose partition a directory of this name holds, also while it is being deleted or moved."""
    match = _PARTITION_DIRECTORY.fullmatch(posixpath.basename(posixpath.abspath(directory)))
    return match["topic"] if match else None


def decoder_for(path: str, wanted: str = "auto") -> Decoder:
    """The decoder for the file at `path`, by its directory's name, unless `wanted` names one."""
    if wanted == "auto":
        topic = topic_of(posixpath.dirname(posixpath.abspath(path)))
        wanted = _BY_TOPIC.get(topic or "", "none")
        if path.endswith(".checkpoint"):
            wanted = "metadata"
    return _DECODERS[wanted]


def decode_plain(record: Record) -> dict[str, Any]:
    content = {**bytes_field("key", record.key), **bytes_field("value", record.value)}
    if record.headers:
        content["headers"] = [{"name": name, **bytes_field("value", value)} for name, value in record.headers]
    return content


def decode_metadata(record: Record) -> dict[str, Any]:
    from ottla.config.definitions import may_be_secret
    from ottla.protocol.internal.metadata_records import decode_record
    from ottla.protocol.schemas.records import ConfigRecord

    message, version = decode_record(record.value or b"")
    content = to_json(message)
    is_setting = isinstance(message, ConfigRecord) and message.value is not None
    if is_setting and may_be_secret(message.resource_type, message.name):
        content["value"] = HIDDEN
    return {"type": type(message).__name__, "version": version, "content": content}


def decode_group(record: Record) -> dict[str, Any]:
    from ottla.protocol.internal.group_records import ModernKey, decode_record, name_of

    decoded = decode_record(record.key or b"", record.value)
    if decoded is None:
        return decode_plain(record)
    if isinstance(decoded.key, ModernKey):
        about = {"group": decoded.key.group, "member": decoded.key.member}
        return {"type": name_of(decoded.key), "group": about, **bytes_field("value", record.value)}
    name = type(decoded.key).__name__.removesuffix("Key")
    return {"type": name, "group": to_json(decoded.key), "content": to_json(decoded.value)}


def decode_transaction(record: Record) -> dict[str, Any]:
    """A transactional id's record, with its state by name."""
    from ottla.coordinator.transaction.transaction import State
    from ottla.protocol.internal.transaction_records import decode_record

    decoded = decode_record(record.key or b"", record.value)
    if decoded is None:
        return decode_plain(record)
    content = to_json(decoded.value)
    if content is not None:
        titles = {state.id: state.title for state in State}
        status = content.pop("transaction_status")
        content = {"state": titles.get(status, status), **content}
    return {"type": "Transaction", "transactional_id": decoded.transactional_id, "content": content}


def decode_control(record: Record) -> dict[str, Any]:
    """Transaction markers of data partitions, and what a Raft leader writes into the metadata log."""
    from ottla.protocol.internal.quorum_records import decode_control

    key, value = record.key or b"", record.value or b""
    if len(key) < 4:
        raise MalformedRecord(f"a control record with a key of {len(key)} bytes")
    (kind,) = struct.unpack_from(">h", key, 2)
    if kind in _MARKERS:
        epoch = struct.unpack_from(">hi", value)[1] if len(value) >= 6 else None
        return {"type": _MARKERS[kind], "coordinator_epoch": epoch}
    message = decode_control(key, value)
    if message is None:
        return {"type": f"control {kind}", **bytes_field("value", value)}
    return {"type": type(message).__name__, "content": to_json(message)}


_BY_TOPIC = {METADATA_TOPIC: "metadata", OFFSETS_TOPIC: "offsets", TRANSACTION_TOPIC: "transactions"}
_DECODERS: dict[str, Decoder] = {
    "metadata": decode_metadata,
    "offsets": decode_group,
    "transactions": decode_transaction,
    "none": decode_plain,
}


def to_json(value: Any) -> Any:
    """A record of the codec as JSON: ids in Kafka's base64, bytes as text, secrets hidden."""
    if isinstance(value, Message):
        return {
            field.name: HIDDEN if field.is_secret else to_json(getattr(value, field.name)) for field in value._schema
        }
    if isinstance(value, UUID):
        return uuid_to_base64(value)
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value
