"""Values of settings: what is accepted, how it prints, and Kafka's sentences for what is refused."""

from __future__ import annotations

import pytest

from ottla.config import definitions
from ottla.config.checks import InvalidValue, java_text
from ottla.config.setting import Mode, Setting, Type

RESOURCES = {
    "broker": definitions.BROKER,
    "topic": definitions.TOPIC,
    "group": definitions.GROUP,
    "client metrics": definitions.CLIENT_METRICS,
}


def test_every_default_is_a_value_that_prints_as_it_stands() -> None:
    for table in RESOURCES.values():
        for setting in table.values():
            if setting.default is not None:
                assert setting.render(setting.parse(setting.default)) == setting.default, setting.name
            assert setting.doc.endswith("."), setting.name
            assert setting.allowed, setting.name


def test_no_section_repeats_a_setting_of_another() -> None:
    assert sum(len(section.settings) for section in definitions.BROKER_SECTIONS) == len(definitions.BROKER)


def test_synonyms_name_settings_that_exist() -> None:
    for topic_setting, synonyms in definitions.TOPIC_SYNONYMS.items():
        assert topic_setting in definitions.TOPIC
        assert all(synonym.name in definitions.BROKER for synonym in synonyms)


def test_some_settings_change_in_each_mode() -> None:
    assert {setting.mode for setting in definitions.BROKER.values()} == set(Mode)


ACCEPTED = [
    (Type.BOOLEAN, " True ", True),
    (Type.INT, "+12", 12),
    (Type.SHORT, "-32768", -32768),
    (Type.LONG, " 9223372036854775807\t", 2**63 - 1),
    (Type.DOUBLE, "1e3", 1000.0),
    (Type.STRING, "  a b ", "a b"),
    (Type.PASSWORD, " secret ", " secret "),
    (Type.LIST, "", ()),
    (Type.LIST, " a ,b,, a", ("a", "b", "")),
]


@pytest.mark.parametrize(("kind", "text", "value"), ACCEPTED)
def test_types_accept(kind: Type, text: str, value: object) -> None:
    assert Setting("x", kind, None).parse(text) == value


REFUSED = [
    (Type.BOOLEAN, "yes", "Invalid value yes for configuration x: Expected value to be either true or false"),
    (Type.INT, "2147483648", "Invalid value 2147483648 for configuration x: Not a number of type INT"),
    (Type.INT, "1_000", "Invalid value 1_000 for configuration x: Not a number of type INT"),
    (Type.INT, "", "Invalid value  for configuration x: Not a number of type INT"),
    (Type.SHORT, "32768", "Invalid value 32768 for configuration x: Not a number of type SHORT"),
    (Type.LONG, "1.5", "Invalid value 1.5 for configuration x: Not a number of type LONG"),
    (Type.LONG, "\u0661", "Invalid value \u0661 for configuration x: Not a number of type LONG"),
    (Type.DOUBLE, "half", "Invalid value half for configuration x: Not a number of type DOUBLE"),
    (Type.DOUBLE, "NaN", "Invalid value NaN for configuration x: Not a number of type DOUBLE"),
]


@pytest.mark.parametrize(("kind", "text", "message"), REFUSED)
def test_types_refuse(kind: Type, text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Setting("x", kind, None).parse(text)
    assert str(refused.value) == message


OUT_OF_RANGE = [
    ("topic", "retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    (
        "topic",
        "compression.zstd.level",
        "50",
        "Invalid value 50 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    (
        "topic",
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "topic",
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "topic",
        "compression.type",
        "x",
        "Invalid value x for configuration compression.type: String must be one of: "
        "uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "topic",
        "cleanup.policy",
        "delete,x",
        "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ("topic", "cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
    (
        "broker",
        "process.roles",
        "",
        "Configuration 'process.roles' must not be empty. Valid values include: [broker, controller]",
    ),
    ("broker", "log.dirs", "", "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value"),
    (
        "broker",
        "group.consumer.migration.policy",
        "sideways",
        "Invalid value sideways for configuration group.consumer.migration.policy: String must be one of "
        "(case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
    ),
    (
        "broker",
        "remote.log.storage.manager.impl.prefix",
        "",
        "Invalid value  for configuration remote.log.storage.manager.impl.prefix: String must be non-empty",
    ),
    (
        "topic",
        "leader.replication.throttled.replicas",
        "x",
        "Invalid value [x] for configuration leader.replication.throttled.replicas: "
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
]


@pytest.mark.parametrize(("resource", "name", "text", "message"), OUT_OF_RANGE)
def test_checks_refuse_with_the_words_of_kafka(resource: str, name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        RESOURCES[resource][name].parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["*", "0:1,1:2", "", "0:1,", "0:1,,1:2", ","])
def test_throttled_replicas(text: str) -> None:
    definitions.TOPIC["follower.replication.throttled.replicas"].parse(text)


DOUBLES = [
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (0.001, "0.001"),
    (1e7, "1.0E7"),
    (123456789.0, "1.23456789E8"),
    (1e-5, "1.0E-5"),
    (0.5, "0.5"),
    (12.0, "12.0"),
    (0.0, "0.0"),
    (float("inf"), "Infinity"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert java_text(value) == text


def test_passwords_never_show() -> None:
    setting = definitions.BROKER["ssl.key.password"]
    assert setting.sensitive
    assert setting.render(setting.parse("hunter2")) == "[hidden]"
