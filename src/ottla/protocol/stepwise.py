"""Long requests and responses, decoded and encoded in steps: generators that yield the cost of what they have just done
(`drivers/cooperative.py`)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from ottla.protocol import messages, writer
from ottla.protocol.layout import ROW_COST, STEP_COST, Layout, Malformed
from ottla.protocol.messages import request_layout, response_layout
from ottla.protocol.reader import Reader
from ottla.protocol.schemas import Message
from ottla.protocol.writer import Writer

LONG_BYTES: Final = 4096
"""What is longer is decoded in steps: it may have a thousand rows, each of which costs far more than its bytes."""
LONG_ROWS: Final = 250
"""What has more is encoded in steps."""

Steps = Generator[int, None, Any]


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Steps:
    """The request in `frame`, as `messages.decode_request` gives it. Raises MalformedRequest."""
    return _decode(request_layout(api_key, version), version, frame, position)


def decode_response(api_key: int, version: int, frame: memoryview) -> Steps:
    """The response in `frame`, which stays as it is, as `messages.decode_response` gives it. Raises
    MalformedRequest."""
    position = len(messages.response_header(api_key, version, 0))
    return _decode(response_layout(api_key, version), version, frame, position)


def _decode(layout: Layout, version: int, frame: memoryview, position: int) -> Steps:
    try:
        return (yield from Reader(frame, position).steps(layout))
    except Malformed as error:
        raise messages.malformed(layout, version, error) from error


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> Steps:
    """Like `messages.encode_response`, in steps."""
    header = messages.response_header(api_key, version, correlation_id)
    return _encode(header, response_layout(api_key, version), values)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> Steps:
    """Like `messages.encode_request`, in steps."""
    header = messages.request_header(api_key, version, correlation_id, client_id)
    return _encode(header, request_layout(api_key, version), values)


def _encode(header: bytes, layout: Layout, values: Mapping[str, Any]) -> Steps:
    into = Writer(header)
    yield from into.steps(layout, values)
    return into.done()


def is_long(values: Mapping[str, Any]) -> bool:
    """Whether a message has so many rows, those in rows included, that it is to be encoded in steps."""
    return writer.is_long(values, LONG_ROWS)


def plain(entity: Any) -> Steps:
    """What `messages.plain` gives for a message."""
    found: dict[str, Any] = {}
    cost = 0
    for field in entity._schema:
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            rows = []
            for item in value:
                if not isinstance(item, Message):
                    rows.append(item)
                    cost += 1
                else:
                    rows.append((yield from plain(item)))
                    cost += 2 * ROW_COST
                if cost > STEP_COST:
                    yield cost
                    cost = 0
            found[field.name] = rows
        else:
            found[field.name] = (yield from plain(value)) if isinstance(value, Message) else value
    return found
