"""Values that people type and read: times, sizes, bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.options import parse_time_ms
from ottla.cli.output import bytes_field, human_bytes, iso_time, plural, printable

NOW = 1_700_000_000_000


def test_ages_and_moments() -> None:
    assert parse_time_ms("10m", NOW) == NOW - 600_000
    assert parse_time_ms("2d", NOW) == NOW - 172_800_000
    assert parse_time_ms("2026-05-01T12:00:00+00:00", NOW) == 1_777_636_800_000
    assert parse_time_ms("tomorrow", NOW) is None


def test_sizes_and_counts() -> None:
    assert [human_bytes(size) for size in (0, 1023, 1024, 1536, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 TiB",
    ]
    assert [plural(1, "record"), plural(2000, "record"), plural(2, "batch"), plural(2, "entry")] == [
        "1 record",
        "2,000 records",
        "2 batches",
        "2 entries",
    ]


def test_times_that_no_calendar_holds() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(-1) is None
    assert iso_time(2**62) is None


def test_bytes_are_text_or_base64() -> None:
    assert bytes_field("value", None) == {"value": None}
    assert bytes_field("value", "é".encode()) == {"value": "é"}
    assert bytes_field("value", b"\xff") == {"value_base64": "/w=="}


@given(st.binary())
def test_a_record_is_printed_on_one_line_without_control_characters(value: bytes) -> None:
    assert printable(value).isprintable()
