"""The tests that `ottla pipeline new` writes: input with a known answer, on a real node and a real Spark."""

from __future__ import annotations

import pprint
from dataclasses import dataclass, field
from typing import Any, Final

Record = tuple[str | None, Any]
"""Key and value: an object is JSON, a text stands as it is."""


@dataclass(frozen=True)
class Example:
    """Example data of a pipeline: its input, and the output fields to check."""

    given: dict[str, list[Record]] = field(default_factory=dict)
    expected: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """TMP in a value is the test's directory."""


def _at(time: str) -> str:
    return f"2026-11-25T{time}Z"


def _view(user: str, page: str, time: str) -> Record:
    return user, {"user": user, "page": page, "at": _at(time)}


def _metric(value: float, time: str, name: str = "cpu") -> Record:
    return "web-1", {"host": "web-1", "name": name, "value": value, "at": _at(time)}


def _transaction(id: str, kind: str, account: str, amount: int, to: str | None = None) -> Record:
    at = _at(f"09:00:0{id}")
    return account, {"id": id, "kind": kind, "account": account, "to": to, "amount": amount, "at": at}


def _tick(symbol: str, price: float, time: str) -> Record:
    return symbol, {"symbol": symbol, "price": price, "size": 1, "at": _at(time)}


def _order(order: str, time: str) -> Record:
    return order, {"order": order, "customer": "ada", "amount": 12.5, "at": _at(time)}


def _payment(order: str, time: str) -> Record:
    return order, {"payment": f"p{order}", "order": order, "amount": 12.5, "at": _at(time)}


_ROWS: Final[list[Record]] = [(None, {"id": 1, "name": "a"}), (None, {"id": 2, "name": "b"})]

# The last of the input is much later than the rest: it ends what was open.
EXAMPLES: Final = {
    "activity": Example(
        {"page-views": [_view("ada", "/", "09:00:00"), _view("ada", "/product", "09:05:00"),
                        _view("ben", "/", "23:00:00")]},
        {"sessions": [{"user": "ada", "views": 2, "entry": "/", "exit": "/product", "depth": 2}]},
    ),
    "metrics": Example(
        {"metrics": [_metric(0.95, "10:00:00"), _metric(0.97, "10:03:00"), _metric(1, "10:30:00", "other")]},
        {
            "alerts": [{"host": "web-1", "rule": "cpu > 0.9 for 3 minutes", "what": "raised", "value": 0.97}],
            "metrics-rollups": [{"name": "cpu", "count": 1, "max": 0.95}, {"name": "cpu", "count": 1, "max": 0.97}],
        },
    ),
    "logs": Example(
        {"logs": [("web-1", "2026-11-25T09:00:01Z ERROR boom"), ("web-1", "2026-11-25T10:00:00Z INFO later")]},
        {
            "log-errors": [{"host": "web-1", "message": "boom"}],
            "log-counts": [{"host": "web-1", "level": "ERROR", "lines": 1}],
        },
        {"table": "TMP/table"},
    ),
    "ledger": Example(
        {"transactions": [_transaction("1", "deposit", "ada", 100), _transaction("2", "transfer", "ada", 30, "ben"),
                          _transaction("3", "withdraw", "ada", 71)]},
        {
            "ledger-entries": [
                {"account": "ada", "sequence": 1, "amount": 100, "balance": 100},
                {"account": "ada", "sequence": 2, "amount": -30, "balance": 70},
                {"account": "ben", "sequence": 1, "amount": 30, "balance": 30},
            ],
            "ledger-refused": [{"id": "3", "reason": "the balance is 70"}],
        },
    ),
    "ticks": Example(
        {"ticks": [_tick("A", 10, "10:00:05"), _tick("A", 14, "10:00:30"), _tick("B", 1, "10:09:00")]},
        {"candles": [{"symbol": "A", "open": 10.0, "high": 14.0, "low": 10.0, "close": 14.0, "ticks": 2}]},
    ),
    "join": Example(
        {
            "orders": [_order("1", "09:00:00"), _order("2", "09:00:00"), _order("3", "12:00:00")],
            "payments": [_payment("1", "09:30:00"), _payment("9", "12:00:00")],
        },
        {"paid": [{"order": "1", "payment": "p1"}], "unpaid": [{"order": "2"}]},
    ),
    "replay": Example(
        {"input": [(None, {"n": 1}), (None, {"n": 20})]}, {"output": [{"n": 20}]},
        {"filter": "cast(value as string) like '%20%'"},
    ),
    "lake": Example(
        {"events": _ROWS}, {}, {"kind": "parquet", "table": "TMP/table", "schema": "id BIGINT, name STRING"}
    ),
    "postgres": Example({"upserts": _ROWS}, {}, {"into": "ottla_example", "columns": "id BIGINT, name STRING"}),
    "mirror": Example(
        {"orders": _ROWS}, {"orders": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}, {"groups": "none"}
    ),
}  # fmt: skip
"""Keyed by the pipeline that is begun with."""

