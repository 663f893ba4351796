"""`ottla schema`, and produce and consume by a schema registry, beside confluent-kafka's serializers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE
from ottla.cli.main import main

Run = Callable[..., tuple[int, str, str]]

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "raw", "type": "bytes", "default": "\u00ff"},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
    {"name": "next", "type": ["null", "Order"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
]}  # fmt: skip


@pytest.fixture
def run(bootstrap: str, registry_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("OTTLA_REGISTRY", registry_url)

    def typed(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        out, error = capfd.readouterr()
        return code, out, error

    return typed


@pytest.fixture
def topic(run: Run) -> str:
    name = f"schema-{os.getpid()}-{time.time_ns() % 10**9}"
    assert run("topic", "create", name)[0] == OK
    return name


@pytest.fixture
def order(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """So many more."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def test_avro(run: Run, topic: str, order: str, bootstrap: str, registry_url: str) -> None:
    tagged = {"id": 4, "note": {"string": "s"}, "kind": "B", "raw": "\0", "next": {"shop.Order": {"id": 5}}}
    lines = ['{"id": 1}', '{"id": 2, "note": "ä", "next": {"id": 3}}', json.dumps(tagged)]
    assert run("produce", topic, *lines, "--format", "avro", "--schema", order)[0] == OK
    assert run("produce", topic, '{"id": 6}', "--format", "avro")[0] == OK
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    context = SerializationContext(topic, MessageField.VALUE)
    written = values(bootstrap, topic, 4)
    found = [read(value, context) for value in written]
    assert [each["id"] for each in found] == [1, 2, 4, 6]
    assert found[1]["note"] == "ä" and found[1]["next"]["id"] == 3
    assert (found[2]["note"], found[2]["kind"], found[2]["raw"], found[2]["next"]["id"]) == ("s", "B", b"\0", 5)
    code, out, _ = run("consume", topic, "--format", "avro")
    assert code == OK
    shown = [json.loads(line) for line in out.splitlines()]
    assert shown[0] == {"id": 1, "note": None, "raw": "ÿ", "kind": "A", "next": None, "at": 0}
    assert shown[1]["next"]["id"] == 3
    # What is shown can be written again.
    assert run("produce", topic, *out.splitlines(), "--format", "avro")[0] == OK
    assert values(bootstrap, topic, 4) == written


def test_keys_templates_and_tombstones(run: Run, topic: str, bootstrap: str, registry_url: str) -> None:
    client = SchemaRegistryClient({"url": registry_url})
    key = AvroSerializer(client, '{"type": "record", "name": "K", "fields": [{"name": "k", "type": "int"}]}')
    value = AvroSerializer(client, '"string"')
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2):
        producer.produce(
            topic,
            value("v", SerializationContext(topic, MessageField.VALUE)) if number == 0 else None,
            key({"k": number}, SerializationContext(topic, MessageField.KEY)),
        )
    assert producer.flush(30) == 0
    formats = ["--key-format", "avro", "--value-format", "avro"]
    assert run("consume", topic, *formats, "--format", "{offset} {key} {value}")[1].splitlines() == [
        '0 {"k": 0} "v"',
        '1 {"k": 1} ',
    ]
    records = [json.loads(line) for line in run("consume", topic, *formats, "--json")[1].splitlines()]
    assert [(each["key"], each["value"]) for each in records] == [('{"k": 0}', '"v"'), ('{"k": 1}', None)]
    assert run("consume", topic, "--group", f"{topic}-g", *formats, "--format", "{key}")[1].splitlines() == [
        '{"k": 0}',
        '{"k": 1}',
    ]


