"""Changes of settings. Codes and sentences are those that Apache Kafka 4.3 gave."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.controller.configs import Operation, alter_configs, incremental_alter_configs, refused_by_broker
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import one_broker, topic_records

CONFIG = ServerConfig.load()
TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = Operation
Change = tuple[str, int, str | None]


def cluster(*records: Any) -> MetadataImage:
    return one_broker(*topic_records("t", 7), *topic_records("u", 8), *records)


def alter(
    image: MetadataImage, *resources: tuple[int, str, list[Change]], **fields: Any
) -> tuple[list[Any], list[Any]]:
    asked = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": how, "value": value} for key, how, value in changes],
        }
        for kind, name, changes in resources
    ]
    decision = at_once(incremental_alter_configs(image, {"resources": asked, **fields}, CONFIG.effective))
    rows = [(row.get("error_code", 0), row["error_message"]) for row in decision.response["responses"]]
    return rows, list(decision.records)


def test_values_are_set_and_removed() -> None:
    image = cluster(r.ConfigRecord(TOPIC, "t", "segment.ms", "9"))
    rows, records = alter(image, (TOPIC, "t", [("retention.ms", SET, "5"), ("segment.ms", DELETE, None)]))
    assert rows == [(0, None)]
    assert records == [r.ConfigRecord(TOPIC, "t", "retention.ms", "5"), r.ConfigRecord(TOPIC, "t", "segment.ms", None)]


def test_what_stays_the_same_is_not_written_except_for_brokers() -> None:
    image = cluster(
        r.ConfigRecord(TOPIC, "t", "segment.ms", "9"), r.ConfigRecord(BROKER, "1", "log.cleaner.threads", "2")
    )
    _, records = alter(image, (TOPIC, "t", [("segment.ms", SET, "9"), ("retention.ms", DELETE, None)]))
    assert not records
    _, records = alter(image, (BROKER, "1", [("log.cleaner.threads", SET, "2")]))
    assert len(records) == 1


def test_lists_are_appended_to_and_subtracted_from() -> None:
    _, records = alter(cluster(), (TOPIC, "t", [("cleanup.policy", APPEND, "compact,delete")]))
    assert [record.value for record in records] == ["delete,compact"]
    image = cluster(*records)
    _, records = alter(image, (TOPIC, "t", [("cleanup.policy", SUBTRACT, "delete")]))
    assert [record.value for record in records] == ["compact"]


def test_validate_only_writes_nothing() -> None:
    rows, records = alter(cluster(), (TOPIC, "t", [("retention.ms", SET, "5")]), validate_only=True)
    assert rows == [(0, None)]
    assert not records


BAD = ErrorCode.invalid_request
CONFIG_BAD = ErrorCode.invalid_config
REFUSED: list[tuple[int, str, list[Change], ErrorCode, str]] = [
    (TOPIC, "t", [("no", SET, "1")], CONFIG_BAD, "Unknown topic config name: no"),
    (TOPIC, "t", [("retention.ms", SET, None)], BAD, "Null value not supported for : retention.ms"),
    (TOPIC, "t", [("a", SET, "1"), ("a", SET, "2")], BAD, "Error due to duplicate config keys"),
    (
        TOPIC,
        "t",
        [("retention.ms", APPEND, "1")],
        CONFIG_BAD,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (TOPIC, "t", [("retention.ms", 9, "1")], BAD, "Unknown operations type 9"),
    (TOPIC, "z", [("retention.ms", SET, "1")], ErrorCode.unknown_topic_or_partition, "The topic 'z' does not exist."),
    (TOPIC, "", [("retention.ms", SET, "1")], BAD, "Default topic resources are not allowed."),
    (77, "t", [], BAD, "Unknown resource type 77"),
    (BROKER, "x", [("x", SET, "2")], BAD, "Node id must be an integer, but it is: x"),
    (
        BROKER,
        "1",
        [("log.cleaner.threads", APPEND, "2")],
        CONFIG_BAD,
        "Config value append is not allowed for config key: log.cleaner.threads",
    ),
    (
        BROKER,
        "1",
        [("min.insync.replicas", SET, "1")],
        CONFIG_BAD,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    ),
    (
        BROKER,
        "",
        [("min.insync.replicas", DELETE, None)],
        CONFIG_BAD,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    ),
    (GROUP, "g", [("no", SET, "1")], CONFIG_BAD, "Unknown group config name: no"),
    (GROUP, "", [], BAD, "Default group resources are not allowed."),
    (METRICS, "", [], BAD, "Subscription name can't be empty"),
]


@pytest.mark.parametrize(("kind", "name", "changes", "code", "message"), REFUSED)
def test_what_is_refused_says_why(kind: int, name: str, changes: list[Change], code: ErrorCode, message: str) -> None:
    rows, records = alter(cluster(), (kind, name, changes))
    assert rows == [(code, message)]
    assert not records


def test_resources_stand_for_themselves() -> None:
    rows, records = alter(
        cluster(), (TOPIC, "t", [("retention.ms", SET, "x")]), (TOPIC, "u", [("retention.ms", SET, "5")])
    )
    assert [code for code, _ in rows] == [CONFIG_BAD, 0]
    assert [record.resource_name for record in records] == ["u"]


def test_a_resource_named_twice_is_not_changed() -> None:
    change: list[Change] = [("retention.ms", SET, "5")]
    rows, records = alter(cluster(), (TOPIC, "t", change), (TOPIC, "t", change))
    assert rows == [(BAD, "Each resource must appear at most once.")] * 2
    assert not records


def test_a_new_min_isr_voids_who_was_eligible_to_lead() -> None:
    _, records = alter(cluster(), (TOPIC, "t", [("min.insync.replicas", SET, "2")]))
    assert records[-1] == r.ClearElrRecord("t")
    _, records = alter(cluster(), (BROKER, "", [("min.insync.replicas", SET, "2")]))
    assert records[-1] == r.ClearElrRecord("")


def test_the_older_form_replaces_all_settings() -> None:
    image = cluster(r.ConfigRecord(TOPIC, "t", "segment.ms", "9"), r.ConfigRecord(TOPIC, "t", "retention.ms", "5"))
    configs = [{"name": "retention.ms", "value": "6"}]
    request = {"resources": [{"resource_type": TOPIC, "resource_name": "t", "configs": configs}]}
    decision = at_once(alter_configs(image, request, CONFIG.effective))
    assert list(decision.records) == [
        r.ConfigRecord(TOPIC, "t", "retention.ms", "6"),
        r.ConfigRecord(TOPIC, "t", "segment.ms", None),
    ]


def test_a_broker_passes_on_what_it_does_not_refuse_itself() -> None:
    """Kafka's ConfigAdminManager: another broker's settings, forms that cannot be; the rest is the controller's."""

    def resource(kind: int, name: str, *configs: tuple[str, str | None]) -> dict[str, Any]:
        entries = [{"name": key, "config_operation": SET, "value": value} for key, value in configs]
        return {"resource_type": kind, "resource_name": name, "configs": entries}

    asked = [
        resource(BROKER, "1", ("log.cleaner.threads", "2")),
        resource(BROKER, "2", ("log.cleaner.threads", "2")),
        resource(BROKER, "x", ("log.cleaner.threads", "2")),
        resource(BROKER, "", ("log.cleaner.threads", "2")),
        resource(TOPIC, "t", ("retention.ms", None)),
        resource(TOPIC, "u", ("no such setting", "1")),
        resource(8, "2", ("root", "INFO")),
        resource(GROUP, "g"),
        resource(GROUP, "g"),
    ]
    assert refusals(asked, incremental=True) == {
        1: "Unexpected broker id, expected 1, but received 2",
        2: "Node id must be an integer, but it is: x",
        4: "Null value not supported for : retention.ms",
        7: "Each resource must appear at most once.",
        8: "Each resource must appear at most once.",
    }


