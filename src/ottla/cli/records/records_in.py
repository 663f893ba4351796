"""Where `ottla produce` gets its records: values, files and pipes, in lines of several formats."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ottla.cli.exits import CommandFailed
from ottla.cli.output import visible
from ottla.cli.records.columns import columns_reader
from ottla.cli.records.record import Outgoing

RECORD_BYTES_MAX = 100 << 20
"""Kafka's socket.request.max.bytes: no broker takes a larger request, and no line has to fit in memory beyond it."""

Parse = Callable[[bytes], Outgoing]
"""Raises ValueError, TypeError, KeyError or AttributeError for what is no record."""


class Line(NamedTuple):
    """A line, and how to speak of it: `line 7 of orders.json`, `line 7`, `value 2`."""

    what: str
    number: int
    where: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.what} {self.number}{self.where}"


def lines_of(values: Sequence[str], files: Sequence[Path] | None) -> Iterator[Line]:
    """Values, then lines of files; of standard input where there are neither. Raises CommandFailed."""
    for number, value in enumerate(values, 1):
        yield Line("value", number, "", value.encode(errors="surrogateescape"))
    for path in files or ():
        if str(path) == "-":
            yield from _lines(sys.stdin.buffer, "")
            continue
        try:
            with path.open("rb") as stream:
                yield from _lines(stream, f" of {visible(str(path))}")
        except OSError as error:
            raise CommandFailed(f"cannot read {visible(str(path))}: {error.strerror}") from error
    if not values and not files:
        if sys.stdin.isatty():
            print("Type one record per line; end with Ctrl-D.", file=sys.stderr)
        yield from _lines(sys.stdin.buffer, "")


def _lines(stream: BinaryIO, where: str) -> Iterator[Line]:
    """Without their ends, which are LF, or CR LF as on Windows."""
    number = 0
    while data := stream.readline(RECORD_BYTES_MAX + 1):
        number += 1
        if len(data) > RECORD_BYTES_MAX:
            raise CommandFailed(f"line {number}{where} is longer than 100 MiB, the limit of a broker")
        yield Line("line", number, where, data.removesuffix(b"\n").removesuffix(b"\r"))


def text_lines(
    lines: Iterable[Line], common: Outgoing, separator: bytes | None, null: bytes | None
) -> Iterator[tuple[Line, Outgoing]]:
    """Each line is a value, or with a separator a key and a value; an empty line is an empty value."""
    for line in lines:
        key = common.key
        value: bytes | None = line.data
        if separator is not None:
            key, found, value = line.data.partition(separator)
            if not found:
                raise CommandFailed(
                    f"{line} has no {separator.decode(errors='replace')!r} between key and value: {_clip(line.data)}"
                )
        if value == null:
            value = None
        yield line, Outgoing(value, key, common.headers, common.partition)


def parsed_lines(lines: Iterable[Line], common: Outgoing, form: str) -> Iterator[tuple[Line, Outgoing]]:
    """Each line is a whole record (json, hex, base64). The options fill in what it leaves out; empty lines are none."""
    parse, example = _PARSERS[form]
    for line in lines:
        if not line.data.strip():
            continue
        try:
            record = parse(line.data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandFailed(f"{line} is not {example}: {_clip(line.data)} ({error})") from error
        yield (
            line,
            record._replace(
                key=common.key if record.key is None else record.key,
                headers=record.headers + common.headers,
                partition=record.partition if common.partition is None else common.partition,
            ),
        )


def from_json(line: bytes) -> Outgoing:
    """A record from a line of `ottla consume --json`. Values that are no text become JSON."""
    record = json.loads(line)
    headers = tuple((_text(item["name"]), _bytes_of(item, "value")) for item in record.get("headers") or ())
    numbers = [record.get(name) for name in ("partition", "timestamp")]
    for number in numbers:
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise TypeError(f"{number!r} is not a number")
    return Outgoing(_bytes_of(record, "value"), _bytes_of(record, "key"), headers, *numbers)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a header name")
    return value


def _bytes_of(record: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in record:
        return base64.b64decode(record[f"{name}_base64"], validate=True)
    value = record.get(name)
    if value is None or isinstance(value, str):
        return value.encode() if value is not None else None
    return json.dumps(value, ensure_ascii=False).encode()


_COLUMNS = "a line of `ottla consume --format "
_PARSERS: dict[str, tuple[Parse, str]] = {
    "json": (from_json, 'a record such as {"key": "k", "value": "v"}'),
    "hex": (columns_reader("hex"), f"{_COLUMNS}hex`"),
    "base64": (columns_reader("base64"), f"{_COLUMNS}base64`"),
}


def _clip(line: bytes, limit: int = 80) -> str:
    text = line.decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "..."