def test_protobuf_and_json_schema(run: Run, topic: str, tmp_path: Path, bootstrap: str, registry_url: str) -> None:
    proto = tmp_path / "p.proto"
    proto.write_text(
        'syntax = "proto3"; message A { int32 a = 1; } message B { string name = 1; repeated int32 n = 2; }'
    )
    wanted = {"name": "x", "n": [1, 2]}
    assert (
        run("produce", topic, json.dumps(wanted), "--format", "protobuf", "--schema", str(proto), "--message", "B")[0]
        == OK
    )
    assert json.loads(run("consume", topic, "--format", "protobuf")[1]) == wanted
    assert run("produce", topic, '{"a": "x"}', "--format", "protobuf")[0] == FAILED
    schema = tmp_path / "s.json"
    schema.write_text(
        json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": "S",
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
            }
        )
    )
    other = f"{topic}-json"
    assert run("topic", "create", other)[0] == OK
    assert run("produce", other, '{"a": 1}', "--format", "json-schema", "--schema", str(schema))[0] == OK
    read = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry_url}))
    assert read(values(bootstrap, other, 1)[0], SerializationContext(other, MessageField.VALUE)) == {"a": 1}
    assert run("consume", other, "--format", "json-schema")[1] == '{"a": 1}\n'
    code, _, error = run("produce", other, '{"b": 1}', "--format", "json-schema")
    assert code == FAILED and "'a' is a required property" in error


def test_subjects(run: Run, topic: str, order: str, tmp_path: Path) -> None:
    subject = f"{topic}-value"
    made = json.loads(run("schema", "register", subject, order, "--json")[1])
    assert (made["version"], made["type"]) == (1, "AVRO")
    assert json.loads(run("schema", "register", subject, order, "--json")[1]) == made
    (listed,) = json.loads(run("schema", "list", topic, "--json")[1])
    assert listed == {
        "subject": subject,
        "type": "AVRO",
        "versions": [1],
        "id": made["id"],
        "compatibility": "BACKWARD",
    }
    shown = json.loads(run("schema", "show", "--id", str(made["id"]), "--json")[1])
    assert json.loads(shown["schema"]) == ORDER
    assert json.loads("".join(run("schema", "show", subject)[1].splitlines(keepends=True)[1:])) == ORDER
    newer: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}  # type: ignore[misc]
    file = tmp_path / "newer.avsc"
    file.write_text(json.dumps(newer))
    code, _, error = run("schema", "check", subject, str(file))
    assert code == FAILED and "(READER_FIELD_MISSING_DEFAULT_VALUE)" in error and "oldSchema" not in error
    assert json.loads(run("schema", "check", subject, str(file), "--json")[1])["compatible"] is False
    code, _, error = run("schema", "register", subject, str(file))
    assert code == FAILED and "incompatible" in error
    newer["fields"][-1]["default"] = 0
    file.write_text(json.dumps(newer))
    assert run("schema", "check", subject, str(file))[0] == OK
    assert run("schema", "diff", subject)[0] == FAILED  # there is one version only
    assert json.loads(run("schema", "register", subject, str(file), "--json")[1])["version"] == 2
    code, out, _ = run("schema", "diff", subject)
    assert code == OK and any(line.strip() == '"name": "more",' for line in added(out)) and "compatible" in out
    back = json.loads(run("schema", "diff", subject, "--from", "2", "--to", "1", "--json")[1])
    assert (back["from"], back["to"], back["compatible"]) == (2, 1, True)  # a field that has gone


def added(text: str) -> list[str]:
    return [line[1:] for line in text.splitlines() if line.startswith("+")]


