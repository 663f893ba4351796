"""A node's configuration: where values come from, what is refused, and how dynamic settings lie over static ones."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from ottla.config import definitions, foreign
from ottla.config.checks import parse_address
from ottla.config.listener_settings import of_listener, of_mechanism
from ottla.config.listeners import Listener
from ottla.config.server import EMBEDDED, ServerConfig, SettingsFile, from_environment, variable_of
from ottla.errors import OttlaError
from ottla.storage.config import LogConfig


def test_a_node_without_configuration() -> None:
    config = ServerConfig.load()
    assert config.node_id == 1
    assert config.roles == ("broker", "controller")
    assert config.listeners == config.advertised_listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.controller_listeners == ()
    assert config.log_dirs == ("ottla-data",)
    assert config.metadata_log_dir == "ottla-data"
    assert config["offsets.topic.replication.factor"] == 1
    assert config["log.retention.ms"] is None
    assert all(config[name] is not None for name in EMBEDDED)


def test_precedence(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nmessage.max.bytes=2\nnum.io.threads=2\n")
    environ = {"OTTLA_MESSAGE_MAX_BYTES": "3", "OTTLA_NUM_IO_THREADS": "3", "PATH": "/bin"}
    config = ServerConfig.load(SettingsFile(file.name, file.read_bytes()), {"num.io.threads": "4"}, environ)
    assert (config["num.partitions"], config["message.max.bytes"], config["num.io.threads"]) == (2, 3, 4)


def test_a_whole_kafka_configuration_keeps_kafkas_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:19092,CONTROLLER://:19093\nadvertised.listeners=PLAINTEXT://example.org:19092\n"
        "controller.quorum.voters=7@localhost:19093\nlog.dirs=/a, /b\nmetadata.log.dir=/m\n"
    )
    config = ServerConfig.load(SettingsFile(file.name, file.read_bytes()))
    assert config.node_id == config["broker.id"] == 7
    assert config["offsets.topic.replication.factor"] == 3
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/m"
    assert config.listeners == (Listener("PLAINTEXT", "", 19092),)
    assert config.controller_listeners == (Listener("CONTROLLER", "", 19093),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "example.org", 19092),)


def test_older_names_of_node_id_and_log_dirs() -> None:
    config = ServerConfig.load(overrides={"broker.id": "5", "log.dir": "/x"})
    assert config.node_id == 5
    assert config.log_dirs == ("/x",)


@pytest.mark.parametrize(("text", "expected"), [("", ()), ("/b", ("/b",)), ("*", ("/a", "/b"))])
def test_cordoned_directories(text: str, expected: tuple[str, ...]) -> None:
    config = ServerConfig.load(overrides={"log.dirs": "/a,/b", "cordoned.log.dirs": text})
    assert config.cordoned_log_dirs == expected


REFUSED = [
    ({"num.partitionss": "1"}, "unknown setting num.partitionss: .* did you mean num.partitions"),
    ({"retention.ms": "1"}, "retention.ms is a setting of a topic; a broker's is log.retention.ms or "),
    ({"num.partitions": "0"}, "setting num.partitions=0 is refused: allowed is at least 1"),
    ({"num.partitions": "many"}, "allowed is at least 1; the given value is not a number"),
    ({"log.retention.ms": "0"}, r"log.retention.ms is 0: it must be -1 \(no limit\) or at least 1"),
    ({"log.roll.ms": "0"}, "log.roll.ms is 0: it must be at least 1"),
    (
        {"queued.max.request.bytes": "104857599"},
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    ({"listeners": "9092"}, "listeners: '9092' is not of the form NAME://host:port"),
    ({"listeners": "PLAINTEXT://h:70000"}, "with a port from 0 to 65535"),
    ({"listeners": "FAST://h:1"}, "no security protocol is given for listener FAST; add FAST:PLAINTEXT"),
    (
        {"inter.broker.listener.name": "SSL"},
        "inter.broker.listener.name is SSL, but advertised.listeners has PLAINTEXT",
    ),
    ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol is SSL, but advertised.listeners has"),
    (
        {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
        "are both given: remove security.inter.broker.protocol",
    ),
    ({"listener.name.ssl.ssl.keystore.lokation": "/x"}, "did you mean listener.name.ssl.ssl.keystore.location"),
    ({"listener.name.x.sasl.enabled.mechanism": "PLAIN"}, "did you mean listener.name.x.sasl.enabled.mechanisms"),
    ({"listener.name.x.plain.sasl.jaas.conf": "a b"}, "sasl.jaas.conf is not a setting of Kafka 4.3"),
    ({"listener.name.x.ssl.client.auth": "yes"}, "allowed is one of required, requested, none"),
    ({"listeners": "CONTROLLER://h:1"}, "a broker needs a listener beside the controller's"),
    ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "each listener needs its own name"),
    ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "set advertised.listeners=PLAINTEXT://HOST:9092"),
    ({"advertised.listeners": "SSL://h:1"}, "SSL is not among the broker's listeners"),
    ({"listener.security.protocol.map": "A:B"}, "'A:B' is not NAME:PROTOCOL"),
    ({"broker.id": "2", "node.id": "3"}, "broker.id is 2 but node.id is 3"),
    ({"controller.quorum.voters": "1@a:1,2@b:2"}, "the other controllers must reach this one"),
    (
        {"cordoned.log.dirs": "/b,/c", "log.dirs": "/a,/b"},
        "must be present in log.dirs or log.dir. Missing entries : /c",
    ),
    ({"cordoned.log.dirs": "*,/a", "log.dirs": "/a"}, r"set to \*, it must not contain other values"),
    ({"ottla.audit.topic": "audit"}, "ottla.audit.topic needs ottla.audit.directory"),
    ({"config.providers": "env"}, "config.providers belongs into the settings file"),
    ({"process.roles": "broker,controller"}, "setting node.id is missing; it must be at least 0"),
]

BROKER = {
    "process.roles": "broker", "node.id": "2", "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092", "controller.quorum.voters": "1@h:9093",
}  # fmt: skip
CONTROLLER = {**BROKER, "process.roles": "controller", "node.id": "1", "listeners": "CONTROLLER://127.0.0.1:9093"}

REFUSED_ROLES = [
    ({**BROKER, "controller.quorum.voters": ""}, "give the controllers' addresses"),
    ({**BROKER, "controller.quorum.voters": "1@h"}, "'1@h' is not of the form id@host:port"),
    ({**BROKER, "controller.quorum.voters": "1@h:1,1@i:1"}, "names node 1 twice"),
    ({**BROKER, "controller.quorum.voters": "1@h:0"}, "at h:0 has no fixed port"),
    ({**BROKER, "controller.quorum.bootstrap.servers": "h"}, "'h' is not of the form host:port"),
    ({**BROKER, "node.id": "1"}, "node.id 1 is among controller.quorum.voters: give the broker another"),
    (
        {**BROKER, "listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"},
        "the listener CONTROLLER://h:2 is among controller.listener.names",
    ),
    ({**BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "CONTROLLER has no security protocol"),
    ({**CONTROLLER, "node.id": "2"}, "node.id 2, which has the role controller, must be among them"),
    ({**CONTROLLER, "controller.quorum.voters": "1@h:0,2@h:0"}, "a controller at h:0 has no fixed port"),
    ({**CONTROLLER, "controller.quorum.voters": ""}, "give the voters"),
    ({**CONTROLLER, "listeners": "PLAINTEXT://h:1"}, "the listener PLAINTEXT://h:1 is for clients"),
    (
        {**CONTROLLER, "listeners": "CONTROLLER://h:1", "advertised.listeners": "PLAINTEXT://h:1"},
        "advertised.listeners has PLAINTEXT://h:1, which is for clients",
    ),
]


def test_roles() -> None:
    broker = ServerConfig.load(overrides={**BROKER, "controller.quorum.bootstrap.servers": "a:1,[::1]:2"})
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert broker.quorum_voters == {1: ("h", 9093)}
    assert broker.quorum_servers == (("a", 1), ("::1", 2))
    assert broker.controller_listeners == broker.advertised_controller_listeners == ()
    several = ServerConfig.load(overrides={**BROKER, "controller.quorum.voters": "1@h:1,3@h:3"})
    assert list(several.quorum_voters) == [1, 3]  # a broker may follow any quorum
    controller = ServerConfig.load(overrides=CONTROLLER)
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert controller.listeners == controller.advertised_listeners == ()
    assert controller.advertised_controller_listeners == (Listener("CONTROLLER", "127.0.0.1", 9093),)
    advertised = {**CONTROLLER, "listeners": "CONTROLLER://:9093", "advertised.listeners": "CONTROLLER://c.example:9"}
    controller = ServerConfig.load(overrides=advertised)
    assert controller.advertised_controller_listeners == (Listener("CONTROLLER", "c.example", 9),)


@pytest.mark.parametrize(("settings", "message"), REFUSED_ROLES)
def test_roles_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(OttlaError, match=message):
        ServerConfig.load(overrides=settings)


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(OttlaError, match=message):
        ServerConfig.load(overrides=settings, host_name=lambda: "here")


def test_a_refused_password_is_not_printed() -> None:
    with pytest.raises(OttlaError) as refused:
        ServerConfig.load(overrides={"ssl.key.password": "hunter2", "num.partitions": "x"})
    assert "hunter2" not in str(refused.value)


def test_the_name_of_this_host_is_asked_for_where_it_is_needed() -> None:
    asked = []

    def host_name() -> str:
        asked.append(1)
        return "here.example.org"

    config = ServerConfig.load(None, {"listeners": "PLAINTEXT://:9092"}, {}, host_name)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "here.example.org", 9092),) and asked == [1]
    ServerConfig.load(None, {"listeners": "PLAINTEXT://127.0.0.1:9092"}, {}, host_name)
    assert asked == [1]
    with pytest.raises(OttlaError, match=r"clients cannot connect to all interfaces; set advertised.listeners="):
        ServerConfig.load(None, {"listeners": "PLAINTEXT://:9092"})


def test_environment() -> None:
    kubernetes = {"OTTLA_SERVICE_HOST": "10.0.0.1", "OTTLA_PORT": "tcp://10.0.0.1:9092", "OTTLA_PORT_9092_TCP": "x"}
    config = ServerConfig.load(environ={"OTTLA_LOG_DIRS": "/e", "OTTLA_BOOTSTRAP": "h:1", **kubernetes})
    assert config.log_dirs == ("/e",)
    with pytest.raises(OttlaError, match=r"environment variable OTTLA_LOG_DIRZ: log.dirz .* did you mean log.dir"):
        ServerConfig.load(environ={"OTTLA_LOG_DIRZ": "/e"})


def test_variables_are_written_as_for_kafkas_images() -> None:
    found = from_environment({"OTTLA_LISTENER_NAME_A__B_SSL_KEYSTORE_TYPE": "1", "OTTLA_HTTP_LISTENER": ":1"})
    assert found == {"listener.name.a_b.ssl.keystore.type": "1", "ottla.http.listener": ":1"}
    assert from_environment({"OTTLA_OTTLA_HTTP_LISTENER": ":1"}) == {"ottla.http.listener": ":1"}
    with pytest.raises(OttlaError, match=r"OTTLA_CLUSTER_ID and OTTLA_OTTLA_CLUSTER_ID both set ottla\.cluster\.id"):
        from_environment({"OTTLA_CLUSTER_ID": "a", "OTTLA_OTTLA_CLUSTER_ID": "a"})


def test_every_setting_has_a_variable() -> None:
    for name in definitions.BROKER:
        assert from_environment({variable_of(name): "x"}) == {name: "x"}


def test_the_address_of_a_broker_is_for_clients() -> None:
    with pytest.raises(
        OttlaError, match="OTTLA_BOOTSTRAP_SERVERS is not a node's setting: rename it to OTTLA_BOOTSTRAP"
    ):
        ServerConfig.load(environ={"OTTLA_BOOTSTRAP_SERVERS": "127.0.0.1:9092"})


@pytest.mark.parametrize("text", ["9404", "host:", "host:x", "host:70000", "::1:9404"])
def test_http_addresses_that_are_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"num.partitions=2\nottla.http.listener={text}\n")
    with pytest.raises(
        OttlaError, match=r"server.properties line 2: setting ottla.http.listener=.* allowed is host:port"
    ):
        ServerConfig.load(SettingsFile(file.name, file.read_bytes()))


def test_http_addresses() -> None:
    assert parse_address("[::1]:9404") == ("::1", 9404)
    assert parse_address(":0") == ("", 0)
    assert ServerConfig.load(overrides={"ottla.http.listener": ""})["ottla.http.listener"] == ""


@pytest.mark.parametrize("text", ["127.0.0.1:9092", ":9092", "0.0.0.0:9092"])
def test_http_and_clients_cannot_share_a_port(text: str) -> None:
    with pytest.raises(OttlaError, match="have the same port"):
        ServerConfig.load(overrides={"ottla.http.listener": text})
    ServerConfig.load(overrides={"ottla.http.listener": text, "listeners": "PLAINTEXT://127.0.0.1:9093"})


@pytest.mark.parametrize("text", ["PLAINTEXT://[::1]:9092", "plaintext://localhost:0", "PLAINTEXT://:9092"])
def test_listeners_print_as_they_read(text: str) -> None:
    config = ServerConfig.load(overrides={"listeners": text, "advertised.listeners": "PLAINTEXT://h:1"})
    assert str(config.listeners[0]).lower() == text.lower()


def test_settings_of_listeners_and_plugins_are_let_through() -> None:
    ServerConfig.load(overrides={"listener.name.internal.ssl.key.password": "x", "rsm.config.bucket": "y"})


def test_dynamic_settings_lie_over_static_ones() -> None:
    config = ServerConfig.load(overrides={"log.retention.ms": "5"})
    assert config.apply_dynamic({"log.retention.ms": "6", "message.max.bytes": "10"}, {}) == {
        "log.retention.ms",
        "message.max.bytes",
    }
    assert config.log_retention_ms == config["log.retention.ms"] == 6
    assert config.topic_defaults()["retention.ms"] == "6"
    assert config.apply_dynamic({"log.retention.ms": "6"}, {"log.retention.ms": "7"}) == {
        "log.retention.ms",
        "message.max.bytes",
    }
    assert config.log_retention_ms == config["log.retention.ms"] == 7
    assert config.apply_dynamic({}, {}) == {"log.retention.ms"}
    assert config.log_retention_ms == config["log.retention.ms"] == 5
    assert config.apply_dynamic({}, {}) == frozenset()


def test_a_copy_on_which_dynamic_settings_are_tried_changes_nothing() -> None:
    config = ServerConfig.load(overrides={"log.retention.ms": "5"})
    assert config.log_retention_ms == 5
    trial = copy.copy(config)
    assert (config.message_max_bytes, trial.log_roll_hours) == (1048588, 168)
    trial.apply_dynamic({"log.retention.ms": "6"}, {})
    assert (trial.log_retention_ms, config.log_retention_ms) == (6, 5)
    config.apply_dynamic({"log.retention.ms": "7", "message.max.bytes": "8"}, {})
    assert (trial.log_retention_ms, config.log_retention_ms, config.message_max_bytes) == (6, 7, 8)
    assert trial.message_max_bytes == 1048588


def test_settings_are_attributes_where_there_is_such_a_setting() -> None:
    config = ServerConfig.load(overrides={"offsets.retention.minutes": "7"})
    assert (config.offsets_retention_minutes, config.effective.offsets_retention_minutes) == (7, 7)
    assert copy.copy(config).offsets_retention_minutes == 7
    for each in (config, config.effective):
        with pytest.raises(AttributeError, match=r"has no attribute offsets_retention_minute$"):
            each.offsets_retention_minute  # noqa: B018


def test_settings_of_a_listener_have_an_effect_where_a_listener_may_have_its_own() -> None:
    own = [
        "x.ssl.client.auth",
        "x.plain.sasl.jaas.config",
        "x.max.connection.creation.rate",
        "x.connections.max.reauth.ms",
    ]
    others = ["x.ssl.keymanager.algorithm", "x.num.partitions", "x"]
    for name in (*own, *others):
        assert foreign.is_known(f"listener.name.{name}")
        assert foreign.has_effect(f"listener.name.{name}", {}) == (name in own), name


def test_dynamic_settings_that_cannot_be_are_ignored() -> None:
    config = ServerConfig.load()
    assert config.apply_dynamic({"num.partitions": "9", "message.max.bytes": "x", "unheard.of": "1"}, {}) == frozenset()
    assert config["num.partitions"] == 1
    assert config["message.max.bytes"] == 1048588


SYNONYMS = [
    ({}, "604800000"),
    ({"log.retention.hours": "1"}, "3600000"),
    ({"log.retention.hours": "1", "log.retention.minutes": "2"}, "120000"),
    ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, "3"),
    ({"log.retention.hours": "-1"}, "-1"),
    ({"log.retention.minutes": "-1"}, "-1"),
]


@pytest.mark.parametrize(("settings", "retention_ms"), SYNONYMS)
def test_a_topics_default_comes_from_the_first_synonym_with_a_value(
    settings: dict[str, str], retention_ms: str
) -> None:
    assert ServerConfig.load(overrides=settings).topic_defaults()["retention.ms"] == retention_ms


def test_flush_interval_falls_back_to_the_schedulers() -> None:
    assert ServerConfig.load(overrides={"log.flush.scheduler.interval.ms": "9"}).topic_defaults()["flush.ms"] == "9"


def test_the_logs_of_a_topic() -> None:
    config = ServerConfig.load(overrides={"log.cleanup.policy": "compact,delete", "log.preallocate": "true"})
    properties = config.log_config_properties({"retention.ms": "1", "internal.segment.bytes": "100"})
    log_config = LogConfig.from_properties(properties)
    assert log_config.cleanup_policy == {"compact", "delete"}
    assert log_config.preallocate
    assert log_config.retention_ms == 1
    assert log_config.segment_bytes == 100
    assert LogConfig.from_properties(ServerConfig.load().log_config_properties()) == LogConfig()


def test_kafkas_own_example_file_starts_a_node(tmp_path: Path) -> None:
    """What config/server.properties says of listeners since KIP-853: the controller's is advertised too."""
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ninter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT\n"
    )
    config = ServerConfig.load(SettingsFile(file.name, file.read_bytes()))
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert [each.name for each in config.controller_listeners] == ["CONTROLLER"]


