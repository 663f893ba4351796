"""`ottla sql` beside a broker: what it answers, what it reads of the topics for that, and what it says of mistakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.cli.main import main
from ottla.testing import Broker

pytest.importorskip("duckdb")

FIRST_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC, of the first order; the others are a second apart."""
BIG = 300_000

Query = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "people": 1, "my-topic": 1, "shop.orders": 1, "big": 1, "empty": 1}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "queue.buffering.max.messages": 2 * BIG})
        for at in range(20):
            value = json.dumps({"name": f"n{at % 2}", "amount": at, "at": {"city": "Ottla"}}).encode()
            producer.produce(
                "orders",
                None if at == 19 else value,
                None if at == 18 else b"k%d" % (at % 4),
                partition=at % 2,
                timestamp=FIRST_MS + 1000 * at,
                headers=[("h", b"%d" % at), ("n", None)] if at < 2 else None,
            )
        for name in ("n0", "n1"):
            producer.produce("people", name.upper().encode(), name.encode())
        producer.produce("my-topic", b"\xff")
        producer.produce("my-topic", b'{"a":1}')
        producer.produce("shop.orders", b"dotted")
        for at in range(BIG):
            producer.produce("big", b"%d" % at)
        assert producer.flush(60) == 0
        yield running


@pytest.fixture
def run(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def ask(statement: str, *options: str) -> tuple[int, str, str]:
        code = main(["sql", statement, "--bootstrap", broker.bootstrap, *options])
        return code, *capsys.readouterr()

    return ask


@pytest.fixture
def query(run: Callable[..., tuple[int, str, str]]) -> Query:
    def ask(statement: str, *options: str) -> list[dict[str, Any]]:
        code, out, complaint = run(statement, *options, "--json")
        assert (complaint, code) == ("", 0)
        return [json.loads(line) for line in out.splitlines()]

    return ask


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[int, tuple[int, int]], list[int]]]:
    """For each reading of a topic: the columns, from where to where by partition, and the rows of each batch."""
    found: list[Any] = []
    real = arrow.read

    def read(topic: str, bootstrap: str, **options: Any) -> Any:
        rows: list[int] = []
        spans = {number: (first, options["end"][number]) for number, first in options["start"].items()}
        found.append((options["columns"], spans, rows))
        reader = real(topic, bootstrap, **options)

        def batches() -> Iterator[Any]:
            for batch in reader:
                rows.append(batch.num_rows)
                yield batch

        return type(reader).from_batches(reader.schema, batches())

    monkeypatch.setattr("ottla.sql.topics.arrow.read", read)
    return found


def test_aggregates(query: Query) -> None:
    statement = 'select key, count(*) n, count(value) v, max("offset") last from orders group by key order by n, key'
    assert query(statement) == [
        {"key": None, "n": 1, "v": 1, "last": 9},
        {"key": "k2", "n": 4, "v": 4, "last": 7},
        {"key": "k0", "n": 5, "v": 5, "last": 8},
        {"key": "k1", "n": 5, "v": 5, "last": 8},
        {"key": "k3", "n": 5, "v": 4, "last": 9},
    ]
    assert query("select count(*) n, sum(octet_length(value)) s from big") == [{"n": BIG, "s": 1_688_890}]
    assert query("select count(*) n from empty") == [{"n": 0}]


def test_two_topics_are_joined(query: Query) -> None:
    statement = """
        select decode(p.value) person, count(*) n from orders o join people p on o.value.name = decode(p.key)
        group by all order by all
    """
    # Both topics are typed; people's values are no JSON, but columns that are not used are not read.
    found = query(statement.replace("decode(p.value)", "decode(p.key)"), "--value-format", "json")
    assert found == [{"person": "n0", "n": 10}, {"person": "n1", "n": 9}]
    assert len(query('select * from people a, "my-topic" b')) == 4


def test_a_topic_is_joined_with_itself(query: Query) -> None:
    statement = """
        select a."offset" x, b."offset" y from orders a join orders b using (key, partition)
        where a."offset" < b."offset" and partition = 0 and key = 'k2' order by all limit 2
    """
    assert query(statement) == [{"x": 1, "y": 3}, {"x": 1, "y": 5}]
    assert query("with orders2 as (from orders) select count(*) n from orders2, people, orders")[0]["n"] == 800


