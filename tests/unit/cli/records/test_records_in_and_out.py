"""How lines become records, and where reading starts and stops."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.options import parse_pairs, unescape
from ottla.cli.records import positions, produce
from ottla.cli.records.reader import Reader
from ottla.cli.records.record import Outgoing
from ottla.cli.records.records_in import Line, from_json, lines_of, parsed_lines, text_lines
from ottla.protocol.fetch import FetchedPartition
from ottla.protocol.records.record_batch import build_batch


def lines(*data: bytes) -> list[Line]:
    return [Line("line", number, "", each) for number, each in enumerate(data, 1)]


def test_lines_with_keys_and_tombstones() -> None:
    common = Outgoing(None, headers=(("h", b"v"),))
    records = [each for _, each in text_lines(lines(b"a=1", b"b=NULL", b"c==x", b"d="), common, b"=", b"NULL")]
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"a", b"1", (("h", b"v"),)),
        (b"b", None, (("h", b"v"),)),
        (b"c", b"=x", (("h", b"v"),)),
        (b"d", b"", (("h", b"v"),)),
    ]


def test_a_line_without_a_separator_is_refused() -> None:
    with pytest.raises(CommandFailed, match="line 2 has no '='"):
        list(text_lines(lines(b"a=1", b"b"), Outgoing(None), b"=", None))


def test_lines_of_files_end_as_on_unix_or_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"one\r\n\r\ntwo\n\nthr\ree")
    (tmp_path / "b").write_bytes(b"")
    found = list(lines_of([], [tmp_path / "a", tmp_path / "b"]))
    assert [each.data for each in found] == [b"one", b"", b"two", b"", b"thr\ree"]
    assert str(found[2]) == f"line 3 of {tmp_path / 'a'}"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x\ny"), isatty=lambda: False))
    assert [str(each) for each in lines_of([], None)] == ["line 1", "line 2"]
    assert [str(each) for each in lines_of(["v"], None)] == ["value 1"]
    with pytest.raises(CommandFailed, match=r"cannot read .*none: No such file"):
        list(lines_of([], [tmp_path / "none"]))


def test_a_line_that_no_broker_would_take_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.records.records_in.RECORD_BYTES_MAX", 4)
    (tmp_path / "a").write_bytes(b"abc\nabcdefghij\n")
    with pytest.raises(CommandFailed, match=r"line 2 of .*a is longer"):
        list(lines_of([], [tmp_path / "a"]))


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{",
        b'{"value_base64": "?"}',
        b'{"headers": [{}]}',
        b'{"headers": [{"name": 1}]}',
        b'{"headers": 5}',
        b'{"partition": "0"}',
        b'{"timestamp": true}',
        b"\xff",
        b"5",
    ],
)
def test_what_is_no_json_record_is_refused(line: bytes) -> None:
    with pytest.raises(CommandFailed, match="line 1 is not a record"):
        list(parsed_lines(lines(line), Outgoing(None), "json"))


def test_options_add_what_a_json_line_leaves_out() -> None:
    common = Outgoing(None, b"k", (("h", b"v"),), 7)
    given = lines(b"", b'{"value": {"a": 1}}', b" ", b'{"key": "x", "partition": 1, "headers": [{"name": "g"}]}')
    assert [(str(line), each) for line, each in parsed_lines(given, common, "json")] == [
        ("line 2", Outgoing(b'{"a": 1}', b"k", (("h", b"v"),), 7)),
        ("line 4", Outgoing(None, b"x", (("g", None), ("h", b"v")), 7)),
    ]
    assert from_json(b'{"timestamp": 17}').timestamp_ms == 17


def test_pairs_may_repeat_and_separators_be_escaped() -> None:
    assert parse_pairs(["a=1", "a=2=3", " b =x"], "--header") == [("a", "1"), ("a", "2=3"), ("b", "x")]
    assert unescape(r"\t|\\t\0") == b"\t|\\t\0"


@pytest.mark.parametrize(
    ("text", "offset"), [("beginning", 10), ("end", 90), ("50", 50), ("-5", 85), ("-0", 90), ("latest", 90)]
)
def test_positions(text: str, offset: int) -> None:
    place = positions.position_of(text)
    assert place is not None and place(10, 90) == offset


def test_a_time_is_no_place() -> None:
    assert positions.position_of("10m") is None
    assert positions.position_of("2026-05-01") is None


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr("ottla.cli.records.reader.probe", lambda bootstrap: None)
    monkeypatch.setattr(Reader, "_look_up", lambda self: [0])
    made = Reader("nowhere:1", "t")
    made._positions, made._stops = {0: 0}, {0: 100}
    return made


def batch(offset: int, *values: bytes, producer: int = -1, marker: int | None = None) -> bytes:
    """At `offset`; with a producer in a transaction; with a marker (0 abort, 1 commit) that alone."""
    records = [(5, None, value, ()) for value in values] or [(5, b"\0\0\0%c" % (marker or 0), b"\0" * 6, ())]
    epoch = 0 if producer >= 0 else -1
    ids = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": -1}
    in_transaction = producer >= 0
    return bytes(
        build_batch(records, base_offset=offset, transactional=in_transaction, control=marker is not None, **ids)
    )


def values_of(
    reader: Reader, *batches: bytes, aborted: Any = None, stable: int = 100
) -> list[tuple[int, bytes | None]]:
    partition = FetchedPartition(
        0, high_watermark=100, last_stable_offset=stable, aborted_transactions=aborted, records=b"".join(batches)
    )
    return [(each.offset, each.value) for part in reader._advance(partition)() for each in part]


def test_aborted_transactions_are_left_out_and_committed_ones_are_not(reader: Reader) -> None:
    batches = (
        batch(0, b"plain"),
        batch(1, b"lost", b"lost", producer=7),
        batch(3, b"kept", producer=8),
        batch(4, b"", producer=7, marker=None),
        batch(5, producer=7, marker=0),
        batch(6, b"again", producer=7),
        batch(7, producer=7, marker=1),
        batch(8, producer=8, marker=1),
    )
    found = values_of(reader, *batches, aborted=[(7, 1)])
    assert found == [(0, b"plain"), (3, b"kept"), (6, b"again")]
    assert reader._positions == {0: 9}


def test_only_what_was_asked_for_of_a_batch(reader: Reader) -> None:
    reader._positions, reader._stops = {0: 11}, {0: 13}
    assert values_of(reader, batch(10, b"a", b"b", b"c", b"d")) == [(11, b"b"), (12, b"c")]
    reader._drop_finished()
    assert reader._positions == {}


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch(reader: Reader) -> None:
    assert values_of(reader, batch(0, b"a"), batch(1, b"b" * 50)[:-9]) == [(0, b"a")]
    assert reader._positions == {0: 1}


def test_offsets_at_the_end_that_hold_no_record_are_not_waited_for(reader: Reader) -> None:
    assert [values_of(reader) for _ in range(2)] == [[], []]
    assert reader._positions == {0: 100}
    reader._positions = {0: 100}
    assert values_of(reader) == []
    assert reader._positions == {0: 100}


def test_a_batch_that_was_damaged_on_its_way_is_reported(reader: Reader) -> None:
    with pytest.raises(CommandFailed, match="offset 3: the checksum"):
        values_of(reader, batch(3, b"abc")[:-1] + b"x")


def _acknowledged(partition: int, offset: int) -> Any:
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset)


def test_deliveries_are_counted_by_partition_and_the_first_refusal_is_kept() -> None:
    delivered = produce.Delivered()
    for offset in (4, 5, 6):
        delivered.report(lines(b"x")[0], None, _acknowledged(1, offset))
    for number in (9, 7, 8):
        delivered.report(Line("line", number, "", b""), f"boom {number}", None)
    assert delivered.partitions == {1: [3, 4, 6]}
    assert (delivered.failed, delivered.first_error, str(delivered.first_line)) == (3, "boom 7", "line 7")
