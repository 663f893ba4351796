"""A record as the command line handles it, read or to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka import Message

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 where the record has none."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Outgoing(NamedTuple):
    """A record to write. None of `partition` and `timestamp_ms` means: let the client choose."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def record_of(message: Message) -> Record:
    """The record of a librdkafka message, whose parts are typed as text or bytes."""
    headers = tuple((str(name), _raw(value)) for name, value in list(message.headers() or ()))
    return Record(
        str(message.topic()),
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        _raw(message.key()),
        _raw(message.value()),
        headers,
    )


def _raw(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