def refusals(resources: list[dict[str, Any]], *, incremental: bool) -> dict[int, str | None]:
    found = at_once(refused_by_broker(cluster(), {"resources": resources}, 1, incremental=incremental))
    return {place: error.message for place, error in found.items()}


def test_only_a_broker_checks_the_values_of_brokers_settings() -> None:
    """A controller does not: the broker may be of another release, or of Kafka."""
    bad = {
        "num.io.threads": ("0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        "node.id": ("2", "Cannot update these configs dynamically: [node.id]"),
    }
    logger = {"resource_type": 8, "resource_name": "1", "configs": []}
    for name, (value, why) in bad.items():
        of_one = {"resource_type": BROKER, "resource_name": "1", "configs": [{"name": name, "value": value}]}
        assert refusals([of_one, logger], incremental=False) == {0: why, 1: "Unknown resource type 8"}
        operation = {"name": name, "value": value, "config_operation": SET}
        assert refusals([{**of_one, "configs": [operation]}, logger], incremental=True) == {0: why}
        rows, records = alter(cluster(), (BROKER, "1", [(name, SET, value)]))
        assert (rows, len(records)) == ([(ErrorCode.none, None)], 1)


def test_another_brokers_settings_are_the_controllers_to_record() -> None:
    """Any broker forwards those that it was asked for."""
    rows, records = alter(cluster(), (BROKER, "2", [("log.cleaner.threads", SET, "2")]))
    assert (rows, len(records)) == ([(ErrorCode.none, None)], 1)
