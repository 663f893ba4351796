"""What masks leave of records for queries: each kind of mask on each kind of key, value and header, before any of it is
typed. Queries themselves are in `test_queries.py`."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

from ottla import arrow  # noqa: E402
from ottla.client.security import PLAINTEXT  # noqa: E402
from ottla.console.masks import HIDDEN, TopicMask, parse_masks  # noqa: E402
from ottla.sql.masked import Masked  # noqa: E402
from ottla.sql.topics import Slice, TopicTable  # noqa: E402

SECRET = "4111222233334444"
PLACE = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 0, "timestampType": 0}
WHOLE = {"replace": HIDDEN, "last4": f"{HIDDEN}4444"}


def mask(**rule: Any) -> TopicMask:
    """As it reaches the process of a query."""
    made = parse_masks({"mask": [{"topics": ["t"], **rule}]}, "masks").of("t", "ann")
    found: TopicMask = pickle.loads(pickle.dumps(made))
    assert found == made
    return found


def batch(key: bytes | None, value: bytes | None, headers: list[dict[str, Any]] | None = None) -> Any:
    fields = arrow.schema(headers=True)
    return pa.RecordBatch.from_pylist([{**PLACE, "key": key, "value": value, "headers": headers}], schema=fields)


def row(found: Any) -> dict[str, Any]:
    (only,) = found.to_pylist()
    return dict(only)


CARD = {"number": SECRET, "name": "Ann"}
VALUES: dict[str, Any] = {
    "of an object": ({"card": CARD, "n": 1}, {"card": {"number": HIDDEN, "name": "Ann"}, "n": 1}),
    "in a list": ({"card": [CARD, CARD]}, {"card": [{"number": HIDDEN, "name": "Ann"}] * 2}),
    "in lists of a list": ([{"card": [[CARD]]}], [{"card": [[{"number": HIDDEN, "name": "Ann"}]]}]),
    "in capitals": ({"CARD": {"Number": SECRET}}, {"CARD": {"Number": HIDDEN}}),
    "an object itself": ({"card": {"number": {"digits": SECRET}}}, {"card": {"number": HIDDEN}}),
    "a number": ({"card": {"number": int(SECRET)}}, {"card": {"number": HIDDEN}}),
    "null": ({"card": {"number": None}}, {"card": {"number": HIDDEN}}),
    "elsewhere": ({"number": "7", "other": {"number": "8"}}, {"number": "7", "other": {"number": "8"}}),
}


@pytest.mark.parametrize("which", VALUES)
def test_fields_wherever_they_are(which: str) -> None:
    given, left = VALUES[which]
    data = json.dumps(given).encode()
    found = row(Masked(mask(fields=["card.number"])).batch(batch(data, data)))
    assert json.loads(found["key"]) == json.loads(found["value"]) == left


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"plain 4111222233334444", HIDDEN),
        (b"4111222233334444", HIDDEN),
        (b'"4111222233334444"', HIDDEN),
        (b"\xff\xfe4\0", HIDDEN),
        (b"[" * 100_000, HIDDEN),
        (b'{"card": {"number": 4111', HIDDEN),
        (b"", ""),
        (b'{"card":{"number":"4111"},"card":2}', '{"card": 2}'),  # a reader of its own may take the first one
        (b'{"a": "\\ud800"}', '{"a": "?"}'),
        ('{"a": "é"}'.encode("utf-16"), '{"a": "é"}'),
    ],
)
def test_what_is_no_json_is_hidden_whole(data: bytes, left: str) -> None:
    found = row(Masked(mask(fields=["card.number"])).batch(batch(data, data)))
    assert found["key"] == found["value"] == left.encode()


@pytest.mark.parametrize("how", ["replace", "last4", "hash"])
def test_keys_values_and_headers_that_are_hidden_whole(how: str) -> None:
    hide = mask(key=True, value=True, headers=["auth*"], how=how)
    headers = [{"key": name, "value": SECRET.encode()} for name in ("Authorization", "trace")]
    found = row(Masked(hide).batch(batch(SECRET.encode(), SECRET.encode(), [*headers, {"key": "auth", "value": None}])))
    hidden, trace, none = found["headers"]
    assert found["key"] == found["value"] == hidden["value"]
    assert found["key"].decode() == WHOLE.get(how, found["key"].decode())
    assert SECRET.encode() not in found["key"]
    assert (trace["value"], none["value"]) == (SECRET.encode(), HIDDEN.encode())
    # That there is none is hidden too.
    assert row(Masked(hide).batch(batch(None, None)))["key"] == HIDDEN.encode()
    assert row(Masked(hide).batch(batch(None, None)))["headers"] is None


def test_what_is_not_hidden_stays_as_it_is() -> None:
    given = batch(b"\xff", b'{"a":  1}', [{"key": "trace", "value": b"x"}])
    assert Masked(mask(headers=["auth"])).batch(given).equals(given)
    found = row(Masked(mask(key=True)).batch(given))
    assert (found["key"], found["value"], found["offset"]) == (HIDDEN.encode(), b'{"a":  1}', 1)


def test_a_hash_is_that_of_the_pages() -> None:
    hide = mask(fields=["card.number"], how="hash")
    value = json.dumps({"card": CARD}).encode()
    found = json.loads(row(Masked(hide).batch(batch(None, value)))["value"])
    assert found == hide.masked({"card": CARD})


def test_what_a_registry_decodes_is_json() -> None:
    def decode(data: bytes) -> str:
        if data[5:] == b"bad":
            raise ValueError("4111 is no schema")
        return json.dumps({"card": CARD})

    masked = Masked(mask(fields=["card.number"]), decode)
    value = row(masked.batch(batch(None, b"\0\0\0\0\1x")))["value"]
    assert json.loads(value) == {"card": {"number": HIDDEN, "name": "Ann"}}
    assert row(masked.batch(batch(None, b"\0\0\0\0\1bad")))["value"] == HIDDEN.encode()
    assert masked.options({"key.format": "binary", "value.format": "avro"}) == {
        "key.format": "binary",
        "value.format": "json",
    }
    whole = Masked(mask(value=True), decode)
    assert whole.options({"key.format": "avro", "value.format": "protobuf"}) == {
        "key.format": "avro",
        "value.format": "string",
    }


def table(whole: Any, hide: Masked, form: str, monkeypatch: pytest.MonkeyPatch) -> TopicTable:
    """A table on records that are not read from a broker."""

    class Reading:
        def __init__(self, columns: list[str]) -> None:
            self.columns = columns

        def __enter__(self) -> Any:
            return iter([whole.select(self.columns)])

        def __exit__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(arrow, "read", lambda *_, columns, **__: Reading(columns))
    records = Slice("", "t", {0: (0, 10)}, lambda numbers, at: {}, False, PLAINTEXT, hide=hide.batch)
    formats = {"key.format": "string", "value.format": form, "bad.records": "column"}
    return TopicTable(records, hide.options(formats))


def answered(found: TopicTable, statement: str) -> tuple[str, list[tuple[Any, ...]]]:
    """The answer whole, with the names and types of its columns, and its rows."""
    with duckdb.connect(":memory:") as database:
        database.register("cards", found)
        relation = database.sql(statement)
        rows = relation.fetchall()
        return f"{relation.columns} {relation.types} {rows}", rows


@pytest.mark.parametrize("form", ["json", "string", "binary"])
def test_nothing_of_it_is_in_any_column_of_any_format(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the inference of fields, of which mixed ones become texts of JSON, and with records that cannot be read."""
    values = [
        {"card": CARD, "mixed": 1},
        {"card": CARD, "mixed": {"card": CARD, "at": [CARD]}},
        {"card": "x", "mixed": [CARD]},
    ]
    texts = [json.dumps(each).encode() for each in values] + [SECRET.encode(), b"{" + SECRET.encode(), b"\xff" * 3]
    whole = pa.concat_batches([batch(each, each) for each in texts])
    said, rows = answered(table(whole, Masked(mask(fields=["number"])), form, monkeypatch), "from cards")
    assert len(rows) == len(texts) and "Ann" in said
    assert SECRET not in said and SECRET[-4:] not in said


