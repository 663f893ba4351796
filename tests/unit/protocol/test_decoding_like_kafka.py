"""Every served request in every version: null is refused where the schema refuses it, and no more is than by Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.server import api
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.fuzz.tree import SIZED, Value, body, frame, length, null, tree, uvarint

VERSIONS = [
    (ApiKey(key), version)
    for key, row in TABLE.items()
    for version in range(row.min_version, row.max_version + 1)
    if (key, version) not in {(ApiKey.PRODUCE, old) for old in range(3)}
]
EACH = pytest.mark.parametrize(
    ("key", "version"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in VERSIONS]
)


def draw(field: Any, kind: str, nullable: bool, is_array: bool) -> Any:
    one = {"string": b"x", "bytes": b"b", "records": b"", "uuid": bytes(range(16)), "bool": 1}.get(kind, 7)
    return [one, one] if is_array else one


def requests(key: ApiKey, version: int) -> list[tuple[Value, Value]]:
    """The same request again and again, each time with another of its values."""
    cls = kio_oracle.request_class(key, version)
    made = [tree(cls, draw) for _ in tree(cls, draw).walk()]
    return [(each, list(each.walk())[number]) for number, each in enumerate(made)]


def decode(key: ApiKey, version: int, request: Value) -> Any:
    data = frame(key, version, 1, "c", request)
    return api.load(key).decode(version, memoryview(data), messages.read_header(data).body_offset)


@EACH
def test_null_is_refused_where_it_may_not_be(key: ApiKey, version: int) -> None:
    for request, value in requests(key, version):
        if value.kind not in (*SIZED, "array") and not (value.kind == "struct" and value.nullable):
            continue
        forms = [null(value)]
        if value.kind != "struct":
            forms += [uvarint(0xFFFFFFF0), uvarint(0x80000001)] if value.flexible else [length(value, -2)]
        for form in forms:
            value.raw = form
            if value.nullable:
                decode(key, version, request)
            else:
                with pytest.raises(MalformedRequest):
                    decode(key, version, request)


@EACH
def test_unknown_tagged_fields_are_skipped(key: ApiKey, version: int) -> None:
    for request, value in requests(key, version):
        if value.kind == "struct" and value.flexible:
            before = decode(key, version, request)
            value.tags += [(99, b"abc"), (77, b""), (77, b"again")]
            assert decode(key, version, request) == before


@EACH
def test_a_boolean_is_any_byte(key: ApiKey, version: int) -> None:
    for request, value in requests(key, version):
        if value.kind == "bool":
            before = decode(key, version, request)
            for byte in (b"\2", b"\xff"):
                value.raw = byte
                assert decode(key, version, request) == before


@EACH
def test_strings_are_read_as_utf_8_whatever_they_are(key: ApiKey, version: int) -> None:
    for request, value in requests(key, version):
        if value.kind == "string":
            value.content = "a\ufffdb".encode()
            before = decode(key, version, request)
            value.content = b"a\xffb"
            assert decode(key, version, request) == before


@EACH
def test_a_length_beyond_the_request_or_kafkas_limit_is_refused(key: ApiKey, version: int) -> None:
    for request, value in requests(key, version):
        forms = []
        if value.kind in (*SIZED, "array"):
            forms = [length(value, 30_000) + body(value)]
        if value.kind == "string" and value.flexible:
            forms.append(length(value, 0x8000) + bytes(0x8000))
        for form in forms:
            value.raw = form
            with pytest.raises(MalformedRequest):
                decode(key, version, request)
        if value.kind == "string":
            value.raw = length(value, 0x7FFF) + bytes(0x7FFF)
            decode(key, version, request)
