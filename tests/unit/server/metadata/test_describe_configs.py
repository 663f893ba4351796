"""DescribeConfigs; what is expected was seen from Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.unit.server.admin import asking, image_of, node_of, partition, topic

ask = asking(ApiKey.DESCRIBE_CONFIGS)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
INVALID_REQUEST = ErrorCode.invalid_request


def node(**settings: str) -> Any:
    configs = {
        (TOPIC, "t"): {"retention.ms": "1000000", "cleanup.policy": " compact , delete"},
        (GROUP, "g"): {"consumer.session.timeout.ms": "46000", "share.auto.offset.reset": "earliest"},
        (METRICS, "m"): {"interval.ms": "1000"},
    }
    return node_of(image_of(topic("t", partition(1)), configs=configs), **settings)


def describe(
    where: Any, resource_type: int, name: str, *keys: str, version: int = 4, synonyms: bool = True, doc: bool = False
) -> dict[str, Any]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": list(keys) or None}
    values = {"resources": [resource], "include_synonyms": synonyms, "include_documentation": doc}
    (result,) = ask(where, values, version)["results"]
    assert (result["resource_type"], result["resource_name"]) == (resource_type, name)
    return result


def entries(*arguments: Any, **options: Any) -> dict[str, dict[str, Any]]:
    result = describe(*arguments, **options)
    assert result["error_code"] == ErrorCode.none
    assert result["error_message"] == ""
    return {each["name"]: each for each in result["configs"]}


def rows(entry: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    """An entry as its value and source, then its synonyms."""
    head = (entry["name"], entry["value"], entry["config_source"])
    return [head, *((each["name"], each["value"], each["source"]) for each in entry["synonyms"])]


def test_a_topic() -> None:
    found = entries(node(), TOPIC, "t")
    assert len(found) == 37
    assert "internal.segment.bytes" not in found
    assert rows(found["retention.ms"]) == [("retention.ms", "1000000", 1), ("retention.ms", "1000000", 1)]
    assert rows(found["cleanup.policy"])[0] == ("cleanup.policy", "compact,delete", 1)
    assert rows(found["cleanup.policy"])[2] == ("log.cleanup.policy", "delete", 5)
    assert rows(found["segment.ms"]) == [("segment.ms", "604800000", 5)]
    assert rows(found["max.message.bytes"]) == [
        ("max.message.bytes", "1048588", 5),
        ("message.max.bytes", "1048588", 5),
    ]
    assert rows(found["remote.storage.enable"]) == [("remote.storage.enable", "false", 5)]
    assert not any(each["read_only"] or each["is_sensitive"] for each in found.values())
    assert {each["documentation"] for each in found.values()} == {None}


def test_dynamic_settings_of_brokers() -> None:
    where = node(log_retention_ms="5")
    where.config.apply_dynamic({"log.retention.ms": "888888"}, {"log.retention.ms": "777777"})
    found = entries(where, BROKER, "1", "log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert rows(found["log.retention.ms"]) == [
        ("log.retention.ms", "777777", 2),
        ("log.retention.ms", "777777", 2),
        ("log.retention.ms", "888888", 3),
        ("log.retention.ms", "5", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert rows(found["log.retention.minutes"]) == [("log.retention.minutes", None, 5)]
    assert rows(found["log.retention.hours"])[1:] == [("log.retention.hours", "168", 5)]
    assert not found["log.retention.ms"]["read_only"]
    assert found["log.retention.hours"]["read_only"]
    shared = entries(where, BROKER, "")
    assert [rows(each) for each in shared.values()] == [
        [("log.retention.ms", "888888", 3), ("log.retention.ms", "888888", 3)]
    ]
    assert rows(entries(where, TOPIC, "t")["retention.ms"])[2:5] == [
        ("log.retention.ms", "777777", 2),
        ("log.retention.ms", "888888", 3),
        ("log.retention.ms", "5", 4),
    ]


def test_a_broker() -> None:
    found = entries(node(ssl_key_password="hunter2"), BROKER, "1")
    assert sum(not name.startswith("ottla.") for name in found) == 355
    assert rows(found["node.id"]) == [("node.id", "1", 4), ("node.id", "1", 4)]
    assert rows(found["broker.id"])[1:] == [("broker.id", "1", 4), ("broker.id", "-1", 5)]
    secret = found["ssl.key.password"]
    assert (secret["value"], secret["is_sensitive"], secret["synonyms"][0]["value"]) == (None, True, None)
    assert "hunter2" not in str(found)


def test_settings_outside_the_table_do_not_show_their_value() -> None:
    where = node(rsm_config_secret="hunter2")
    where.config.apply_dynamic({"bogus": "1"}, {"bogus": "2"})
    found = entries(where, BROKER, "1", "bogus", "rsm.config.secret")
    assert rows(found["bogus"]) == [("bogus", None, 2), ("bogus", None, 2), ("bogus", None, 3)]
    assert all(each["is_sensitive"] and each["read_only"] and not each["config_type"] for each in found.values())
    assert rows(entries(where, BROKER, "")["bogus"]) == [("bogus", None, 3), ("bogus", None, 3)]


def test_a_group() -> None:
    found = entries(node(), GROUP, "g")
    assert sum(not name.startswith("ottla.") for name in found) == 24
    assert rows(found["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "46000", 8),
        ("consumer.session.timeout.ms", "46000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert rows(found["share.auto.offset.reset"])[2:] == [("share.auto.offset.reset", "latest", 5)]
    assert rows(entries(node(), GROUP, "other")["streams.session.timeout.ms"]) == [
        ("streams.session.timeout.ms", "45000", 5),
        ("group.streams.session.timeout.ms", "45000", 5),
    ]


def test_a_client_metrics_subscription() -> None:
    assert [rows(each) for each in entries(node(), METRICS, "m").values()] == [
        [("metrics", "", 5)],
        [("interval.ms", "1000", 7), ("interval.ms", "1000", 7)],
        [("match", "", 5)],
    ]


def test_loggers() -> None:
    root = entries(node(), LOGGER, "1", doc=True)["root"]
    assert root["value"] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert (root["config_source"], root["is_sensitive"], root["read_only"], root["synonyms"]) == (6, False, False, [])


@pytest.mark.parametrize("version", range(1, 5))
def test_what_was_asked_for(version: int) -> None:
    found = entries(node(), BROKER, "1", "log.dirs", "nope", version=version, synonyms=False, doc=True)
    assert list(found) == ["log.dirs"]
    assert (found["log.dirs"]["value"], found["log.dirs"]["synonyms"]) == ("/data", [])
    if version >= 3:
        assert found["log.dirs"]["config_type"] == 7
        assert found["log.dirs"]["documentation"] == "The directories of the logs."


REFUSED = [
    (TOPIC, "nope", ErrorCode.unknown_topic_or_partition, ""),
    (
        TOPIC,
        "b a d",
        ErrorCode.invalid_topic_exception,
        "Topic name is invalid: 'b a d' contains one or more characters "
        "other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (BROKER, "2", INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
    (BROKER, "x", INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
    (LOGGER, "", INVALID_REQUEST, "Broker id must not be empty"),
    (LOGGER, "2", INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
    (METRICS, "", INVALID_REQUEST, "Client metrics subscription name must not be empty"),
    (GROUP, "", INVALID_REQUEST, "Group name must not be empty"),
]


@pytest.mark.parametrize(("resource_type", "name", "code", "message"), REFUSED)
def test_refused(resource_type: int, name: str, code: ErrorCode, message: str) -> None:
    result = describe(node(), resource_type, name)
    assert (result["error_code"], result["error_message"], result["configs"]) == (code, message, [])


def test_an_unknown_type_fails_the_whole_request() -> None:
    resources = [
        {"resource_type": kind, "resource_name": "t", "configuration_keys": None} for kind in (TOPIC, 0, 3, 64)
    ]
    results = ask(node(), {"resources": resources})["results"]
    assert {each["error_code"] for each in results} == {INVALID_REQUEST}
    assert {each["error_message"][:40] for each in results} == {"This most likely occurs because of a req"}
    assert ask(node(), {"resources": []})["results"] == []
