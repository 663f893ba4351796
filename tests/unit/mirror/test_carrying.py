"""What a mirror decides to carry beside records: what is created, altered, removed and left, and with which name."""

from __future__ import annotations

import json

import pytest

from ottla.mirror.carrying import (
    ACLS,
    BROKER_CONFIGS,
    QUOTAS,
    READ_ACLS,
    Belongings,
    Carry,
    Change,
    Names,
    carry_of,
    changes,
    key_of,
    made_keys,
)
from ottla.security.acls import Binding, Operation, PatternType, Permission, ResourceType

NAMES = Names(["orders", "orders.eu"], "billing.*")


def acl(
    kind: ResourceType = ResourceType.TOPIC,
    name: str = "orders",
    pattern: PatternType = PatternType.LITERAL,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
) -> Binding:
    return Binding(kind, name, pattern, "User:a", "*", operation, permission)


def of_acl(given: Binding, what: str = ACLS, names: Names = NAMES) -> Change:
    (found,) = changes(Belongings(acls=frozenset({given})), Belongings(), Carry(frozenset({what})), names, ())
    return found


P, T, G = PatternType.PREFIXED, ResourceType.TOPIC, ResourceType.GROUP


@pytest.mark.parametrize(
    ("given", "all_", "reading"),
    [
        (acl(), "create", "create"),
        (acl(operation=Operation.WRITE), "create", "leave"),
        (acl(operation=Operation.WRITE, permission=Permission.DENY), "create", "create"),
        (acl(name="other"), "leave", "leave"),
        (acl(name="*"), "create", "create"),
        (acl(name="ord", pattern=P), "create", "create"),
        (acl(name="x", pattern=P), "leave", "leave"),
        (acl(name="__consumer_offsets"), "leave", "leave"),
        (acl(name="mirror-offsets.a"), "leave", "leave"),
        (acl(G, "billing-1"), "create", "create"),
        (acl(G, "else"), "leave", "leave"),
        (acl(G, "e", P), "create", "create"),
        (acl(ResourceType.CLUSTER, "kafka-cluster", operation=Operation.CLUSTER_ACTION), "leave", "leave"),
        (acl(ResourceType.CLUSTER, "kafka-cluster", operation=Operation.CREATE), "create", "leave"),
        (acl(ResourceType.TRANSACTIONAL_ID, "t", operation=Operation.WRITE), "create", "leave"),
        (acl(ResourceType.USER, "User:b", operation=Operation.CREATE_TOKENS), "create", "leave"),
    ],
)
def test_which_acls_are_carried(given: Binding, all_: str, reading: str) -> None:
    for what, action in ((ACLS, all_), (READ_ACLS, reading)):
        found = of_acl(given, what)
        assert (found.action, bool(found.why)) == (action, action == "leave"), found
        if action == "create":
            assert found.subject == given


def test_names_of_topics_get_the_prefix_and_all_becomes_read() -> None:
    names = Names(["orders"], ".*", "a.")
    assert of_acl(acl(), names=names).subject.resource_name == "a.orders"
    assert of_acl(acl(name="or", pattern=P), names=names).subject.resource_name == "a.or"
    assert of_acl(acl(name="*"), names=names).subject.resource_name == "*"
    assert of_acl(acl(G, "g"), names=names).subject.resource_name == "g"
    assert of_acl(acl(operation=Operation.ALL), READ_ACLS).subject.operation == Operation.READ


def test_a_destination_without_an_authorizer_is_said() -> None:
    there = Belongings(has_authorizer=False)
    (found,) = changes(Belongings(acls=frozenset({acl()})), there, Carry(frozenset({ACLS})), NAMES, ())
    assert found.action == "leave" and "no authorizer" in found.why


USER, DEFAULT = (("user", "a"),), (("user", None), ("client-id", "c"))
SOURCE = Belongings(
    acls=frozenset({acl()}),
    quotas={USER: {"producer_byte_rate": 10.0, "consumer_byte_rate": 5.0}, DEFAULT: {"request_percentage": 3.5}},
    users={"a": {"SCRAM-SHA-512": 8192}, "b": {"SCRAM-SHA-256": 4096}},
    broker_configs={
        "log.retention.ms": "1", "message.max.bytes": "5", "ssl.cipher.suites": "x", "num.io.threads": "9",
        "leader.replication.throttled.rate": "1",
    },
)  # fmt: skip
THERE = Belongings(
    acls=frozenset({acl(name="old"), acl(name="own")}),
    quotas={USER: {"producer_byte_rate": 20.0, "consumer_byte_rate": 5.0, "request_percentage": 1.0}},
    users={"a": {"SCRAM-SHA-512": 4096}},
    broker_configs={"log.retention.ms": "2", "log.segment.bytes": "7"},
)
EVERYTHING = frozenset({ACLS, QUOTAS, BROKER_CONFIGS})
MADE = {key_of("acl", acl(name="old")), key_of("quota", [USER, "request_percentage"]),
        key_of("broker-config", "log.segment.bytes")}  # fmt: skip


@pytest.mark.parametrize("deletions", [False, True])
def test_everything_at_once(deletions: bool) -> None:
    """What the mirror made and what is gone is removed only where that is asked for; what others made, never."""
    carry = Carry(EVERYTHING, deletions, ("message\\..*",))
    found = [*changes(SOURCE, THERE, carry, NAMES, MADE)]
    assert [(each.kind, each.action, each.name) for each in found] == [
        ("acl", "create", "allow User:a read topic:orders"),
        ("acl", "delete" if deletions else "leave", "allow User:a read topic:old"),
        ("quota", "create", "user <default>, client-id c"),
        ("quota", "alter", "user a"),
        ("quota", "delete" if deletions else "leave", "user a"),
        ("broker-config", "leave", "leader.replication.throttled.rate"),
        ("broker-config", "alter", "log.retention.ms"),
        ("broker-config", "leave", "message.max.bytes"),
        ("broker-config", "leave", "num.io.threads"),
        ("broker-config", "leave", "ssl.cipher.suites"),
        ("broker-config", "delete" if deletions else "leave", "log.segment.bytes"),
        ("user", "leave", "b"),
    ]
    assert dict(found[3].what) == {"producer_byte_rate": 10.0}
    assert "ottla user create b --mechanism SCRAM-SHA-256 --iterations 4096" in found[-1].why
    if deletions:
        assert {key for each in found if each.action == "delete" for key in made_keys(each)} == MADE
    for each in found:
        json.dumps(each.as_json())


def test_the_same_on_both_sides_is_nothing_to_do() -> None:
    assert [*changes(SOURCE, SOURCE, Carry(EVERYTHING - {BROKER_CONFIGS}), NAMES, ())] == []
    assert carry_of("acls, quotas,", True, " a.* ,b") == Carry(frozenset({ACLS, QUOTAS}), True, ("a.*", "b"))
