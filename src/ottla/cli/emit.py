"""How records are shown: aligned lines on a terminal, bare values in a pipe, JSON Lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.output import bytes_field, dim, iso_time, print_json_line, printable

if TYPE_CHECKING:
    from confluent_kafka import Message


def emitter(as_json: bool, values_only: bool) -> Callable[[Message], None]:
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