STATEMENTS: dict[str, list[tuple[Any, ...]] | None] = {
    "from cards": None,
    f"select count(*) from cards where value.card.number = '{SECRET}' or key = '{SECRET}'": [(0,)],
    "select count(*) from cards where value.card.number like '4%'": [(0,)],
    "select value.card.number, count(*) from cards group by 1": [(HIDDEN, 3)],
    "select min(value.card.number), max(key), any_value(value::varchar), string_agg(key) from cards": None,
    "select value.card.name, value.cards[1].number from cards where value.card.id = 1": [("n1", HIDDEN)],
    "select unnest(value.cards).number from cards limit 1": [(HIDDEN,)],
    "select distinct decode(headers[1].value), decode(headers[2].value) from cards": [(HIDDEN, "x")],
    "select count(*) from cards a join cards b on a.key = b.value.card.number": [(9,)],
    "select to_json(cards)::varchar, length(key) from cards": None,
    "describe cards": None,
    "summarize cards": None,
    "explain analyze select * from cards where key > '4'": None,
    "pivot (select key, value.n n from cards) on key using count(n)": None,
}
"""Statements of somebody who knows where it would be, and what they answer where that is one thing."""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_query_reaches_what_a_mask_hides(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In results, filters, groups, aggregates, joins and descriptions."""
    made = []
    for at in range(3):
        card = {"number": SECRET, "name": f"n{at}", "id": at}
        headers = [{"key": "auth", "value": SECRET.encode()}, {"key": "trace", "value": b"x"}]
        value = json.dumps({"card": card, "cards": [card], "n": at}).encode()
        made.append(batch(SECRET.encode(), value, headers))
    hide = Masked(mask(fields=["card.number", "cards.number"], headers=["auth"], key=True))
    found = table(pa.concat_batches(made), hide, "json", monkeypatch)
    said, rows = answered(found, statement)
    assert rows
    assert STATEMENTS[statement] in (None, rows)
    assert SECRET not in said and SECRET[-4:] not in said
