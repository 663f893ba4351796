"""Lines out of bytes, whole and byte by byte."""

from __future__ import annotations

import random
import re

import pytest

from ottla.tail.lines import Line, Splitter

TEXT = b"one\r\n\ntwo\n  more\n\xff\xfe\nlonger than all\nrest"
START = re.compile(rb"^\S")


def fed(splitter: Splitter, text: bytes, sizes: random.Random | None) -> list[Line]:
    found, at = [], 0
    while at < len(text):
        size = 1 if sizes is None else sizes.randint(1, 20)
        found += splitter.feed(text[at : at + size])
        at += size
        assert splitter.offset + splitter.held_bytes == min(at, len(text))
    return found + splitter.finish()


@pytest.mark.parametrize("start", [None, START])
@pytest.mark.parametrize("limit", [3, 7, 1000])
def test_however_it_is_cut_nothing_is_lost(start: re.Pattern[bytes] | None, limit: int) -> None:
    for seed in [None, *range(20)]:
        splitter = Splitter(limit, start)
        found = fed(splitter, TEXT, None if seed is None else random.Random(seed))
        assert splitter.offset == len(TEXT)
        assert all(len(each.data) <= limit for each in found)
        sent = b"".join(each.data for each in found)
        assert sent.replace(b"\n", b"") == TEXT.replace(b"\n", b"")
        for line in found:
            assert TEXT[line.offset :].startswith(line.data)


def test_lines_and_their_offsets() -> None:
    found = Splitter(100).feed(TEXT)
    assert [(each.offset, each.data) for each in found] == [
        (0, b"one\r"),
        (5, b""),
        (6, b"two"),
        (10, b"  more"),
        (17, b"\xff\xfe"),
        (20, b"longer than all"),
    ]


def test_records_of_several_lines() -> None:
    splitter = Splitter(100, START)
    assert [each.data for each in splitter.feed(TEXT)] == [b"one\r\n", b"two\n  more", b"\xff\xfe"]
    assert [each.data for each in splitter.finish_record()] == [b"longer than all"]
    assert splitter.held_bytes == 4
    assert [each.data for each in splitter.finish()] == [b"rest"]


def test_a_long_line_goes_in_pieces() -> None:
    found = fed(Splitter(4), b"abcdefghij\nk\n", None)
    assert [(each.data, each.partial) for each in found if each.data] == [
        (b"abcd", True),
        (b"efgh", True),
        (b"ij", False),
        (b"k", False),
    ]