def test_references(run: Run, topic: str, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.proto", tmp_path / "outer.proto"
    inner.write_text('syntax = "proto3"; package p; message Inner { int32 n = 1; }')
    outer.write_text('syntax = "proto3"; package p; import "inner.proto"; message Outer { Inner inner = 1; }')
    assert run("schema", "register", f"{topic}-inner", str(inner))[0] == OK
    code, _, error = run("schema", "register", f"{topic}-value", str(outer))
    assert code == FAILED and "inner.proto" in error
    reference = f"inner.proto={topic}-inner:1"
    assert run("schema", "register", f"{topic}-value", str(outer), "--reference", reference)[0] == OK
    assert run("produce", topic, '{"inner": {"n": 5}}', "--format", "protobuf")[0] == OK
    assert run("consume", topic, "--format", "protobuf")[1] == '{"inner": {"n": 5}}\n'
    assert run("schema", "register", f"{topic}-value", str(outer), "--reference", "inner.proto")[0] == MISUSED


def test_what_is_refused(run: Run, topic: str, order: str) -> None:
    away = ["--registry", "http://127.0.0.1:1"]
    for argv, code, says in (
        (["produce", topic, "{}", "--format", "avro", "--schema", order], FAILED, "the field id is missing"),
        (["produce", topic, '{"id": 1, "x": 2}', "--format", "avro"], FAILED, "shop.Order has no field x"),
        (["produce", topic, '{"id": "1"}', "--format", "avro"], FAILED, 'id: "1" is no long'),
        (["produce", topic, "not json", "--format", "avro"], FAILED, "value 1"),
        (["produce", topic, "{}", "--format", "protobuf"], FAILED, "schemas of type AVRO, not PROTOBUF"),
        (["produce", topic, "{}", "--schema", order], MISUSED, "--schema"),
        (["produce", topic, "{}", "--format", "avro", *away], UNREACHABLE, "ottla registry"),
        (["produce", topic, "{}", "--format", "avro", "--schema", "no-such-file"], FAILED, "no-such-file"),
        (["consume", topic, "--format", "avro", "--value-format", "avro"], MISUSED, "cannot be used together"),
        (["schema", "list", *away], UNREACHABLE, "ottla registry"),
        (["schema", "list", "--registry", "nowhere"], MISUSED, "--registry: expected http://HOST:PORT"),
        (["schema", "show", "no-such-subject"], FAILED, "no-such-subject"),
        (["schema", "show"], MISUSED, "SUBJECT"),
        (["schema", "show", "--id", "99999"], FAILED, "99999"),
    ):
        found, _, error = run(*argv)
        assert (found, says in error) == (code, True), (argv, found, error)
    assert run("produce", topic, "plain")[0] == OK
    code, _, error = run("consume", topic, "--format", "avro")
    assert code == FAILED and f"{topic}-0 at offset 0" in error and "hexdump" in error


def test_sql(run: Run, topic: str, order: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    flat = tmp_path / "flat.avsc"
    flat.write_text(json.dumps({"type": "record", "name": "F", "fields": [{"name": "id", "type": "long"}]}))
    assert run("produce", topic, '{"id": 1}', '{"id": 2}', "--format", "avro", "--schema", str(flat))[0] == OK
    statement = f'select sum(value.id) as total from "{topic}"'
    code, out, error = run("sql", statement, "--value-format", "avro", "--json")
    assert (code, error) == (OK, "") and json.loads(out) == {"total": 3}
    code, _, error = run("sql", statement, "--value-format", "protobuf")
    assert code == FAILED and "has schemas of type AVRO" in error
    assert run("sql", statement, "--value-format", "avro", "--registry", "http://127.0.0.1:1")[0] == UNREACHABLE
    assert run("sql", statement, "--value-format", "protobuf", "--value-schema", "x")[0] == MISUSED


def test_the_extra_is_enough(bootstrap: str, registry_url: str, order: str, tmp_path: Path) -> None:
    """`ottla[registry]` has no pyarrow and no pandas: neither the command line nor the server needs one."""
    proto, schema = tmp_path / "p.proto", tmp_path / "s.json"
    proto.write_text('syntax = "proto3"; message A { int32 a = 1; }')
    schema.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    topic = f"extra-{os.getpid()}"
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("pyarrow", "pandas", "pyspark", "duckdb", "polars")))
from ottla.cli.main import main
for format, file, text in (
    ("avro", {order!r}, '{{"id": 1}}'), ("protobuf", {str(proto)!r}, '{{"a": 1}}'),
    ("json-schema", {str(schema)!r}, '{{"a": 1}}'),
):
    topic = {topic!r} + format
    assert main(["produce", topic, text, "--format", format, "--schema", file, "--create"]) == 0
    assert main(["consume", topic, "--format", format]) == 0
    assert main(["schema", "show", topic + "-value"]) == 0
import ottla.registry.server, ottla.registry.app
import ottla.registry.schema_types.protobuf_schema, ottla.registry.schema_types.json_schema
"""
    env = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap, "OTTLA_REGISTRY": registry_url}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
