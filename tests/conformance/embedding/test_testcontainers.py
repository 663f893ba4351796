"""`ottla.testing.testcontainers` in place of testcontainers' own module: its examples, methods and wait strategies.

The package is installed for its examples and signatures; no Docker runs. `python -m
tests.conformance.embedding.testcontainers_checkout DIRECTORY` runs the tests that a checkout of it has.
"""

from __future__ import annotations

import doctest
import inspect
import json
import re
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

import ottla.testing.testcontainers as ours
from ottla.testing import Broker, BrokerError
from ottla.testing.testcontainers import KafkaContainer, NotInContainer, RedpandaContainer, settings_of

NAMES = ("testcontainers.kafka", "testcontainers.community.kafka")
INTERNAL = {"configure", "create_file", "tc_start"}
INTERNAL_ATTRIBUTES = {"boot_command", "listeners", "security_protocol_map"}
"""Parts of the scripts inside the image: public in the original, without use here."""


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    from testcontainers.community import kafka

    return kafka  # type: ignore[no-any-return]


@pytest.fixture
def substituted(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, ours)
    monkeypatch.setattr(sys.modules["testcontainers.community"], "kafka", ours)


@pytest.mark.parametrize("name", ["KafkaContainer", "RedpandaContainer"])
def test_their_examples(name: str, theirs: ModuleType, substituted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The docstrings of the classes, as they stand in the installed package."""
    text = getattr(theirs, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert len(example.examples) >= 2
    addresses = []
    start = Broker.start

    def noted(self: Broker) -> Broker:
        start(self)
        addresses.append(self.bootstrap)
        return self

    monkeypatch.setattr(Broker, "start", noted)
    globs = example.globs
    failed, attempted = doctest.DocTestRunner().run(example, clear_globs=False)
    assert (failed, attempted) == (0, len(example.examples))
    assert len(addresses) == text.count("with ")
    assert globs["connection"] == addresses[-1]


@pytest.mark.parametrize("name", ["KafkaContainer", "RedpandaContainer"])
def test_every_method_with_every_argument(name: str, theirs: ModuleType) -> None:
    original, here = getattr(theirs, name), getattr(ours, name)
    public = {each for each in dir(original) if not each.startswith("_") and callable(getattr(original, each))}
    assert len(public) > 30
    assert public - INTERNAL <= set(dir(here)), "a method that the drop-in has not"
    for each in {*public - INTERNAL, "__init__"}:
        wanted = inspect.signature(getattr(original, each)).parameters
        found = inspect.signature(getattr(here, each)).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values())
        for parameter in wanted.values():
            assert takes_any or parameter.name in found, (each, parameter)


@pytest.mark.parametrize("name", ["KafkaContainer", "RedpandaContainer"])
def test_every_attribute(name: str, theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from testcontainers.core import container

    monkeypatch.setattr(container, "DockerClient", lambda **_: None)
    original, here = getattr(theirs, name)(), getattr(ours, name)()
    public = {each for each in vars(original) if not each.startswith("_")}
    assert len(public) > 5
    for each in public - INTERNAL_ATTRIBUTES:
        assert type(getattr(here, each)) is type(getattr(original, each)), each
    assert (here.image, set(here.ports)) == (original.image, set(original.ports))


def exchange(bootstrap: str) -> None:
    """With a client of the kind that testcontainers' own tests use."""
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])
    admin.create_topics([NewTopic("orders", 2, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=[bootstrap])
    producer.send("orders", b"two coffees", partition=1).get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=[bootstrap])
    at = TopicPartition("orders", 1)
    consumer.assign([at])
    consumer.seek_to_beginning()
    assert consumer.end_offsets([at]) == {at: 1}
    assert next(consumer).value == b"two coffees"
    consumer.close()


def test_kafka() -> None:
    with KafkaContainer(port=9888).with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3") as kafka:
        assert kafka.kraft_enabled
        exchange(kafka.get_bootstrap_server())
        host, port = kafka.get_container_host_ip(), kafka.get_exposed_port(9888)
        assert f"{host}:{port}" == kafka.get_bootstrap_server()
        with pytest.raises(ConnectionError, match="port 9092 is not available"):
            kafka.get_exposed_port(9092)
        kafka.broker.produce("new", "x")
        assert KafkaConsumer(bootstrap_servers=[f"{host}:{port}"]).partitions_for_topic("new") == {0, 1, 2}
        with pytest.raises(RuntimeError, match="started already"):
            kafka.start()
    assert kafka.status == "not_started"
    with pytest.raises(RuntimeError, match="not started"):
        kafka.get_bootstrap_server()


def test_redpanda_with_its_registry() -> None:
    with RedpandaContainer(image="docker.redpanda.com/redpandadata/redpanda:v25.3.6") as redpanda:
        exchange(redpanda.get_bootstrap_server())
        url = f"{redpanda.get_schema_registry_address()}/subjects"
        data = json.dumps({"schema": json.dumps({"type": "string"})}).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        asked = urllib.request.Request(f"{url}/orders-value/versions", data, headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert json.load(answer) == ["orders-value"]
        assert str(redpanda.get_exposed_port(8081)) in url


def test_a_chosen_port_and_a_kept_directory(tmp_path: Path) -> None:
    port = 0
    for count in (1, 2):
        container = KafkaContainer().with_volume_mapping(tmp_path / "data", "/var/lib/kafka/data", "rw")
        if port:
            container.with_bind_ports(9093, port)
        with container as kafka:
            assert port in (0, kafka.get_exposed_port("9093/tcp"))
            port = kafka.broker.port
            kafka.broker.produce("orders", "two coffees")
            assert len(kafka.broker.consume("orders")) == count


def test_wait_strategies_of_the_package() -> None:
    """A strategy that waits for a line of Kafka finds it; one that waits for another line fails as with a container."""
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    for line in (r".*\[KafkaServer id=\d+\] started.*", r".*Kafka Server started.*"):
        with KafkaContainer().waiting_for(LogMessageWaitStrategy(re.compile(line))) as kafka:
            assert kafka.get_wrapped_container().logs(stderr=False) == kafka.get_logs()[0]
    strategy = LogMessageWaitStrategy("no such line").with_startup_timeout(0)
    container = KafkaContainer().waiting_for(strategy)
    with pytest.raises(TimeoutError, match="no such line"), container:
        pass
    assert container.status == "not_started"


def test_docker_s_own_object_stops_kills_and_pauses() -> None:
    with KafkaContainer() as kafka:
        bootstrap, wrapped = kafka.get_bootstrap_server(), kafka.get_wrapped_container()
        kafka.broker.produce("orders", "two coffees")
        for end, begin, status in (
            (wrapped.pause, wrapped.unpause, "paused"),
            (wrapped.kill, wrapped.start, "exited"),
            (wrapped.stop, wrapped.start, "exited"),
        ):
            end()
            assert (wrapped.status, kafka.status) == (status, status)
            begin()
            assert (wrapped.status, kafka.get_bootstrap_server()) == ("running", bootstrap)
            assert len(kafka.broker.consume("orders")) == 1
        wrapped.kill()
        assert kafka.wait() == 137
        wrapped.start()
        wrapped.stop()
        assert kafka.wait() == 0
        with pytest.raises(BrokerError, match=r"was shut down; restart\(\) starts it again"):
            kafka.broker.pid  # noqa: B018
        wrapped.restart()
        wrapped.pause()  # a container that is paused is stopped, too


def test_settings_of_the_environment() -> None:
    env = {
        "KAFKA_LOG_RETENTION_MS": "60000",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "CLUSTER_ID": "x",
    }
    assert settings_of(env) == {"log.retention.ms": "60000"}
    with pytest.warns(UserWarning, match=r"KAFKA_NUM_PARTITION: Kafka has no setting num\.partition;"):
        assert settings_of({"KAFKA_NUM_PARTITION": "3"}) == {}
    container = KafkaContainer(env={"KAFKA_NUM_PARTITIONS": "0"})
    with pytest.raises(BrokerError, match=r"num\.partitions=0 is refused"):
        container.start()


def test_a_file_of_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# for Kafka\n\nKAFKA_NUM_PARTITIONS=3\nexport NAME='two words'\n")
    assert KafkaContainer().with_env_file(tmp_path / ".env").env.items() >= {
        ("KAFKA_NUM_PARTITIONS", "3"),
        ("NAME", "two words"),
    }


def test_what_only_a_container_has(tmp_path: Path) -> None:
    with pytest.raises(NotInContainer, match="neither TLS nor SASL"):
        KafkaContainer(security_protocol="SASL_PLAINTEXT")
    with pytest.raises(NotInContainer, match="settings go through with_env"):
        KafkaContainer().with_volume_mapping(tmp_path, "/etc/kafka/secrets")
    with pytest.warns(UserWarning, match="containers of a network do not"):
        KafkaContainer(network=object(), network_aliases=["kafka"])
    with pytest.raises(NotInContainer, match="create_topic"):
        KafkaContainer().exec(["kafka-topics", "--create"])
    with pytest.raises(ValueError, match="a port is a number"):
        KafkaContainer().with_bind_ports("http")
