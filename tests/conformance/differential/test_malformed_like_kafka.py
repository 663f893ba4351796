"""Requests that are not what they should be: Ottla closes the connection where Kafka does, and answers where it does.

Every field of every served API and version is written wrong in every way that fits its type.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.fuzz.tree import SIZED, Value, body, frame, length, null, render, tree, uvarint

PREFIX = f"m{os.getpid()}-{time.time_ns() % 10**9}-"
NUMBERS = {
    "validate_only": 1, "replica_id": -1, "session_epoch": -1, "acks": 1, "timeout": 9000,
    "resource_type": 2, "resource_type_filter": 2, "resource_pattern_type": 3, "pattern_type_filter": 3, "operation": 3,
    "permission_type": 3, "mechanism": 1,
}  # fmt: skip
OLDEST = {ApiKey.PRODUCE: 3}
"""Older versions are advertised, but refused."""

Wrong = Callable[[Value], bytes | None]
"""The bytes to write instead of a value, None if this does not fit."""


def of_sized(value: Value) -> bool:
    return value.kind in (*SIZED, "array")


def a_negative_length(value: Value) -> bytes | None:
    if not of_sized(value):
        return None
    return uvarint(0xFFFFFFF0) if value.flexible else length(value, -2)


def a_long_string(value: Value) -> bytes | None:
    if value.kind != "string" or not value.flexible:
        return None
    return length(value, 40_000) + b"s" * 40_000


WRONG: dict[str, Wrong] = {
    "null": lambda value: null(value) if of_sized(value) or (value.kind == "struct" and value.nullable) else None,
    "negative length": a_negative_length,
    "long string": a_long_string,
    "claims more than there is": lambda value: length(value, 30_000) + body(value) if of_sized(value) else None,
    "claims 2 GB": lambda value: length(value, (1 << 31) - 2) if of_sized(value) and value.kind != "string" else None,
    "not UTF-8": lambda value: length(value, 3) + b"a\xff\xfe" if value.kind == "string" else None,
    "boolean of 2": lambda value: b"\2" if value.kind == "bool" else None,
    "unknown tags": lambda value: _with_tags(value, (77, b"abc"), (99, b"")),
    "tags twice": lambda value: _with_tags(value, (77, b"abc"), (77, b"c")),
    "tags out of order": lambda value: _with_tags(value, (78, b"abc"), (77, b"c")),
    "more after it": lambda value: None if value.path else render(value) + b"more",
    "one byte less": lambda value: None if value.path else render(value)[:-1],
}


def _with_tags(value: Value, *tags: tuple[int, bytes]) -> bytes | None:
    if value.kind != "struct" or not value.flexible:
        return None
    value.tags.extend(tags)
    return render(value)


def draw(field: Any, kind: str, nullable: bool, is_array: bool) -> Any:
    one = {"string": PREFIX.encode(), "bytes": b"", "records": b"", "uuid": bytes(16)}.get(
        kind, NUMBERS.get(field.name, 0)
    )
    return [one] if is_array else one


class Asker:
    """One broker, asked in raw frames."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = host, int(port)
        self.connect()

    def connect(self) -> None:
        self.socket = socket.create_connection(self.address, timeout=300)
        self.stream = self.socket.makefile("rb")

    def ask(self, request: bytes) -> bytes | None:
        """The answer; None for a connection closed instead."""
        try:
            self.socket.sendall(struct.pack(">i", len(request)) + request)
            head = self.stream.read(4)
            if len(head) == 4:
                return self.stream.read(struct.unpack(">i", head)[0])
        except ConnectionError:
            pass
        self.stream.close()
        self.socket.close()
        self.connect()
        return None


def wrong_requests(key: ApiKey, version: int) -> Iterator[tuple[str, str, bytes]]:
    """(in what way, which field, the request)"""
    cls = kio_oracle.request_class(key, version)
    for number in range(len(list(tree(cls, draw).walk()))):
        for name, wrong in WRONG.items():
            made = tree(cls, draw)
            value = list(made.walk())[number]
            value.raw = wrong(value)
            if value.raw is not None:
                yield name, value.path, frame(key, version, 7, "malformed", made)


def says_unknown_server_error(value: Any) -> bool:
    if isinstance(value, dict):
        return any(
            each is ErrorCode.unknown_server_error if name == "error_code" else says_unknown_server_error(each)
            for name, each in value.items()
        )
    return isinstance(value, list) and any(map(says_unknown_server_error, value))


@pytest.fixture(scope="module")
def askers(bootstrap: str, oracle: str) -> tuple[Asker, Asker]:
    return Asker(bootstrap), Asker(oracle)


SEEN: Counter[tuple[str, bool]] = Counter()


@pytest.mark.parametrize("key", TABLE, ids=lambda key: ApiKey(key).name)
def test_closed_or_answered_as_by_kafka(askers: tuple[Asker, Asker], key: ApiKey) -> None:
    key = ApiKey(key)
    row = TABLE[key]
    found = []
    for version in range(OLDEST.get(key, row.min_version), row.max_version + 1):
        for name, path, request in wrong_requests(key, version):
            mine, theirs = (each.ask(request) for each in askers)
            SEEN[name, theirs is None] += 1
            what = f"v{version} {path}: {name}"
            if (mine is None) is not (theirs is None):
                found.append(f"{what}: {'closed' if mine is None else 'answered'}, not so by Kafka")
            elif mine is not None and key is not ApiKey.API_VERSIONS:
                answer = messages.plain(messages.decode_response(key, version, mine)[1])
                if says_unknown_server_error(answer):
                    found.append(f"{what}: {answer}")
    assert not found, "\n" + "\n".join(found)


def test_each_way_was_tried() -> None:
    """What Kafka did in the tests above; it does both with each but these."""
    always_answered = {"not UTF-8", "boolean of 2", "unknown tags", "tags twice", "tags out of order", "more after it"}
    always_closed = {"long string", "claims more than there is", "claims 2 GB"}
    for name in WRONG:
        assert SEEN[name, False] > 5 or name in always_closed, (name, SEEN)
        assert SEEN[name, True] > 5 or name in always_answered, (name, SEEN)
