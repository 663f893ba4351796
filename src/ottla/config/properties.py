"""The text format of `server.properties`, as Java's `Properties.load` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


class Entry(NamedTuple):
    """A name's value, and the line of the file where it starts, from 1."""

    value: str
    line: int


def parse_entries(text: str) -> dict[str, Entry]:
    """Names in file order; of a repeated name the last value counts."""
    entries: dict[str, Entry] = {}
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # every part of the pattern may be empty
        entries[_unescape(match[1])] = Entry(_unescape(line[match.end() :]), number)
    return entries


def parse_properties(text: str) -> dict[str, str]:
    """Names and values alone."""
    return {name: entry.value for name, entry in parse_entries(text).items()}


def decode_properties(data: bytes) -> str:
    """The text of a file: UTF-8, or Latin-1 (Java's rule) where it is not valid UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and leading blanks; an odd number of backslashes at the end continues a line."""
    joined = ""
    first = 0
    continued = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(" \t\f")
        if not continued:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        joined += line[:-1] if continued else line
        if not continued:
            yield first, joined
            joined = ""
    if joined:
        yield first, joined


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(replace, text)
