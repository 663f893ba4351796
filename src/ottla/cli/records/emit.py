"""How records are shown: aligned lines on a terminal, bare values in a pipe, JSON Lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.output import bytes_field, dim, iso_time, print_json_line, printable, visible
from ottla.cli.records.record import Record

Emit = Callable[[Record], None]


def emitter(form: str | None) -> Emit:
    """The printer of a record: by a word of `--format`, by a template, or as fits a terminal or a pipe. Raises
    CommandFailed for any other format."""
    if form is None:
        form = "text" if sys.stdout.isatty() else "values"
    named = {"text": _emit_line, "values": _emit_value, "json": _emit_json}.get(form)
    if named is not None:
        return named
    from ottla.cli.records.columns import columns_emitter
    from ottla.cli.records.formats import WORDS, emit_hexdump, template_emitter

    if form == "hexdump":
        return emit_hexdump
    if form in ("hex", "base64"):
        return columns_emitter(form)
    if "{" not in form:
        raise CommandFailed(f"--format must be {', '.join(WORDS)} or a template with {{value}}, not {form!r}", MISUSED)
    return template_emitter(form)


def _emit_value(record: Record) -> None:
    sys.stdout.buffer.write((record.value or b"") + b"\n")


def _emit_line(record: Record) -> None:
    moment = (iso_time(record.timestamp_ms) or "-").replace("T", " ").removesuffix("Z")
    where = f"{record.partition}:{record.offset}"
    key_text = "" if record.key is None else printable(record.key) + "  "
    headers = "".join(f"  {visible(name)}={printable(value)}" for name, value in record.headers)
    print(f"{dim(f'{where:<10} {moment:<23}')}  {dim(key_text)}{printable(record.value)}{dim(headers)}")


def _emit_json(record: Record) -> None:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
    }
    if record.headers:
        fields["headers"] = [{"name": name, **bytes_field("value", value)} for name, value in record.headers]
    print_json_line(fields)
