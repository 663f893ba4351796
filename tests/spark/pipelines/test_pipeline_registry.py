"""Pipelines by a schema registry: values in any of its formats go in, results with registered schemas come out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla import arrow
from ottla.pipelines.runner import Options, PipelineError, Run, load
from ottla.schemas.options import typed_of
from ottla.testing import Registry
from tests.spark.pipelines.pipelines import dead_letters, feed, names, rows, run_once
from tests.spark.pipelines.test_pipeline_activity import VIEWS, view
from tests.spark.pipelines.test_pipeline_ledger import TOPICS as LEDGER_TOPICS
from tests.spark.pipelines.test_pipeline_ledger import by_account
from tests.spark.pipelines.test_pipeline_ledger import event as transaction

PATIENCE_S = 90.0
VIEW = [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "user", "type": ["null", "string"], "default": None},
    {"name": "page", "type": "string"},
]
AGENT = {"name": "agent", "type": "string", "default": "unknown"}
"""What a later version has; the query does not know it."""


@pytest.fixture(scope="module")
def registry(bootstrap: str) -> Iterator[Registry]:
    with Registry(bootstrap) as started:
        yield started


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "View", "fields": list(fields)})


def serialized(client: SchemaRegistryClient, topic: str, text: str) -> Callable[[dict[str, Any]], bytes]:
    write, context = AvroSerializer(client, text), SerializationContext(topic, MessageField.VALUE)

    def one(row: dict[str, Any]) -> bytes:
        return write({**row, "at": datetime.fromisoformat(row["at"])}, context) or b""

    return one


def test_a_ledger_takes_transactions_in_avro(spark: Any, bootstrap: str, tmp_path: Path, registry: Registry) -> None:
    """Its results go to several topics by one query, and what it writes to one of them it reads again."""
    fields = [{"name": name, "type": ["null", "string"]} for name in ("id", "kind", "account", "to")]
    fields += [
        {"name": "amount", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    settings = names(*LEDGER_TOPICS)
    write = serialized(SchemaRegistryClient({"url": registry.url}), settings["input"], schema(*fields))
    given = [transaction(1, "deposit", "ada", 100), transaction(2, "transfer", "ada", 30, "ben")]
    feed(bootstrap, settings["input"], [*map(write, given), b"no schema"])
    status = run_once(spark, "ledger", bootstrap, tmp_path, settings, registry=registry.url)
    newest = by_account(rows(bootstrap, settings["balances"]))
    assert {account: row["balance"] for account, row in newest.items()} == {"ada": 70, "ben": 30}
    assert status.dead_letters >= 1
    assert dead_letters(bootstrap, "ledger", settings["input"]) == [b"no schema"]


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_views_in_avro(spark: Any, bootstrap: str, tmp_path: Path, registry: Registry, format: str) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    settings = names("input", "sessions", "funnels")
    topic = settings["input"]
    old, new = serialized(client, topic, schema(*VIEW)), serialized(client, topic, schema(*VIEW, AGENT))
    values = [old(each) for each in VIEWS[:4]] + [new({**each, "agent": "x"}) for each in VIEWS[4:]]
    feed(bootstrap, topic, [*values, b"no schema", new({**view("dan", "/", "23:00:00"), "agent": "x"})])
    status = run_once(spark, "activity", bootstrap, tmp_path, settings, registry=registry.url, format=format)
    assert status.dead_letters >= 1
    assert dead_letters(bootstrap, "activity", topic) == [b"no schema"]
    assert client.get_latest_version(f"{settings['sessions']}-value").schema.schema_type == format.upper()
    options = {"value.format": format, "schema.registry.url": registry.url}
    table = arrow.read(settings["sessions"], bootstrap, columns=["value"]).read_all()
    batch = table.combine_chunks().to_batches()[0]
    found = typed_of(options, settings["sessions"]).read(batch)[0].column("value").to_pylist()
    found.sort(key=lambda row: row["start"])
    assert [(row["user"], row["views"], row["entry"], row["exit"], row["depth"]) for row in found] == [
        ("ada", 5, "/", "/checkout", 4),
        ("ben", 1, "/product", "/product", 0),
        ("ben", 1, "/", "/", 1),
        ("cyd", 1, "/", "/", 1),
    ]
    if format == "avro":
        read, context = AvroDeserializer(client), SerializationContext(settings["sessions"], MessageField.VALUE)
        assert {read(value, context)["user"] for value in batch.column("value").to_pylist()} == {"ada", "ben", "cyd"}


def test_a_topic_that_the_registry_does_not_know(
    spark: Any, bootstrap: str, tmp_path: Path, registry: Registry
) -> None:
    settings = names("input", "sessions", "funnels")
    feed(bootstrap, settings["input"], [*VIEWS, view("dan", "/", "23:00:00")])
    run_once(spark, "activity", bootstrap, tmp_path, settings, registry=registry.url)
    client = SchemaRegistryClient({"url": registry.url})
    assert client.get_latest_version(f"{settings['sessions']}-value").schema.schema_type == "JSON"


def test_a_lake_gets_the_columns_that_a_schema_gets(
    spark: Any, bootstrap: str, tmp_path: Path, registry: Registry
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    settings = {**names("input"), "kind": "parquet", "table": str(tmp_path / "table"), "compact_every": 0}
    topic = settings["input"]
    for fields, more in (((), {}), ((AGENT,), {"agent": "x"})):
        write = serialized(client, topic, schema(*VIEW, *fields))
        feed(bootstrap, topic, [write({**each, **more}) for each in VIEWS[:2]])
        run_once(spark, "lake", bootstrap, tmp_path / "run", settings, registry=registry.url)
    table = spark.read.option("mergeSchema", "true").parquet(settings["table"])
    found = sorted((row.user, row.page, row.agent or "") for row in table.collect())
    assert found == [("ada", "/", ""), ("ada", "/", "x"), ("ben", "/product", ""), ("ben", "/product", "x")]


def test_the_registry_is_away_for_a_while(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """A schema comes that no task has seen, and there is nobody to ask: the query fails, is started again, and what was
    written with it is no bad record."""
    settings = names("input", "sessions", "funnels")
    topic = settings["input"]
    registry = Registry(bootstrap, topic=f"_schemas-{topic}").start()
    port = int(registry.url.rpartition(":")[2])
    client = SchemaRegistryClient({"url": registry.url})
    old, new = serialized(client, topic, schema(*VIEW)), serialized(client, topic, schema(*VIEW, AGENT))
    feed(bootstrap, topic, [old(each) for each in VIEWS[:4]])
    values = [new({**each, "agent": "x"}) for each in [*VIEWS[4:], view("dan", "/", "23:00:00")]]
    run = Run(load("activity"), Options(bootstrap, directory=tmp_path, registry=registry.url), settings, spark)
    runner = threading.Thread(target=run.run)
    runner.start()
    try:
        # Its version is the latest, but the one that tasks have not asked for yet is the other.
        wait_until(lambda: run.status.state == "running" and run.status.queries[0].rows == 4, runner)
        third = serialized(client, topic, schema(*VIEW, AGENT, {**AGENT, "name": "more"}))
        values.append(third({**view("eve", "/", "23:59:00"), "agent": "x", "more": "y"}))
        registry.stop()
        feed(bootstrap, topic, values)
        wait_until(lambda: all(query.restarts for query in run.status.queries), runner)
        registry = Registry(bootstrap, topic=f"_schemas-{topic}", port=port).start()
        wait_until(lambda: all(query.rows == 10 and not query.lag_records for query in run.status.queries), runner)
        wait_until(lambda: len(stored(bootstrap, settings["sessions"])) == 5, runner)
    finally:
        run.stop()
        runner.join()
        registry.stop()
    assert not run.status.error


def wait_until(is_so: Callable[[], bool], runner: threading.Thread) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert runner.is_alive() and time.monotonic() < deadline
        time.sleep(0.1)


def stored(bootstrap: str, topic: str) -> list[Any]:
    return list(arrow.read(topic, bootstrap, columns=["value"]).read_all().column("value").to_pylist())


def test_what_is_said(spark: Any, bootstrap: str, tmp_path: Path, registry: Registry) -> None:
    with pytest.raises(PipelineError, match="format=avro needs a schema registry"):
        Run(load("activity"), Options(bootstrap, directory=tmp_path, format="avro"), {}, spark)
    with pytest.raises(PipelineError, match="format: expected avro, json, protobuf, got 'xml'"):
        Run(load("activity"), Options(bootstrap, directory=tmp_path, format="xml"), {}, spark)
    away = Options(bootstrap, directory=tmp_path, once=True, restarts_max=0, registry="http://127.0.0.1:1")
    status = Run(load("activity"), away, names("input", "sessions", "funnels"), spark).run()
    assert status.state == "failed" and "no schema registry answers" in (status.error or "")
