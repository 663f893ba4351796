"""Queries in processes of their own: what they answer, reach and use, and how they end. Only a broker and a process
show that; the pages have queries that answer from memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.client.security import PLAINTEXT
from ottla.console.masks import parse_masks
from ottla.sql import queries
from ottla.sql.queries import Answer, Query, run
from ottla.testing import Broker

pytest.importorskip("duckdb")

COUNT = 3000
FORMATS = {"key.format": "string", "value.format": "json", "bad.records": "column"}
SECRET = "4111222233334444"
ENDLESS = "select sum(a.range * b.range) from range(1000000) a, range(1000000) b"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "my-topic": 1, "cards": 1}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for at in range(COUNT):
            value = json.dumps({"id": at, "kind": f"k{at % 3}", "big": 2**60 + at})
            producer.produce("orders", value, b"k%d" % (at % 7), partition=at % 2, timestamp=1_000_000 + at)
        producer.produce("my-topic", b"\xff\0<b>")
        for at in range(3):
            card = {"number": SECRET, "name": f"n{at}", "id": at}
            headers = [("auth", SECRET.encode()), ("trace", b"x")]
            producer.produce("cards", json.dumps({"card": card, "n": at}), SECRET, headers=headers)
        assert producer.flush(60) == 0
        yield running


def asked(broker: Broker, statement: str, halt: threading.Event | None = None, **more: Any) -> Answer:
    query = Query(statement, broker.bootstrap, PLAINTEXT, "test", options=FORMATS, **{"seconds": 60.0, **more})
    return run(query, halt or threading.Event())


def test_rows_are_texts_with_their_kinds(broker: Broker) -> None:
    statement = """
        select value.kind kind, count(*) n, max(value.big) big, min(timestamp) since, list(distinct partition) parts
        from orders group by all order by kind
    """
    answer = asked(broker, statement)
    assert answer.error == ""
    assert [(each.name, each.kind) for each in answer.columns] == [
        ("kind", "text"),
        ("n", "number"),
        ("big", "number"),
        ("since", "time"),
        ("parts", "json"),
    ]
    assert answer.rows[0][:4] == ["k0", "1000", str(2**60 + 2997), "1970-01-01T00:16:40.000Z"]
    assert sorted(json.loads(answer.rows[0][4] or "")) == [0, 1]
    assert (answer.topics, answer.records_read, answer.stopped) == (["orders"], COUNT, "")


def test_bytes_that_are_no_text_are_escapes(broker: Broker) -> None:
    answer = asked(broker, 'select _corrupt_record from "my-topic"')
    assert answer.rows == [["\\xff\\x00<b>"]]


def test_where_reading_begins(broker: Broker) -> None:
    statement = "select count(*), min(timestamp) from orders"
    last = asked(broker, statement, start="last", last=5)
    assert last.rows == [["10", "1970-01-01T00:16:42.990Z"]]
    since = asked(broker, statement, start="time", time_ms=1_000_000 + 2900)
    assert since.rows == [["100", "1970-01-01T00:16:42.900Z"]]
    assert asked(broker, statement, start="time", time_ms=2_000_000_000_000).rows == [["0", None]]


def test_more_rows_than_are_wanted(broker: Broker) -> None:
    answer = asked(broker, "select value.id from orders", rows_max=700)
    assert (len(answer.rows), answer.stopped) == (700, "rows")
    assert asked(broker, "select value.id from orders", rows_max=COUNT).stopped == ""


def test_what_a_statement_cannot_do(broker: Broker, tmp_path: Any) -> None:
    """Files, settings, other databases: refused one by one within one process each."""
    secret = tmp_path / "secret.csv"
    secret.write_text("password\n")
    refused = {
        f"select * from read_csv('{secret}')": "disabled by configuration",
        f"copy orders to '{tmp_path}/out.csv'": "one statement is taken that reads",
        "select 1; select 2": "one statement is taken that reads",
        "select * from nowhere": "no topic that you may see has this name",
        "select count(*) from CARDS": "your roles do not let you read topic cards",
        "select": "Parser Error",
    }
    for statement, why in refused.items():
        answer = asked(broker, statement, allowed=("orders",))
        assert why in answer.error, (statement, answer.error)
        assert answer.rows == []
        assert "password" not in answer.error
    assert [each.name for each in tmp_path.iterdir()] == ["secret.csv"]


def test_what_a_mask_hides_is_hidden_in_the_process(broker: Broker) -> None:
    """The mask comes there whole. What statements reach, or not, is in `test_masked.py`."""
    rule = {"topics": ["cards"], "fields": ["card.number"], "headers": ["auth"], "key": True, "how": "hash"}
    mask = parse_masks({"mask": [rule]}, "masks").of("cards", "ann")
    statement = "select value.card.number, key, decode(headers[1].value), value::varchar from cards"
    answer = asked(broker, statement, masks={"cards": mask})
    assert answer.error == ""
    assert mask.key is not None
    (hidden,) = {row[0] for row in answer.rows}
    assert hidden == mask.key.shown(SECRET) and hidden.startswith("#")
    assert {tuple(row[1:3]) for row in answer.rows} == {(hidden, hidden)}
    assert SECRET not in str(answer)
    # Without the mask it is there: the statement would find it.
    assert SECRET in str(asked(broker, statement).rows)


def test_time_and_a_halt_end_it(broker: Broker) -> None:
    assert asked(broker, ENDLESS, seconds=0.2).stopped == "time"
    halt = threading.Event()
    halt.set()
    assert asked(broker, ENDLESS, halt).stopped == "stopped"


def test_memory_ends_it(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asked(broker, "select list(a.range) from range(100000000) a")
    assert "more memory" in answer.error
    # Where a library takes it behind DuckDB's back, the process ends.
    code = "import ottla.sql.queries as q; q.PROCESS_BYTES_MAX = 1; import runpy; runpy.run_module('ottla.sql', run_name='__main__')"  # noqa: E501
    real = queries.subprocess.Popen
    monkeypatch.setattr(queries.subprocess, "Popen", lambda words, **kw: real([words[0], "-c", code], **kw))
    assert asked(broker, ENDLESS).stopped == "memory"


def test_nobody_answers() -> None:
    answer = run(Query("select * from orders", "127.0.0.1:1", PLAINTEXT, "test", seconds=60.0), threading.Event())
    assert "127.0.0.1:1" in answer.error
    assert not answer.is_refused
