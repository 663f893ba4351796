"""The format of the audit log: events as JSON lines, each with a hash over itself and the line before it.

A line is a JSON object that ends with its `hash`: SHA-256 over the hash of the line before it and the object without
`hash`. Whoever changes, removes or moves a line has to rewrite all later ones. `Chain` makes lines, `Check` reads
them and says what does not fit. What a chain alone cannot show is that its end is missing, or that all of it was
rewritten: for that the newest number and hash are kept elsewhere (`Head`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

FIRST_HASH: Final = "0" * 64
"""Stands for the hash of the line before the first."""

LINE_BYTES_MAX: Final = 65_536
"""An event that would be longer loses its changes, which a request may have thousands of."""

TEXT_LENGTH_MAX: Final = 2_000
"""Characters of one value; clients choose names, and values of settings, as long as they like."""

_END: Final = re.compile(rb',"hash":"([0-9a-f]{64})"\}\n?\Z')
_CUT: Final = "..."


class Head(NamedTuple):
    """The newest event: a chain that does not have it was cut off, or is another one."""

    seq: int
    hash: str

    @classmethod
    def read(cls, text: str) -> Head:
        """From `SEQ:HASH`. Raises ValueError."""
        seq, _, found = text.strip().partition(":")
        if not (seq.isdecimal() and len(seq) < 20 and re.fullmatch(r"[0-9a-f]{64}", found)):
            raise ValueError(f"{text[:100]!r} is not SEQ:HASH")
        return cls(int(seq), found)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


def timestamp(now_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    seconds, ms = divmod(now_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


class Chain:
    """Makes the lines of one node. Numbers begin with 1."""

    __slots__ = ("hash", "seq")

    def __init__(self, head: Head | None = None) -> None:
        self.seq = 0 if head is None else head.seq
        self.hash = FIRST_HASH if head is None else head.hash

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash)

    def seal(self, now_ms: int, event: Mapping[str, Any]) -> bytes:
        """The line of an event, with its number, time and hash. Values that are None are left out."""
        fields = {"seq": self.seq + 1, "time": timestamp(now_ms)}
        fields.update((name, _short(value)) for name, value in event.items() if value is not None)
        body = _encoded(fields)
        if len(body) > LINE_BYTES_MAX:
            changes = fields.pop("changes", ())
            body = _encoded({**fields, "changes_left_out": len(changes)})  # type: ignore[arg-type]
        self.seq += 1
        self.hash = link(self.hash, body)
        return body[:-1] + b',"hash":"' + self.hash.encode() + b'"}\n'


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()  # ASCII: a line has no control characters


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LENGTH_MAX else value[:TEXT_LENGTH_MAX] + _CUT
    return value


def link(before: str, body: bytes) -> str:
    """The hash of a line without its `hash`, given the hash of the line before it."""
    return hashlib.sha256(before.encode() + body).hexdigest()


class Line(NamedTuple):
    """A line of the log that was read."""

    seq: int
    body: bytes
    hash: str
    event: Mapping[str, Any]


def parse(line: bytes) -> Line | None:
    """None for what is no line of an audit log."""
    found = _END.search(line)
    if found is None:
        return None
    body = line[: found.start()] + b"}"
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or type(event.get("seq")) is not int:
        return None
    return Line(event["seq"], body, found[1].decode(), event)


class Check:
    """Reads the lines of one chain in order and says what does not fit."""

    def __init__(self, wanted: tuple[Head, ...] = (), *, is_part: bool = False) -> None:
        """`wanted` are heads that were kept elsewhere; each has to be in the chain. `is_part`: lines before the first
        one need not be there, as in a topic whose records expire."""
        self.first: int | None = None
        self.last: Head | None = None
        self.events = 0
        self._wanted = {each.seq: each for each in wanted}
        self._is_part = is_part
        self._deleted = 0
        """The newest event that was deleted with its file, as the chain itself says."""

    def line(self, text: bytes) -> str | None:
        """What is wrong with the next line; None if it fits."""
        found = parse(text)
        if found is None:
            return "is no event: the line was changed, or is damaged"
        self.events += 1
        last = self.last
        if self.first is None:
            self.first = found.seq
        if found.event.get("event") == "FileDeleted":
            self._deleted = max(self._deleted, _int(found.event.get("last_seq")))
        problem = None
        if last is None:
            before = FIRST_HASH if found.seq == 1 else found.event.get("previous")
            if self._is_part and before is None:
                problem = None
            elif not isinstance(before, str):
                problem = f"the lines before event {found.seq} were removed from their file"
            elif not _same(link(before, found.body), found.hash):
                problem = f"event {found.seq} was changed"
        elif found.seq <= last.seq:
            return f"event {found.seq} stands behind event {last.seq}: lines were moved or repeated"
        elif found.seq > last.seq + 1:
            missing = (
                f"event {last.seq + 1} is"
                if found.seq == last.seq + 2
                else f"events {last.seq + 1} to {found.seq - 1} are"
            )
            problem = f"{missing} missing before event {found.seq}"
        elif not _same(link(last.hash, found.body), found.hash):
            problem = f"event {found.seq} does not follow event {last.seq}: one of both was changed"
        self.last = Head(found.seq, found.hash)
        wanted = self._wanted.pop(found.seq, None)
        if problem is None and wanted is not None and not _same(wanted.hash, found.hash):
            problem = f"event {found.seq} is not the one that was kept: the log was rewritten"
        return problem

    def end(self) -> list[str]:
        """What is missing at the beginning and the end."""
        problems = []
        if self.first is not None and self.first > self._deleted + 1 and not self._is_part:
            problems.append(f"events {self._deleted + 1} to {self.first - 1} are missing: files were removed")
        newest = max(self._wanted.values(), default=None)
        if newest is not None and newest.seq > (0 if self.last is None else self.last.seq):
            at = "is empty" if self.last is None else f"ends with event {self.last.seq}"
            problems.append(f"the log {at}, and there was an event {newest.seq}: its end was cut off")
        return problems


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one, other)


def _int(value: Any) -> int:
    return value if type(value) is int else 0
