"""How records are shown: aligned lines on a terminal, bare values in a pipe, JSON Lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.formats import WORDS, emit_hex, headers_of, raw, template_emitter
from ottla.cli.output import bytes_field, dim, iso_time, print_json_line, printable

if TYPE_CHECKING:
    from confluent_kafka import Message


def emitter(form: str | None) -> Callable[[Message], None]:
    """What prints a record: by a word of `--format`, by a template, or as it suits a terminal or a pipe.

    Raises CommandFailed for what is neither.
    """
    if form is None:
        form = "text" if sys.stdout.isatty() else "values"
    named = {"text": _emit_line, "values": _emit_value, "json": _emit_json, "hex": emit_hex}.get(form)
    if named is not None:
        return named
    if "{" not in form:
        raise CommandFailed(f"--format wants {', '.join(WORDS)} or a template with {{value}}, not {form!r}", MISUSED)
    return template_emitter(form)


def _emit_value(message: Message) -> None:
    sys.stdout.buffer.write((raw(message.value()) or b"") + b"\n")


def _emit_line(message: Message) -> None:
    _, timestamp_ms = message.timestamp()
    moment = (iso_time(timestamp_ms) or "-").replace("T", " ").removesuffix("Z")
    where = f"{message.partition()}:{message.offset()}"
    key = raw(message.key())
    key_text = "" if key is None else printable(key) + "  "
    headers = "".join(f"  {name}={printable(value)}" for name, value in headers_of(message))
    print(f"{dim(f'{where:<10} {moment:<23}')}  {dim(key_text)}{printable(raw(message.value()))}{dim(headers)}")


def _emit_json(message: Message) -> None:
    _, timestamp_ms = message.timestamp()
    record: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        **bytes_field("key", raw(message.key())),
        **bytes_field("value", raw(message.value())),
    }
    headers = headers_of(message)
    if headers:
        record["headers"] = [{"name": name, **bytes_field("value", value)} for name, value in headers]
    print_json_line(record)