def test_a_limit_ends_the_reading(query: Query, fetched: list[Any]) -> None:
    assert query("select value from big limit 2") == [{"value": "0"}, {"value": "1"}]
    ((columns, _, rows),) = fetched
    assert columns == ["value"]
    assert 0 < sum(rows) < BIG


@pytest.mark.parametrize(
    ("condition", "spans", "count"),
    [
        ("partition = 1", {1: (0, 10)}, 10),
        ("partition > 1", None, 0),
        ('"offset" >= 7', {0: (7, 10), 1: (7, 10)}, 6),
        ('"offset" between 2 and 3 and partition in (0, 7)', {0: (2, 4)}, 2),
        ('"offset" in (2, 5)', {0: (2, 6), 1: (2, 6)}, 4),
        ("timestamp >= '2023-11-14 22:13:36'", {0: (8, 10), 1: (8, 10)}, 4),
        ("timestamp > '2024-01-01'", None, 0),
        ("timestamp < '2023-11-14 22:13:21'", {0: (0, 10), 1: (0, 10)}, 1),
        ("timestamp > '2024-01-01' or \"offset\" = 3", {0: (0, 10), 1: (0, 10)}, 2),
        ("key is null", {0: (0, 10), 1: (0, 10)}, 1),
        ("value is null and not (partition = 0)", {1: (0, 10)}, 1),
    ],
)
def test_what_a_filter_excludes_is_not_fetched(
    query: Query, fetched: list[Any], condition: str, spans: dict[int, tuple[int, int]] | None, count: int
) -> None:
    assert query(f"select count(*) n from orders where {condition}") == [{"n": count}]
    assert [each[1] for each in fetched] == ([] if spans is None else [spans])


def test_nulls_headers_and_bytes_that_are_no_text(query: Query, run: Callable[..., tuple[int, str, str]]) -> None:
    assert query("select key, headers from orders where partition = 0 limit 2") == [
        {"key": "k0", "headers": [{"key": "h", "value": "0"}, {"key": "n", "value": None}]},
        {"key": "k2", "headers": None},
    ]
    assert query("select count(headers) n from orders where value is not null") == [{"n": 2}]
    assert query('select value from "my-topic" order by "offset" limit 1') == [{"value_base64": "/w=="}]
    code, out, _ = run('select key, value from "my-topic" order by "offset"')
    assert (code, out.splitlines()) == (0, ["key   value", "null  \\xff", 'null  {"a":1}'])


def test_fields_of_json_are_columns(query: Query) -> None:
    statement = (
        "select value.name, sum(value.amount) total, any_value(value.at.city) c from orders group by 1 order by 1"
    )
    wanted = [
        {"name": "n0", "total": 90, "c": "Ottla"},
        {"name": "n1", "total": 81, "c": "Ottla"},
        {"name": None, "total": None, "c": None},
    ]
    assert query(statement, "--value-format", "json") == wanted
    schema = "name STRING, amount BIGINT, at STRUCT<city: STRING>"
    assert query(statement, "--value-format", "json", "--value-schema", schema) == wanted
    assert query("select value from orders where value.amount = 1", "--value-format", "json") == [
        {"value": {"name": "n1", "amount": 1, "at": {"city": "Ottla"}}}
    ]
    assert query("select key from orders where key like '%1' limit 1", "--key-format", "string") == [{"key": "k1"}]


def test_values_that_are_not_what_they_should_be(query: Query, run: Callable[..., tuple[int, str, str]]) -> None:
    statement = 'select * from "my-topic"'
    code, _, complaint = run(statement, "--value-format", "json")
    assert code == 1
    assert complaint.startswith("ottla: topic 'my-topic': my-topic-0 at offset 0: the value is not JSON")
    found = query('select value.a a from "my-topic"', "--value-format", "json", "--bad-records", "drop")
    assert found == [{"a": 1}]
    statement = 'select _corrupt_record c, "offset" from "my-topic" order by 2'
    found = query(statement, "--value-format", "json", "--bad-records", "column")
    assert found == [{"c_base64": "/w==", "offset": 0}, {"c": None, "offset": 1}]


def test_a_part_of_every_topic(query: Query) -> None:
    statement = 'select min("offset") a, max("offset") b, count(*) n from orders'
    assert query(statement, "--from", "-3") == [{"a": 7, "b": 9, "n": 6}]
    assert query(statement, "--from", "2", "--to", "5", "-p", "1") == [{"a": 2, "b": 4, "n": 3}]
    assert query(statement, "--from", "2023-11-14T22:13:38+00:00") == [{"a": 9, "b": 9, "n": 2}]