_HEAD: Final = '''"""The pipeline on a real node and a real Spark: pip install 'ottla[{extra}]' pytest; pytest."""

import json
{imports}from pathlib import Path
{libraries}
from confluent_kafka import Producer

from ottla import arrow
from ottla.pipelines.runner import Options, Run, load
from ottla.testing import Broker

PIPELINE = str(Path(__file__).parent / "{name}.py")
SETTINGS = {settings}
GIVEN = {given}
"""Keys and values by topic."""
EXPECTED = {expected}
"""By topic, of each record the fields that are looked at."""


def feed(broker: Broker) -> None:
    producer = Producer({{"bootstrap.servers": broker.bootstrap}})
    for topic, records in GIVEN.items():
        for key, value in records:
            producer.produce(topic, value if isinstance(value, str) else json.dumps(value), key)
    assert producer.flush(30) == 0


def run(broker: Broker, directory: Path, settings: dict) -> None:
    """Until all that is there is done. A query that fails, as where a worker starts slowly, is started again from its
    checkpoint, as `ottla pipeline run` does."""
    chosen = {{name: value.replace("TMP", str(directory)) for name, value in settings.items()}}
    options = Options(broker.bootstrap, directory=directory, once=True, master="local[2]")
    status = Run(load(PIPELINE), options, chosen).run()
    assert status.state == "done", status.error


def check(broker: Broker) -> None:
    for topic, expected in EXPECTED.items():
        values = arrow.read(topic, broker.bootstrap, columns=["value"]).read_all().column("value").to_pylist()
        found = [{{name: json.loads(value)[name] for name in expected[0]}} for value in values]
        assert sorted(map(str, found)) == sorted(map(str, expected)), topic


'''
_STREAM: Final = """def test_what_comes_of_it(tmp_path: Path) -> None:
    with Broker() as broker:
        feed(broker)
        run(broker, tmp_path, SETTINGS)
        check(broker)
"""
_LAKE: Final = """def test_what_is_in_the_table(tmp_path: Path) -> None:
    with Broker() as broker:
        feed(broker)
        run(broker, tmp_path, SETTINGS)
    table = dataset.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table(columns=["id", "name"])
    assert sorted(table.to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
"""
_POSTGRES: Final = '''DATABASE = os.environ.get("TEST_DATABASE")
"""postgresql://USER@HOST:PORT/NAME, of a database for tests."""


@pytest.mark.skipif(DATABASE is None, reason="set TEST_DATABASE to a database for tests")
def test_what_is_in_the_table(tmp_path: Path) -> None:
    with psycopg.connect(DATABASE, autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS ottla_example")
        with Broker() as broker:
            feed(broker)
            run(broker, tmp_path, {**SETTINGS, "database": DATABASE})
        rows = database.execute("SELECT id, name FROM ottla_example ORDER BY id").fetchall()
        assert rows == [(1, "a"), (2, "b")]
'''
_MIRROR: Final = """def test_what_is_at_the_destination(tmp_path: Path) -> None:
    with Broker() as source, Broker() as destination:
        feed(source)
        run(destination, tmp_path, {**SETTINGS, "from": source.bootstrap})
        check(destination)
"""
_BODIES: Final = {"lake": _LAKE, "postgres": _POSTGRES, "mirror": _MIRROR}
_EXTRAS: Final = {"lake": "lake", "postgres": "postgres"}
_LIBRARIES: Final = {"lake": "\nfrom pyarrow import dataset\n", "postgres": "\nimport psycopg\nimport pytest\n"}


def test_of(name: str, origin: str) -> str:
    """The test of a pipeline `name` that began as `origin`; of one that does not come with Ottla it only runs it."""
    example = EXAMPLES.get(origin, Example())
    head = _HEAD.format(
        name=name,
        extra=_EXTRAS.get(origin, "pipelines"),
        imports="import os\n" if origin == "postgres" else "",
        libraries=_LIBRARIES.get(origin, ""),
        settings=_literal(example.settings),
        given=_literal(example.given),
        expected=_literal(example.expected),
    )
    return head + _BODIES.get(origin, _STREAM)


def _literal(value: Any) -> str:
    return pprint.pformat(value, width=110, sort_dicts=False)
