"""What the records of a decision change, as the audit log has it: before, after, and no secret."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.config.definitions import may_be_secret
from ottla.controller.changes import _KINDS as KINDS
from ottla.controller.changes import Change, Resource, changes_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ConfigResourceType, MetadataImage
from ottla.metadata.replay import replay
from ottla.protocol import schemas
from ottla.protocol.schemas import records as r

TOPIC_ID, ACL_ID = UUID(int=7), UUID(int=8)
BROKER, TOPIC = ConfigResourceType.BROKER, ConfigResourceType.TOPIC
CANARY = "canary-c0ffee"

GOES_ON = {
    r.RegisterBrokerRecord, r.FenceBrokerRecord, r.UnfenceBrokerRecord, r.ProducerIdsRecord,
    r.BrokerRegistrationChangeRecord, r.NoOpRecord, r.ZkMigrationStateRecord, r.BeginTransactionRecord,
    r.EndTransactionRecord, r.AbortTransactionRecord, r.RegisterControllerRecord, r.ClearElrRecord,
}  # fmt: skip
"""Records that no administrator asks for."""


def partition(number: int, replicas: tuple[int, ...] = (1, 2)) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=number,
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=replicas,
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=1),) * len(replicas),
    )


def acl(name: str = "orders", pattern_type: int = 3) -> r.AccessControlEntryRecord:
    return r.AccessControlEntryRecord(
        id=ACL_ID,
        resource_type=2,
        resource_name=name,
        pattern_type=pattern_type,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )


def credential(iterations: int) -> r.UserScramCredentialRecord:
    secret = CANARY.encode()
    return r.UserScramCredentialRecord(
        name="alice", mechanism=1, salt=secret, stored_key=secret, server_key=secret, iterations=iterations
    )


def config(kind: int, name: str, setting: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=kind, resource_name=name, name=setting, value=value)


def quota(value: float, *, remove: bool = False) -> r.ClientQuotaRecord:
    entity = (r.QuotaEntityData("user", "alice"), r.QuotaEntityData("client-id", None))
    return r.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=value, remove=remove)


def image_of(*records: Any) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        replay(record, delta)
    return delta.apply(len(records) - 1, 1, 0)


def found(image: MetadataImage, *records: Any) -> list[tuple[str, str, Any, Any]]:
    return [
        (f"{each.resource.kind} {each.resource.name}", each.what, each.before, each.after)
        for each in changes_of(records, image)
        if each is not None
    ]


SHOWN = "StandardAcl[resourceType=TOPIC, resourceName={}, patternType={}, principal=User:alice, host=*, operation=READ, permissionType=ALLOW]"  # noqa: E501
BEFORE = image_of(
    r.FeatureLevelRecord("metadata.version", 25), r.TopicRecord("orders", TOPIC_ID), partition(0), partition(1),
    config(TOPIC, "orders", "retention.ms", "1000"), config(BROKER, "", "log.retention.ms", "9"), acl(),
    credential(4096), quota(5.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([config(TOPIC, "orders", "retention.ms", "5")], [("TOPIC orders", "retention.ms", "1000", "5")]),
        ([config(TOPIC, "orders", "retention.ms", None)], [("TOPIC orders", "retention.ms", "1000", None)]),
        ([config(BROKER, "", "log.retention.ms", "3")], [("BROKER ", "log.retention.ms", "9", "3")]),
        ([acl("order", 4)], [("TOPIC order*", "acl", None, SHOWN.format("order", "PREFIXED"))]),
        (
            [r.RemoveAccessControlEntryRecord(ACL_ID)],
            [("TOPIC orders", "acl", SHOWN.format("orders", "LITERAL"), None)],
        ),
        (
            [credential(8192)],
            [("USER alice", "SCRAM-SHA-256", "[hidden] (4096 iterations)", "[hidden] (8192 iterations)")],
        ),
        (
            [r.RemoveUserScramCredentialRecord("alice", 1)],
            [("USER alice", "SCRAM-SHA-256", "[hidden] (4096 iterations)", None)],
        ),
        ([quota(7.0)], [("QUOTA client-id=<default>,user=alice", "producer_byte_rate", 5.0, 7.0)]),
        ([quota(0.0, remove=True)], [("QUOTA client-id=<default>,user=alice", "producer_byte_rate", 5.0, None)]),
        ([partition(2), partition(3)], [("TOPIC orders", "partitions", 2, 4)]),
        ([r.TopicRecord("new", UUID(int=9))], [("TOPIC new", "topic", None, str(UUID(int=9)))]),
        (
            [r.RemoveTopicRecord(TOPIC_ID)],
            [
                ("TOPIC orders", "topic", str(TOPIC_ID), None),
                ("TOPIC orders", "partitions", 2, None),
                ("TOPIC orders", "retention.ms", "1000", None),
            ],
        ),
        (
            [r.PartitionChangeRecord(1, TOPIC_ID, replicas=(2, 3), adding_replicas=(3,))],
            [
                ("TOPIC orders", "replicas of partition 1", [1, 2], [2, 3]),
                ("TOPIC orders", "adding replicas of partition 1", [], [3]),
            ],
        ),
        ([r.PartitionChangeRecord(1, TOPIC_ID, leader=2)], []),
        (
            [r.FeatureLevelRecord("metadata.version", 29)],
            [("CLUSTER kafka-cluster", "feature metadata.version", 25, 29)],
        ),
        ([r.UnregisterBrokerRecord(3, 1)], [("BROKER 3", "registration", "registered", None)]),
        ([r.UnregisterControllerRecord(3)], [("CONTROLLER 3", "registration", "registered", None)]),
    ],
)
def test_before_and_after(records: list[Any], expected: list[Any]) -> None:
    assert found(BEFORE, *records) == expected


def test_a_new_topic() -> None:
    topic = r.TopicRecord("new", TOPIC_ID)
    made = found(EMPTY_IMAGE, topic, config(TOPIC, "new", "retention.ms", "5"), partition(0), partition(1))
    assert made == [
        ("TOPIC new", "topic", None, str(TOPIC_ID)),
        ("TOPIC new", "retention.ms", None, "5"),
        ("TOPIC new", "replication factor", None, 2),
        ("TOPIC new", "partitions", None, 2),
    ]


def test_a_setting_that_is_changed_twice() -> None:
    twice = [config(TOPIC, "orders", "retention.ms", each) for each in ("5", "6")]
    assert [each[2:] for each in found(BEFORE, *twice)] == [("1000", "5"), ("5", "6")]


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.password",
        "listener.name.external.ssl.key.password",
        "listener.name.x.plain.sasl.jaas.config",
        "sasl.jaas.config",
        "my.plugin.secret",
        "listener.name.external.scram-sha-256.sasl.jaas.config",
    ],
)
def test_secrets_are_hidden_before_and_after(name: str) -> None:
    image = image_of(config(BROKER, "1", name, CANARY))
    said = found(image, config(BROKER, "1", name, f"{CANARY}-2"))
    assert said == [("BROKER 1", name, "[hidden]", "[hidden]")]
    assert found(image, config(BROKER, "1", name, None)) == [("BROKER 1", name, "[hidden]", None)]
    assert CANARY not in str(said) + str(found(image, credential(5000)))


def test_what_is_no_secret_is_shown() -> None:
    for name in ("ssl.keystore.location", "listener.name.external.ssl.keystore.location", "log.retention.ms"):
        assert not may_be_secret(BROKER, name)
    assert not may_be_secret(TOPIC, "leader.replication.throttled.replicas")
    assert not may_be_secret(BROKER, "leader.replication.throttled.rate")


def test_every_record_is_known() -> None:
    """A new kind of record is described, or is one by which a cluster only goes on."""
    names = schemas.by_key("metadata", "(?!Remote(Log|Partition))").values()
    classes = {schemas.message_class(each) for each in names}
    assert classes == KINDS.keys() | GOES_ON and not KINDS.keys() & GOES_ON
    assert Change(Resource("A", "b"), "c", None, 1).after == 1
