"""Output of commands: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.config.units import bytes_field as bytes_field
from ottla.config.units import human_bytes as human_bytes
from ottla.config.units import iso_time as iso_time
from ottla.config.units import plural as plural
from ottla.config.units import printable as printable
from ottla.config.units import visible as visible

WIDE = 10_000
"""Width that tables are laid out for: a terminal wraps a long row by itself, and what is copied from it stays whole."""

_TRAILING = re.compile(r"\s+((?:\x1b\[[0-9;]*m)*)$")
"""Spaces that pad a row, and the end of their style."""


def json_text(value: Any, stream: Any, indent: int | None = None) -> str:
    """A JSON document as a stream can take it: where that is not UTF-8, with escapes for what is not ASCII."""
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(value, indent=indent, ensure_ascii=not unicode, default=str)


def print_json(value: Any) -> None:
    """One JSON document: indented on a terminal, on one line elsewhere."""
    print(json_text(value, sys.stdout, 2 if sys.stdout.isatty() else None))


def print_json_line(value: Any) -> None:
    """One line of a JSON Lines stream."""
    print(json_text(value, sys.stdout))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, indent: int = 0) -> None:
    """Aligned columns; a name ending in `>` is right-aligned (numbers)."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        right = name.endswith(">")
        table.add_column(name.rstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=True)
    for row in rows:
        table.add_row(*(Text("" if cell is None else visible(str(cell))) for cell in row))
    console = Console(
        highlight=False, width=WIDE, no_color=not _styled(), color_system="standard" if _styled() else None
    )
    for line in _lines(console, Padding(table, (0, 0, 0, indent), expand=False)):
        print(line)


def _lines(console: Any, renderable: Any) -> Iterable[str]:
    with console.capture() as capture:
        console.print(renderable)
    return [_TRAILING.sub(r"\1", line) for line in capture.get().splitlines()]


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _styled() else text


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _styled() else text


def _styled() -> bool:
    """Whether to use styles: on a terminal that supports them, unless NO_COLOR is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
