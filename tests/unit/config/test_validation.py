"""What may be written into settings: codes and sentences as Apache Kafka 4.3.0 gave them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from ottla.config.server import ServerConfig
from ottla.config.validation import (
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_config,
    validate_topic_configs,
    validate_topic_name,
)
from ottla.errors import ErrorCode, KafkaError

Validate = Callable[[Mapping[str, str]], None]

CONFIG = ServerConfig.load()
topic = partial(validate_topic_configs, defaults=CONFIG.topic_defaults())
one_broker = partial(validate_broker_configs, per_broker=True)
two_directories = partial(one_broker, log_dirs=("/a", "/b"))
all_brokers = partial(validate_broker_configs, per_broker=False)
group = partial(validate_group_configs, config=CONFIG)
metrics = validate_client_metrics_configs

INVALID, REQUEST = ErrorCode.invalid_config, ErrorCode.invalid_request

REFUSED: list[tuple[Validate, dict[str, str], ErrorCode, str]] = [
    (topic, {"bogus": "1"}, INVALID, "Unknown topic config name: bogus"),
    (topic, {"flush.ms": "x"}, INVALID, "Invalid value x for configuration flush.ms: Not a number of type LONG"),
    (
        topic, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, INVALID,
        "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
    ),
    (
        topic, {"remote.storage.enable": "true"}, INVALID,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    (one_broker, {"num.partitions": "3"}, REQUEST, "Cannot update these configs dynamically: [num.partitions]"),
    (
        one_broker, {"log.retention.ms": "abc"}, REQUEST,
        "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
    ),
    (
        one_broker, {"leader.replication.throttled.rate": "abc"}, REQUEST,
        "Invalid value abc for configuration leader.replication.throttled.rate: Not a number of type LONG",
    ),
    (
        all_brokers, {"follower.replication.throttled.rate": "-1"}, REQUEST,
        "Invalid value -1 for configuration follower.replication.throttled.rate: Value must be at least 0",
    ),
    (
        one_broker, {"ssl.keystore.location": "/x"}, REQUEST,
        "These security configs can be dynamically updated only per-listener using the listener prefix: "
        "[ssl.keystore.location]",
    ),
    (one_broker, {"log.roll.ms": "0"}, REQUEST, "requirement failed: log.roll.ms must be greater than or equal to 1"),
    (
        all_brokers, {"listeners": "PLAINTEXT://127.0.0.1:5"}, REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
    ),
    (
        one_broker, {"listeners": "PLAINTEXT://127.0.0.1:5"}, REQUEST,
        "Ottla reads these configs at start only; change the configuration file: [listeners]",
    ),
    (
        two_directories, {"cordoned.log.dirs": "/b,/c"}, REQUEST,
        "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        "Missing entries : /c",
    ),
    (
        two_directories, {"cordoned.log.dirs": "/a,*"}, REQUEST,
        "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
    ),
    (group, {"bogus": "1"}, INVALID, "Unknown group config name: bogus"),
    (
        group, {"consumer.session.timeout.ms": "1"}, INVALID,
        "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
    ),
    (
        group, {"share.heartbeat.interval.ms": "99999"}, INVALID,
        "share.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
    ),
    (
        group, {"streams.num.standby.replicas": "3"}, INVALID,
        "streams.num.standby.replicas must be less than or equal to 2",
    ),
    (
        group, {"streams.task.offset.interval.ms": "1"}, INVALID,
        "streams.task.offset.interval.ms must be greater than or equal to 15000",
    ),
    (group, {"consumer.session.timeout.ms": "x", "bogus": "1"}, INVALID, "Unknown group config name: bogus"),
    (metrics, {"bogus": "1"}, REQUEST, "Unknown client metrics configuration: bogus"),
    (metrics, {"interval.ms": "x"}, INVALID, "Invalid value x for configuration interval.ms: Not a number of type INT"),
    (
        metrics, {"interval.ms": "50"}, REQUEST,
        "Invalid value 50 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
    ),
    (metrics, {"match": "x=y"}, INVALID, "Illegal client matching pattern: x=y"),
    (metrics, {"match": "client_id=[a"}, INVALID, "Illegal client matching pattern: client_id=[a"),
]  # fmt: skip


@pytest.mark.parametrize(("validate", "configs", "code", "message"), REFUSED)
def test_refused(validate: Validate, configs: dict[str, str], code: ErrorCode, message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate(configs)
    assert (refused.value.code, refused.value.message) == (code, message)


ACCEPTED: list[tuple[Validate, dict[str, str]]] = [
    (topic, {"min.insync.replicas": "7", "cleanup.policy": "delete,delete", "internal.segment.bytes": "1"}),
    (topic, {"min.compaction.lag.ms": str(2**63 - 1)}),
    (topic, {"cleanup.policy": ""}),
    (one_broker, {"bogus": "1", "log.retention.ms": "1", "listener.name.x.ssl.keystore.location": "/x"}),
    (all_brokers, {"bogus": "1", "message.max.bytes": "1"}),
    (group, {"consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "earliest"}),
    (metrics, {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*,client_source_port=9.*"}),
    (metrics, {}),
]


@pytest.mark.parametrize(("validate", "configs"), ACCEPTED)
def test_accepted(validate: Validate, configs: dict[str, str]) -> None:
    validate(configs)


def test_one_topic_setting() -> None:
    assert validate_topic_config("retention.ms", "5") == 5
    with pytest.raises(KafkaError, match="Unknown topic config name: x"):
        validate_topic_config("x", "5")


NAMES = [
    ("", "the empty string is not allowed"),
    (".", "'.' is not allowed"),
    ("..", "'..' is not allowed"),
    ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
    ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ("\u00e9", "'\u00e9' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
]


@pytest.mark.parametrize(("name", "reason"), NAMES)
def test_topic_names_refused(name: str, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_topic_name(name)
    assert refused.value.code is ErrorCode.invalid_topic_exception
    assert refused.value.message == f"Topic name is invalid: {reason}"


@pytest.mark.parametrize("name", ["a", "...", "A-b_c.9", "a" * 249])
def test_topic_names_accepted(name: str) -> None:
    validate_topic_name(name)