def test_tables_and_csv(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    statement = 'select decode(key) k, timestamp, partition from orders where "offset" = 9 order by partition'
    code, out, _ = run(statement)
    assert (code, out.splitlines()) == (
        0,
        [
            "k     timestamp                partition",
            "null  2023-11-14 22:13:38.000          0",
            "k3    2023-11-14 22:13:39.000          1",
        ],
    )
    code, out, _ = run(statement, "--format", "csv")
    assert (code, out) == (
        0,
        "k,timestamp,partition\n,2023-11-14T22:13:38.000Z,0\nk3,2023-11-14T22:13:39.000Z,1\n",
    )
    assert run("select 1 as a where false")[1] == "a\n"
    assert "PYTHON_ARROW_SCAN" in run("explain select key from orders")[1]
    monkeypatch.setattr("ottla.cli.sql.output.TABLE_ROWS", 2)
    assert run("select unnest([1, 2, 3]) a")[1].split() == ["a", "1", "2", "a", "3"]


def test_what_duckdb_has_becomes_json(query: Query) -> None:
    statement = """
        select 1::hugeint big, 1.5::decimal(4,2) d, 'nan'::double nan, [1, null] l, map {'a': 1} m,
               {'b': '\\xff'::blob} s, date '2020-01-02' d8, timestamp '2020-01-02 03:04:05.000006' t,
               true y, interval 2 days i, 'x' same, 'y' same, 253402300800::bigint as n,
               make_timestamp(253402300800000000) far
    """
    assert query(statement) == [
        {
            "big": 1,
            "d": 1.5,
            "nan": "NaN",
            "l": [1, None],
            "m": {"a": 1},
            "s": {"b_base64": "/w=="},
            "d8": "2020-01-02",
            "t": "2020-01-02T03:04:05.000006",
            "y": True,
            "i": "0 months 2 days 0 seconds",
            "same": "x",
            "same_1": "y",
            "n": 253402300800,
            "far": "10000-01-01 00:00:00.000000",
        }
    ]


@pytest.mark.parametrize(
    ("statement", "options", "code", "sentence"),
    [
        ("select * from nope", (), 1, "there is no topic 'nope'\n  see the topics with: ottla topic list -b "),
        ("selec 1", (), 2, 'Parser Error: syntax error at or near "selec"\n  LINE 1: selec 1\n          ^^^^^\n'),
        ("select * from my-topic", (), 2, 'put double quotes around the name: from "my-topic"\n'),
        ("select * from shop.orders", (), 2, 'put double quotes around the name: from "shop.orders"\n'),
        (
            "select value.x from orders",
            (),
            2,
            "keys and values are bytes unless decoded: see --value-format and --key-format\n",
        ),
        ("select value.x from orders", ("--value-format", "json"), 2, "with --value-schema or --key-schema\n"),
        ("select error('own words')", (), 1, "own words"),
        (
            "select 1",
            ("--value-format", "protobuf", "--value-schema", "x"),
            2,
            "--value-schema is only for avro and json",
        ),
        ("select 1", ("--value-format", "json", "--value-schema", "a ="), 2, "cannot be parsed in the schema"),
        ("select 1", ("--value-schema", "a INT"), 2, "--value-schema needs --value-format json or avro, not binary"),
        ("select 1 from orders", ("-p", "2"), 2, "topic 'orders' has no partition 2; it has 0 to 1"),
        ("select 1 from orders", ("--from", "when"), 2, "--from must be beginning, end, an offset"),
    ],
)
def test_mistakes_are_explained(
    run: Callable[..., tuple[int, str, str]], statement: str, options: tuple[str, ...], code: int, sentence: str
) -> None:
    found, out, complaint = run(statement, *options)
    assert (found, out) == (code, "")
    assert complaint.startswith("ottla: ")
    assert sentence in complaint


def test_variables_of_python_are_no_tables(run: Callable[..., tuple[int, str, str]]) -> None:
    assert "there is no topic 'batches'" in run("select * from batches")[2]


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select 1", "--bootstrap", "127.0.0.1:1"]) == 3
    assert "no broker answers" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["duckdb", "pyarrow"])
def test_without_its_extra(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    for name in ("ottla.sql.topics", "ottla.cli.sql.output"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    code, _, complaint = run("select 1")
    assert code == 1
    assert "pip install 'ottla[sql]'" in complaint
