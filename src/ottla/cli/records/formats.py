"""Formats of `ottla consume --format`: templates such as `{partition}:{offset} {key} {value:hex}`, and a hex dump."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.output import dim, iso_time
from ottla.cli.records.record import Record

WORDS = ("text", "values", "json", "hex", "base64", "hexdump")
HEX_BYTES_A_LINE = 16

_PART = re.compile(
    r"(?P<brace>\{\{|\}\})"
    r"|\{(?P<name>[a-z]+)(?:\.(?P<header>[^:{}]+))?(?::(?P<encoding>[a-z0-9]+))?\}"
    r"|\\(?P<escape>[ntr0\\])"
    r"|(?P<plain>[^{}\\]+)"
    r"|(?P<wrong>.)",
    re.DOTALL,
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _json_text(value: bytes | None) -> bytes:
    """A JSON value: the bytes themselves if they are JSON, else a string."""
    if value is None:
        return b"null"
    try:
        return json.dumps(json.loads(value), ensure_ascii=False).encode()
    except ValueError:
        return json.dumps(value.decode("utf-8", "backslashreplace"), ensure_ascii=False).encode()


ENCODINGS: dict[str, Callable[[bytes | None], bytes]] = {
    "text": lambda value: value or b"",
    "hex": lambda value: (value or b"").hex().encode(),
    "base64": lambda value: base64.b64encode(value or b""),
    "json": _json_text,
}


def _all_headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_FIELDS: dict[str, Callable[[Record], bytes | None]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "time": lambda record: (iso_time(record.timestamp_ms) or "").encode(),
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": _all_headers,
}


def _header(name: str) -> Callable[[Record], bytes | None]:
    return lambda record: next((value for each, value in record.headers if each == name), None)


Piece = bytes | tuple[Callable[[Record], bytes | None], Callable[[bytes | None], bytes]]


def template(text: str) -> Callable[[Record], bytes]:
    """A function from a record to a line. Raises CommandFailed for a template without a known field."""
    pieces = list(_pieces(text))

    def render(record: Record) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece[1](piece[0](record)) for piece in pieces)

    return render


def _pieces(text: str) -> Iterator[Piece]:
    for match in _PART.finditer(text):
        if match["wrong"]:
            raise _misuse(f"{match['wrong']!r} at character {match.start() + 1} is not part of a field", text)
        if match["brace"]:
            yield match["brace"][:1].encode()
        elif match["escape"]:
            yield _ESCAPES[match["escape"]]
        elif match["plain"]:
            yield match["plain"].encode()
        else:
            yield _field(match["name"], match["header"], match["encoding"] or "text", text)


def _field(name: str, header: str | None, encoding: str, text: str) -> Piece:
    if encoding not in ENCODINGS:
        raise _misuse(f"unknown encoding {encoding!r}; known: {', '.join(ENCODINGS)}", text)
    if header is not None and name == "header":
        return _header(header), ENCODINGS[encoding]
    if header is not None or name not in _FIELDS:
        raise _misuse(f"unknown field {name!r}; known: {', '.join(_FIELDS)}, header.NAME", text)
    return _FIELDS[name], ENCODINGS[encoding]


def _misuse(sentence: str, text: str) -> CommandFailed:
    example = "--format '{offset} {key} {value}'"
    return CommandFailed(f"--format {text!r}: {sentence}\n  an example: {example}", MISUSED)


def template_emitter(text: str) -> Callable[[Record], None]:
    """Prints each record by a template, and ends it with a newline."""
    render = template(text)

    def emit(record: Record) -> None:
        sys.stdout.buffer.write(render(record) + b"\n")

    return emit


def emit_hexdump(record: Record) -> None:
    """A heading, then key, value and headers as `hexdump -C` shows them."""
    moment = iso_time(record.timestamp_ms) or "-"
    sys.stdout.write(dim(f"{record.partition}:{record.offset} {moment}") + "\n")
    parts = [] if record.key is None else [("key", record.key)]
    for name, value in [*parts, ("value", record.value), *((f"header {name}", each) for name, each in record.headers)]:
        sys.stdout.write(f"  {name}{': null' if value is None else ''}\n")
        sys.stdout.writelines(f"    {line}\n" for line in hex_lines(value or b""))


def hex_lines(data: bytes) -> Iterator[str]:
    """`00000000  68 69                                            |hi|`."""
    for start in range(0, len(data), HEX_BYTES_A_LINE):
        part = data[start : start + HEX_BYTES_A_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  |{text}|"