@pytest.mark.parametrize(
    ("settings", "expected", "uses_tls"),
    [
        ({}, ("PLAINTEXT", "PLAINTEXT"), False),
        ({"listeners": "SSL://h:1"}, ("SSL", "SSL"), True),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:2"}, ("PLAINTEXT", "PLAINTEXT"), True),
        ({"listeners": "PLAINTEXT://h:2", "security.inter.broker.protocol": "PLAINTEXT"}, ("PLAINTEXT",) * 2, False),
        (
            {
                "listeners": "IN://h:1,OUT://h:2",
                "listener.security.protocol.map": "IN:SASL_SSL,OUT:PLAINTEXT",
                "inter.broker.listener.name": "OUT",
            },
            ("OUT", "PLAINTEXT"),
            True,
        ),
        ({**BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}, ("PLAINTEXT",) * 2, True),
    ],
)
def test_by_which_listener_brokers_reach_each_other(
    settings: dict[str, str], expected: tuple[str, str], uses_tls: bool
) -> None:
    config = ServerConfig.load(overrides=settings)
    assert config.inter_broker_listener == expected
    assert config.uses_tls is uses_tls


def test_settings_of_a_listener_and_of_a_mechanism() -> None:
    """The more specific name decides; a dynamic value before a static one of the same name."""
    config = ServerConfig.load(
        overrides={
            "ssl.client.auth": "requested",
            "listener.name.x.ssl.client.auth": "required",
            "connections.max.reauth.ms": "1",
            "listener.name.x.connections.max.reauth.ms": "2",
            "listener.name.x.scram-sha-256.connections.max.reauth.ms": "3",
        }
    )
    assert [of_listener(config, name, "ssl.client.auth") for name in ("X", "Y")] == ["required", "requested"]
    assert of_mechanism(config, "X", "SCRAM-SHA-256", "connections.max.reauth.ms") == 3
    assert of_mechanism(config, "X", "PLAIN", "connections.max.reauth.ms") == 2
    assert of_mechanism(config, "Y", "PLAIN", "connections.max.reauth.ms") == 1
    config.apply_dynamic({"listener.name.x.ssl.client.auth": "none"}, {})
    assert of_listener(config, "X", "ssl.client.auth") == "none"
    config.apply_dynamic({"listener.name.x.ssl.client.auth": "nonsense"}, {})
    assert of_listener(config, "X", "ssl.client.auth") == "requested"
