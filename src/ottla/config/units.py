"""Lengths of time, sizes and moments as people say them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([KMG]?)", re.ASCII)
_MULTIPLES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NAMES = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"), (1, "millisecond"))


def human_bytes(size: int) -> str:
    """A size in the unit that leaves one to three digits before the point: `0 B`, `12.5 KiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def iso_time(timestamp_ms: int) -> str | None:
    """UTC with milliseconds, or None for Kafka's -1 and for what no calendar holds."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Two units at most, for a column: `0s`, `0.4s`, `12s`, `3m 5s`, `2d 4h`."""
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds else "0s"
    whole = int(seconds)
    for place, (size, unit) in enumerate(_UNITS):
        if whole >= size:
            rest = whole % size // _UNITS[place + 1][0] if place + 1 < len(_UNITS) else 0
            return f"{whole // size}{unit}" + (f" {rest}{_UNITS[place + 1][1]}" if rest else "")
    return "0s"


def long_time(ms: int) -> str:
    """For a sentence: `7 days`, `1 hour`, `90 minutes`, `250 milliseconds`."""
    for size, name in _NAMES:
        if ms >= size and ms % size == 0:
            count = ms // size
            return f"{count:,} {name}" + ("" if count == 1 else "s")
    return f"{ms:,} milliseconds"


def parse_byte_rate(text: str) -> int | None:
    """`500K`, `20M`, `1.5G` or plain bytes, a second each; None for what is none of these."""
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    rate = round(float(match[1]) * _MULTIPLES[match[2]])
    return rate if 0 < rate < 2**63 else None


def size(count: int) -> str:
    """For a sentence: `1 GiB`, `1.5 MiB`, `100 B`."""
    return human_bytes(count).replace(".0 ", " ")


def plural(count: int, noun: str) -> str:
    """`1 record`, `1,234 records`, `2 batches`, `2 entries`, `2 days`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"


def bytes_field(name: str, value: bytes | None) -> dict[str, Any]:
    """A JSON member for bytes: text where it is UTF-8, otherwise base64 under `NAME_base64`: nothing is lost."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(value).decode()}


def printable(value: bytes | None) -> str:
    """Bytes for a person to read on one line; control characters and broken UTF-8 as escapes."""
    if value is None:
        return "null"
    return visible(value.decode("utf-8", "backslashreplace"))


def visible(text: str) -> str:
    """Text from others on one line, without what a terminal would obey: control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
