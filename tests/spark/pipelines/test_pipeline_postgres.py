"""A real PostgreSQL: rows into topics, records into a table, each once, while transactions are late and servers die."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.pipelines.runner import Options, Run, load
from tests.spark.pipelines.pipelines import names, run_once

pytest.importorskip("psycopg", reason="PostgreSQL is not set up: no psycopg here")
from ottla.pipelines.postgres_upserts import Upserts

if TYPE_CHECKING:
    from peers.postgres import Postgres

PATIENCE_S = 60.0
TAGS = ["a", None, '"']
COLUMNS = "id BIGINT, name STRING, price DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, more STRUCT<a: INT>"


def versions(bootstrap: str, topic: str) -> Counter[tuple[str, str | None]]:
    """Keys and values of the committed records of a topic, and how often there is each."""
    found = arrow.read(topic, bootstrap, columns=["key", "value"]).read_all().to_pydict()
    texts = (None if value is None else value.decode() for value in found["value"])
    return Counter(zip((key.decode() for key in found["key"]), texts, strict=True))


@pytest.mark.parametrize("changed", ["", "changed_in", "changed_at"])
def test_each_version_of_a_row_comes_once(
    spark: Any, bootstrap: str, tmp_path: Path, postgres: Postgres, changed: str
) -> None:
    table = f"people_{changed}"
    postgres.query(
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, name text, gone boolean,"
        " changed_in xid8 DEFAULT pg_current_xact_id(), changed_at timestamptz DEFAULT now())"
    )
    mark = "changed_in = DEFAULT, changed_at = DEFAULT"
    postgres.query(f"INSERT INTO {table} SELECT i, 'name ' || i FROM generate_series(1, 100) AS i")
    settings = {"database": postgres.url, "tables": table, "deleted": "gone", "changed": changed}
    seen = Counter[tuple[str, str | None]]()

    def look() -> list[tuple[str, Any]]:
        """What has come since the last look, sorted, without the columns that the table is watched by."""
        run_once(spark, "postgres", bootstrap, tmp_path, settings)
        new = versions(bootstrap, f"postgres.{table}") - seen
        seen.update(new)
        assert max(new.values(), default=1) == 1
        found = [(key, None if value is None else json.loads(value)["name"]) for key, value in new]
        return sorted(found, key=lambda each: int(each[0]))

    assert look() == [(str(number), f"name {number}") for number in range(1, 101)]
    with postgres.connect() as late:
        # Both are older than what others commit meanwhile; the second is of a subtransaction, which no snapshot names.
        late.execute("BEGIN")
        late.execute(f"INSERT INTO {table} VALUES (201, 'late')".encode())
        late.execute("SAVEPOINT one")
        late.execute(f"INSERT INTO {table} VALUES (202, 'later')".encode())
        postgres.query(f"UPDATE {table} SET name = 'new', {mark} WHERE id <= 2")
        assert look() == []
        late.execute("COMMIT")
    postgres.query(f"UPDATE {table} SET gone = true, {mark} WHERE id = 100")
    assert look() == [("1", "new"), ("2", "new"), ("100", None), ("201", "late"), ("202", "later")]
    postgres.kill()
    postgres.start()
    with postgres.connect() as prepared:
        prepared.execute("BEGIN")
        prepared.execute(f"INSERT INTO {table} VALUES (301, 'prepared')".encode())
        prepared.execute("PREPARE TRANSACTION 'one'")
        postgres.query(f"INSERT INTO {table} VALUES (302, 'behind it')")
        assert look() == []
        prepared.execute("COMMIT PREPARED 'one'")
    assert look() == [("301", "prepared"), ("302", "behind it")]
    assert look() == []


def test_the_newest_record_of_a_key_is_its_row(
    spark: Any, bootstrap: str, tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL is killed midway, the driver fails between the database's commit and Spark's; then the checkpoint is
    lost, and all comes again."""
    dice = random.Random(7)
    topic = names("input")["input"]
    table = topic.replace("-", "_")
    settings = {"database": postgres.url, "into": table, "input": topic, "columns": COLUMNS}
    expected: dict[int, tuple[Any, ...]] = {}

    def records(count: int) -> Iterator[tuple[str, bytes | None]]:
        for _ in range(count):
            key = dice.randrange(300)
            if dice.random() < 0.2:
                expected.pop(key, None)
                yield str(key), None
                continue
            cents, at = dice.randrange(10_000), f"2026-11-25T09:{dice.randrange(60):02}:00Z"
            value = {
                "id": key,
                "name": f"n{cents}",
                "price": cents / 100,
                "at": at,
                "tags": ["a", None, '"'],
                "more": {"a": 1},
            }
            expected[key] = (key, f"n{cents}", cents, at, ["a", None, '"'], {"a": 1})
            yield str(key), json.dumps(value).encode()

    def found() -> dict[int, tuple[Any, ...]]:
        at = "to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
        read = f"SELECT id, name, (price * 100)::int, {at}, tags, more FROM {table}"
        return {each[0]: each for each in postgres.query(read)}

    merge, failures = Upserts.merge, iter([False, True, False, True])

    def merge_and_fail(self: Upserts, batch: Any, number: int) -> int:
        bad = merge(self, batch, number)
        if next(failures, False):
            raise ConnectionError("the driver is gone before Spark knows")
        return bad

    monkeypatch.setattr(Upserts, "merge", merge_and_fail)
    produce(bootstrap, topic, records(1500))
    options = Options(bootstrap, directory=tmp_path / "one", batch_records=300)
    run = Run(load("postgres"), options, settings, spark)
    runner = threading.Thread(target=run.run)
    runner.start()
    try:
        wait_until(lambda: run.status.state == "running" and run.status.queries[0].rows >= 600, runner)
        postgres.kill()
        before = run.status.queries[0].restarts
        produce(
            bootstrap, topic, [*records(1500), ("no number", None), ("7", b'{"id": 7, "name": "\\u0000"}'), ("8", b"?")]
        )
        wait_until(lambda: run.status.queries[0].restarts > before + 1, runner)
        postgres.start()
        wait_until(lambda: run.status.queries[0].lag_records == 0 and run.status.queries[0].rows >= 3003, runner)
    finally:
        run.stop()
        runner.join()
    assert run.status.queries[0].restarts >= 3
    assert found() == expected
    assert next(failures, "none are left") == "none are left"
    assert versions(bootstrap, "postgres-dead-letters").keys() >= {
        ("no number", None),
        ("7", '{"id":7,"name":"\\u0000"}'),
        ("8", "?"),
    }
    # Every row as it was written before: what is below the positions does nothing.
    before = postgres.query(f"SELECT xmin, id FROM {table} ORDER BY id")
    run_once(spark, "postgres", bootstrap, tmp_path / "two", settings)
    assert postgres.query(f"SELECT xmin, id FROM {table} ORDER BY id") == before
    assert postgres.query("SELECT relname FROM pg_class WHERE relname LIKE 'ottla_staging%'") == []


def produce(bootstrap: str, topic: str, records: Iterable[tuple[str, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    for key, value in records:
        producer.produce(topic, value, key)
        producer.poll(0)
    assert producer.flush(60) == 0


def wait_until(is_so: Callable[[], bool], runner: threading.Thread) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert runner.is_alive() and time.monotonic() < deadline
        time.sleep(0.05)


def test_what_cannot_be_read_is_said_at_once(spark: Any, bootstrap: str, tmp_path: Path, postgres: Postgres) -> None:
    postgres.query("CREATE TABLE nameless (a int)")
    for settings, text in (
        ({"tables": "nameless"}, "no primary key"),
        ({"tables": "nowhere"}, "there is no table nowhere"),
        ({}, "needs tables to read"),
        ({"into": "t"}, "columns: give"),
        ({"into": "t", "columns": "a INT", "keys": "b"}, "keys: b is not one"),
        ({"tables": "t", "database": "postgresql://127.0.0.1:1/x"}, "database: connection failed"),
    ):
        options = Options(bootstrap, directory=tmp_path, once=True)
        status = Run(load("postgres"), options, {"database": postgres.url, **settings}, spark).run()
        assert status.state == "failed" and text in status.error, status.error
