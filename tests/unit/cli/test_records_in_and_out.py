"""How lines become records, and where reading starts and stops."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import places, produce
from ottla.cli.exits import CommandFailed
from ottla.cli.output import bytes_field
from ottla.cli.produce import Outgoing


def test_lines_with_keys_and_tombstones() -> None:
    records = produce._plain([b"a=1", b"b=NULL", b"c==x"], Outgoing(None, headers=(("h", b"v"),)), b"=", b"NULL")
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"a", b"1", (("h", b"v"),)),
        (b"b", None, (("h", b"v"),)),
        (b"c", b"=x", (("h", b"v"),)),
    ]


def test_a_line_without_a_separator_is_told() -> None:
    with pytest.raises(CommandFailed, match="record 2 has no '='"):
        list(produce._plain([b"a=1", b"b"], Outgoing(None), b"=", None))


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b'{"value_base64": "?"}', b'{"headers": [{}]}'])
def test_what_is_no_json_record_is_told(line: bytes) -> None:
    with pytest.raises(CommandFailed, match="not a record"):
        produce._from_json(line, Outgoing(None))


nullable = st.none() | st.binary(max_size=20)


@given(nullable, nullable, st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3))
def test_consume_json_is_what_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = {
        "partition": 3,
        "timestamp": 17,
        **bytes_field("key", key),
        **bytes_field("value", value),
        "headers": [{"name": name, **bytes_field("value", header)} for name, header in headers],
    }
    record = produce._from_json(json.dumps(line).encode(), Outgoing(None))
    assert record == Outgoing(value, key, tuple(headers), 3, 17)


@pytest.mark.parametrize(
    ("text", "offset"), [("beginning", 10), ("end", 90), ("50", 50), ("-5", 85), ("-0", 90), ("latest", 90)]
)
def test_places(text: str, offset: int) -> None:
    place = places.place_of(text)
    assert place is not None and place(10, 90) == offset


def test_a_time_is_no_place() -> None:
    assert places.place_of("10m") is None
    assert places.place_of("2026-05-01") is None


def _message(partition: int, offset: int, *, end: bool = False) -> Any:
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: object() if end else None)


def test_reading_stops_at_each_partitions_bound() -> None:
    bounds = places.Bounds({0: 3, 1: 2})
    assert bounds.position(_message(0, 2)) and not bounds.reached()
    assert not bounds.position(_message(0, 3)), "a record past the bound is not shown"
    assert bounds.position(_message(1, 0)) and not bounds.reached()
    # Offset 1 is a transaction marker: no record comes, only the end of the partition.
    bounds.position(_message(1, 2, end=True))
    assert bounds.reached()


def test_following_never_ends_by_itself() -> None:
    bounds = places.Bounds(None)
    bounds.position(_message(0, 5, end=True))
    assert not bounds.reached()


def test_deliveries_are_counted_by_partition() -> None:
    delivered = produce.Delivered()
    for offset in (4, 5, 6):
        delivered.report(None, _message(1, offset))
    delivered.report("boom", _message(0, 0))
    assert delivered.partitions == {1: [3, 4, 6]}
    assert (delivered.failed, delivered.first_error) == (1, "boom")
