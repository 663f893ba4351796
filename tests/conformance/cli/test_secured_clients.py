"""Ottla's own clients and commands at listeners of Apache Kafka with TLS and logins."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla import arrow
from ottla.cli.exits import FAILED, OK, UNREACHABLE
from ottla.cli.main import main
from ottla.client.assigned_fetcher import AssignedFetcher
from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig
from ottla.client.producer import Producer
from ottla.client.security import SecurityFailure
from ottla.client.security_settings import parse_security
from ottla.model import TopicPartition
from tests.conformance.security import secured
from tests.conformance.security.secured import PASSWORD, PROTOCOLS, SESSION_MS, Secured

pytestmark = pytest.mark.nightly("tests/unit/client/test_secure_connections.py")

WAYS = [
    ("SSL", "-"), ("MUTUAL", "-"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_SSL", "SCRAM-SHA-512"),
]  # fmt: skip


UNTRUSTING = parse_security({"security.protocol": "SSL"})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured.kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


def config(cluster: Secured, listener: str, mechanism: str, **given: Any) -> ClientConfig:
    chosen = parse_security({**cluster.settings(listener, mechanism), **given})
    return ClientConfig((cluster.addresses[listener],), "test", security=chosen, request_timeout_s=20)


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_records_there_and_back(cluster: Secured, listener: str, mechanism: str) -> None:
    chosen = config(cluster, listener, mechanism)
    client, topic = Cluster(chosen), f"t-{listener}-{mechanism}"
    client.create_topic(topic, 2, {})
    values = [b"%d" % at * (at % 400) for at in range(5000)]
    producer = Producer(client, compression="lz4", batch_bytes=100_000)
    producer.start()
    producer.send(topic, pa.record_batch({"value": pa.array(values, pa.binary())}))
    producer.flush()
    client.close()
    found = arrow.read(topic, cluster.addresses[listener], columns=["value"], security=chosen.security).read_all()
    assert sorted(found.column("value").to_pylist()) == sorted(values)


def test_sessions_are_renewed_under_load(cluster: Secured) -> None:
    """The broker ends sessions after SESSION_MS (KIP-368), and cuts off who does not log in again."""
    client = Cluster(config(cluster, "SASL_SSL", "SCRAM-SHA-256"))
    client.create_topic("sessions", 1, {})
    producer = Producer(client, transactional_id="sessions")
    producer.start()
    opened = dict(client._connections)
    end, sent = time.monotonic() + 2.5 * SESSION_MS / 1000, 0
    fetcher = AssignedFetcher(client, {TopicPartition("sessions", 0): 0}, read_committed=True)
    while time.monotonic() < end:
        producer.begin()
        producer.send("sessions", pa.record_batch({"value": [b"x"]}))
        producer.commit()
        sent += 1
        fetcher.send()
        fetcher.receive(0.2)
    at = TopicPartition("sessions", 0)
    bounds = client.offsets({at: EARLIEST})[at].offset, client.offsets({at: LATEST})[at].offset
    assert sent > 3 and bounds == (0, 2 * sent)
    assert opened.items() <= client._connections.items(), "no connection was made again"
    fetcher.close()
    client.close()


def test_who_is_not_let_in(cluster: Secured) -> None:
    for listener, mechanism in WAYS[2:]:
        wrong = {"sasl.password": "wrong", "sasl.username": "ann"}
        with pytest.raises(SecurityFailure, match=r"refused the login as ann .*Authentication failed") as caught:
            Cluster(config(cluster, listener, mechanism, **wrong)).topics()
        assert PASSWORD not in str(caught.value)
    with pytest.raises(SecurityFailure, match=r"wants a certificate of the client"):
        Cluster(ClientConfig((cluster.addresses["MUTUAL"],), security=parse_security(cluster.settings("SSL")))).topics()
    with pytest.raises(SecurityFailure, match=r"is not trusted"):
        Cluster(ClientConfig((cluster.addresses["SSL"],), security=UNTRUSTING)).topics()


@pytest.mark.parametrize(
    ("used", "asked", "wanted"),
    [
        ("PLAINTEXT", "SSL", "TLS"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "wants a login"),
        ("SSL", "PLAINTEXT", "has no TLS"),
        ("SSL", "SASL_SSL", "wants a login"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "has no login"),
        ("SASL_PLAINTEXT", "SASL_SSL", "TLS"),
    ],
)
def test_another_protocol_than_the_listeners(cluster: Secured, used: str, asked: str, wanted: str) -> None:
    given = cluster.settings(used) if used != "PLAINTEXT" else {}
    client = Cluster(ClientConfig((cluster.addresses[asked],), security=parse_security(given), connect_timeout_s=5))
    with pytest.raises((OSError, SecurityFailure), match=wanted):
        client.topics()


@pytest.mark.parametrize(("listener", "mechanism"), [("MUTUAL", "-"), ("SASL_SSL", "SCRAM-SHA-512")])
def test_commands(
    cluster: Secured, listener: str, mechanism: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, topic = str(cluster.file(listener, mechanism)), f"cli-{listener}"
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")

    def run(*arguments: str) -> str:
        code = main([*arguments, "--config", file])
        printed = capsys.readouterr()
        assert PASSWORD not in printed.out + printed.err
        assert code == OK, printed.err
        return printed.out

    run("topic", "create", topic)
    run("produce", topic, "--file", str(lines))
    assert [json.loads(line)["value"] for line in run("consume", topic, "--json").splitlines()] == ["one", "two"]
    assert "one" in run("consume", topic, "--group", f"g-{listener}")
    for command in (
        ("topic", "list"),
        ("topic", "describe", topic),
        ("group", "list"),
        ("group", "describe", f"g-{listener}"),
        ("cluster", "describe"),
        ("config", "get", "--topic", topic),
        ("quota", "list"),
        ("txn", "list"),
        ("quorum", "describe"),
        ("sql", f'select count(*) from "{topic}"'),
        ("server", "status"),
        ("topic", "explain", topic),
        ("topic", "delete", topic),
    ):
        run(*command)


def test_commands_say_what_is_wrong(cluster: Secured, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    begun = time.monotonic()
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(cluster.file("SASL_SSL").read_text().replace('username="ann"', 'username="bob"'))
    assert main(["topic", "list", "--config", str(wrong)]) == FAILED
    assert "refused the login as bob" in capsys.readouterr().err
    for listener in PROTOCOLS:
        code = main(["topic", "list", "-b", cluster.addresses[listener]])
        assert code == UNREACHABLE and "security.protocol=" in capsys.readouterr().err, listener
    assert time.monotonic() - begun < 60, "nobody waits for librdkafka's timeouts"
