"""A source and a sink at a node with TLS and logins: a stream that is restarted, and where its password is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.cli.security import secured
from ottla.client.properties import read_file
from tests.conformance.security.test_secured_node import SecuredNode, ottla

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("secured")) as running:
        for topic in ("in", "out"):
            assert ottla("topic", "create", topic, "--partitions", "2", file=running.client).returncode == 0
        yield running


def produce(node: SecuredNode, *values: bytes) -> None:
    producer = Producer(dict(read_file(node.root / secured.LIBRDKAFKA)))
    for value in values:
        producer.produce("in", value)
    assert producer.flush(30) == 0


def test_a_stream_copies_exactly_once_and_shows_no_password(
    spark: Any, node: SecuredNode, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The secrets are options, which is what Spark itself would write somewhere; a batch has them of a file."""
    produce(node, *(b"%d" % at for at in range(100)))
    options = {f"kafka.{name}": value for name, value in read_file(node.client).items()}
    stream = spark.readStream.format("ottla").options(**options, subscribe="in", startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("ottla").options(**options, topic="out")
    query = (
        writer.option("delivery", "exactly-once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert node.password not in "\n".join(str(each) for each in query.recentProgress)
    batch = spark.read.format("ottla").option("client.config", str(node.client)).option("subscribe", "out")
    assert batch.option("kafka.bootstrap.servers", node.bootstrap).load().count() == 100
    consumer = Consumer(
        {
            **read_file(node.root / secured.LIBRDKAFKA),
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["out"])
    found: list[bytes | None] = []
    while len(found) < 100:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of 100"
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    assert sorted(map(bytes, filter(None, found))) == sorted(b"%d" % at for at in range(100))
    needle = node.password.encode()
    files = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert len(files) > 4 and not [file for file in files if needle in file.read_bytes()]
    assert node.password not in "".join(capfd.readouterr())
