"""Bytes of records as people read them: what is guessed, what is cut, and that a mask never lets its field through."""

from __future__ import annotations

import json

import pytest

from ottla.console.decoding import HEX_BYTES_MAX, SHOWN_MAX, Shown, hex_rows, shown
from ottla.console.masks import HIDDEN, How, TopicMask

NONE = TopicMask()
CARD = TopicMask(fields={("card",): How()})


def plain(data: bytes | None, how: str = "auto") -> Shown:
    return shown(data, how, NONE, None)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"hello", "text", "hello"),
        ("é日本".encode(), "text", "é日本"),
        (b'{"b": 1, "a": [1, 2]}', "json", '{\n  "b": 1,\n  "a": [\n    1,\n    2\n  ]\n}'),
        (b'{"big": 9223372036854775807}', "json", '{\n  "big": 9223372036854775807\n}'),
        (b"{not json", "text", "{not json"),
        (b"123", "text", "123"),
        (b"\xff\xfe", "hex", "00000000  ff fe" + " " * 45 + "|..|"),
        (b"a\x00b", "hex", "00000000  61 00 62" + " " * 42 + "|a.b|"),
    ],
)
def test_guessed(data: bytes | None, kind: str, text: str) -> None:
    found = plain(data)
    assert (found.kind, found.text) == (kind, text)
    assert found.bytes == len(data or b"")
    assert not found.is_cut


def test_as_asked() -> None:
    assert plain(b'{"a":1}', "text").text == '{"a":1}'
    assert plain(b"123", "json").kind == "json"
    assert plain(b"hi", "hex").text == hex_rows(b"hi")
    assert plain(b"\xff", "text").text == "\N{REPLACEMENT CHARACTER}"


def test_long_values_are_cut() -> None:
    long = plain(b"x" * (SHOWN_MAX + 1))
    assert (len(long.text), long.is_cut, long.bytes) == (SHOWN_MAX, True, SHOWN_MAX + 1)
    assert not plain(b"x" * SHOWN_MAX).is_cut
    binary = plain(b"\xff" * (HEX_BYTES_MAX + 1))
    assert binary.is_cut
    assert binary.text.count("\n") + 1 == HEX_BYTES_MAX // 16


def test_deep_json_is_text() -> None:
    deep = b"[" * 100_000
    assert plain(deep).kind == "text"
    nested = plain(b"[" * 900 + b"]" * 900)
    assert nested.kind in ("json", "text")


@pytest.mark.parametrize("how", ["auto", "json", "text", "hex"])
@pytest.mark.parametrize(
    "data",
    [
        b'{"card": "4111"}',
        b'[{"CARD": {"n": "4111"}}]',
        b"card=4111",
        b"\xff4111",
        b'{"card": "4111"',
        b'{"card": "4111"}' + b" " * (1024 * 1024),
        b"4111",
    ],
)
def test_a_mask_lets_nothing_through(how: str, data: bytes) -> None:
    found = shown(data, how, CARD, None)
    assert "4111" not in found.text
    assert "34 31 31 31" not in found.text
    assert found.kind != "hex"


def test_the_size_of_what_is_masked_is_that_of_what_is_shown() -> None:
    """With the rest known, the length of a password could be counted."""
    sizes = {shown(b'{"card": "%s"}' % (b"4" * many), "auto", CARD, None).bytes for many in (1, 5, 50)}
    assert len(sizes) == 1


def test_hidden_whole() -> None:
    found = shown(b"abc", "auto", NONE, None, hidden=How())
    assert (found.kind, found.text, found.bytes) == ("masked", HIDDEN, len(HIDDEN.encode()))
    assert shown(None, "auto", NONE, None, hidden=How()).kind == "null"


def test_by_a_schema() -> None:
    def decode(data: bytes) -> tuple[str, str, str]:
        if data[4] == 7:
            return "avro", '{"card": "4111", "id": 1}', "schema 7"
        raise ValueError("schema 8: unknown")

    found = shown(b"\0\0\0\0\x07rest", "auto", NONE, decode)
    assert (found.kind, json.loads(found.text), found.note) == ("avro", {"card": "4111", "id": 1}, "schema 7")
    masked = shown(b"\0\0\0\0\x07rest", "auto", CARD, decode)
    assert json.loads(masked.text) == {"card": HIDDEN, "id": 1}
    unknown = shown(b"\0\0\0\0\x08\x01", "auto", NONE, decode)
    assert unknown.kind == "hex"
    assert "schema 8: unknown" in unknown.note
    assert shown(b"\0\0\0\0\x08\x01", "auto", CARD, decode).kind == "masked"
