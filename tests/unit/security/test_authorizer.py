"""Decisions of the authorizer: each rule by an example. `test_authorizer_walk.py` asks Kafka's StandardAuthorizer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.schemas.records import AccessControlEntryRecord
from ottla.security import authorizer as module
from ottla.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, host_text, network
from ottla.security.authorizer import Authorizer, AuthorizerNotReady, Question, Verdict

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, BOB, EVERYONE = "User:alice", "User:bob", "User:*"
HOST = "10.0.0.1"


class Rules:
    """An authorizer and the ACLs that it was given."""

    def __init__(self, *supers: str, everyone: bool = False) -> None:
        self.heard: list[tuple[Question, Verdict, bool]] = []
        self.authorizer = Authorizer(supers, everyone, lambda *decision: self.heard.append(decision))
        self.authorizer.ready = True
        self.acls: dict[UUID, Any] = {}

    def add(
        self,
        name: str = "orders",
        operation: Operation = READ,
        permission: Permission = ALLOW,
        who: str = ALICE,
        host: str = "*",
        pattern: PatternType = LITERAL,
        kind: ResourceType = TOPIC,
    ) -> UUID:
        acl_id = UUID(int=len(self.acls) + 1)
        acl = AccessControlEntryRecord(acl_id, kind, name, pattern, who, host, operation, permission)
        self.authorizer.apply({acl_id: acl}, self.acls)
        self.acls[acl_id] = acl
        return acl_id

    def remove(self, acl_id: UUID) -> None:
        self.authorizer.apply({acl_id: None}, self.acls)
        self.acls[acl_id] = None

    def may(
        self,
        operation: Operation = READ,
        name: str = "orders",
        who: str = ALICE,
        host: str = HOST,
        kind: ResourceType = TOPIC,
    ) -> bool:
        return self.authorizer.is_allowed(who, host, operation, kind, name)

    def rule(self, operation: Operation = READ, name: str = "orders", who: str = ALICE) -> str:
        return self.authorizer.decide(who, HOST, operation, TOPIC, name).rule


def test_nothing_is_allowed_that_nobody_allowed() -> None:
    rules = Rules()
    assert not rules.may()
    rules.add()
    assert rules.may()
    assert not rules.may(WRITE) and not rules.may(who=BOB) and not rules.may(name="orders2")
    assert not rules.may(kind=GROUP)


def test_one_deny_is_stronger_than_any_allow() -> None:
    for name, pattern in (("orders", LITERAL), ("ord", PREFIXED), ("*", LITERAL)):
        rules = Rules()
        rules.add()
        rules.add("*", ALL, who=EVERYONE)
        assert rules.may()
        denied = rules.add(name, pattern=pattern, permission=DENY)
        assert not rules.may(), name
        assert rules.may(WRITE) and rules.may(who=BOB)
        rules.remove(denied)
        assert rules.may()


def test_prefixes_and_the_wildcard() -> None:
    rules = Rules()
    rules.add("ord", pattern=PREFIXED)
    rules.add("*", WRITE)
    assert rules.may(name="ord") and rules.may(name="orders") and not rules.may(name="or")
    assert rules.may(WRITE, name="anything")
    rules.add("*", Operation.ALTER, pattern=PREFIXED)  # an asterisk, not any name
    assert not rules.may(Operation.ALTER) and rules.may(Operation.ALTER, name="*x")
    assert rules.may(WRITE, name="*") and not rules.may(WRITE, name="*x"), "as in Kafka"


def test_names_that_sort_before_the_asterisk() -> None:
    """Kafka 4.3 never answers the first question, and fails at the second: it would begin its scan at `*` again."""
    rules = Rules()
    rules.add("$y", pattern=PREFIXED, kind=GROUP)
    rules.add("((bar", pattern=PREFIXED, kind=GROUP)
    assert not rules.may(name="$x", kind=GROUP) and not rules.may(name="((foo", kind=GROUP)
    assert rules.may(name="$yes", kind=GROUP) and rules.may(name="((bar))", kind=GROUP)


def test_prefixes_of_many_lengths_come_and_go() -> None:
    rules = Rules()
    ids = [rules.add("o" * length, pattern=PREFIXED) for length in (1, 3, 3, 5)]
    rules.remove(ids[0])
    assert not rules.may(name="oo") and rules.may(name="ooo")
    rules.remove(ids[1])
    assert rules.may(name="ooo"), "another ACL has the same prefix"
    rules.remove(ids[2])
    assert not rules.may(name="oooo") and rules.may(name="ooooo")
    rules.remove(ids[3])
    assert rules.authorizer.acl_count == 0 and not rules.may(name="ooooo")


@pytest.mark.parametrize(
    ("given", "implied"),
    [
        *((each, DESCRIBE) for each in (READ, WRITE, Operation.DELETE, Operation.ALTER)),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_implied_operations(given: Operation, implied: Operation) -> None:
    rules = Rules()
    rules.add(operation=given)
    assert rules.may(implied)
    denied = Rules()
    denied.add(operation=ALL)
    denied.add(operation=given, permission=DENY)
    assert denied.may(implied) and not denied.may(given), "a DENY implies nothing"
    backwards = Rules()
    backwards.add(operation=implied)
    assert not backwards.may(given)


def test_nothing_else_implies_describe() -> None:
    rules = Rules()
    for operation in (Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS):
        rules.add(operation=operation)
    assert not rules.may(DESCRIBE)


def test_hosts_are_compared_as_text() -> None:
    rules = Rules()
    rules.add(host=HOST)
    for never in ("10.0.0.0/8", "", "localhost"):
        rules.add("other", host=never)
    assert rules.may() and not rules.may(host="10.0.0.2")
    assert not rules.may(name="other") and not rules.may(name="other", host="127.0.0.1")


def test_an_ipv6_address_is_named_as_java_writes_it() -> None:
    rules = Rules()
    rules.add(host="2001:db8:0:0:0:0:0:1")
    assert rules.may(host="2001:db8::1")
    rules.add(host="10.0.0.9")
    assert rules.may(host="::ffff:10.0.0.9")
    assert host_text("::1") == "0:0:0:0:0:0:0:1" and host_text("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1%eth0"
    assert host_text("a:b") == "a:b" and host_text(HOST) == HOST


def test_networks_count_where_the_cluster_says_so() -> None:
    """KIP-1276, from metadata.version 4.4-IV1 on."""
    rules = Rules()
    rules.add(host="10.1.0.0/16")
    rules.add("six", host="2001:db8::/32")
    rules.add("bad", host="10.1.0.0/33")
    assert not rules.may(host="10.1.2.3")
    rules.authorizer.networks = True
    rules.authorizer.changed()
    assert rules.may(host="10.1.2.3") and not rules.may(host="10.2.0.1") and not rules.may(host="not an address")
    assert rules.may(name="six", host="2001:db8::5") and not rules.may(name="bad", host="10.1.0.1")
    assert network("10.0.0.1") is None and network("10.0.0.0/1６") is None


def test_super_users_may_do_everything() -> None:
    rules = Rules(ALICE)
    rules.add(operation=ALL, permission=DENY, who=EVERYONE)
    assert rules.may() and rules.rule() == "SuperUser"
    assert not rules.may(who=BOB)
    assert not rules.may(who="Group:alice"), "the type belongs to the name"


def test_a_resource_without_acls_is_everyones_if_the_setting_says_so() -> None:
    rules = Rules(everyone=True)
    assert rules.may() and rules.rule() == "DefaultAllow"
    ids = [
        rules.add(who=BOB, operation=WRITE),
        rules.add("pre", who=BOB, pattern=PREFIXED),
        rules.add("x", kind=GROUP),
        rules.add("y", permission=DENY, who=BOB),
    ]
    assert not rules.may() and rules.rule() == "DefaultDeny", "an ACL of somebody else covers it"
    assert not rules.may(name="prefix") and not rules.may(name="y")
    assert rules.may(name="x") and rules.may(name="unrelated")
    wildcard = rules.add("*", who=BOB)
    assert not rules.may(name="unrelated")
    for each in (*ids, wildcard):
        rules.remove(each)
    assert rules.may() and rules.may(name="prefix") and rules.may(name="y")


def test_the_principal_star_is_everyone() -> None:
    rules = Rules()
    rules.add(who=EVERYONE)
    assert rules.may() and rules.may(who=BOB) and rules.may(who=EVERYONE)
    assert rules.may(who="Group:admins"), "as in Kafka, of whatever type"
    rules.add("grouped", who="Group:*")
    assert not rules.may(name="grouped") and not rules.may(name="grouped", who="Group:admins")


def test_the_rule_is_said_in_kafkas_words() -> None:
    rules = Rules()
    assert rules.rule() == "DefaultDeny"
    rules.add("o", ALL, pattern=PREFIXED, host=HOST)
    assert rules.rule() == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=o, patternType=PREFIXED, principal=User:alice, "
        "host=10.0.0.1, operation=ALL, permissionType=ALLOW])"
    )


def test_any_resource_of_a_type() -> None:
    """`authorizeByResourceType`: what an idempotent producer needs."""
    rules = Rules()

    def any_topic(operation: Operation = WRITE) -> bool:
        return rules.authorizer.is_allowed_for_any(ALICE, HOST, operation, TOPIC)

    assert not any_topic()
    rules.add("orders", WRITE)
    assert any_topic() and not any_topic(DESCRIBE), "implied operations do not count"
    first = rules.add("orders", WRITE, DENY)
    assert not any_topic()
    rules.add("orders-eu", WRITE, pattern=PREFIXED)
    assert any_topic()
    second = rules.add("ord", ALL, DENY, pattern=PREFIXED, who=EVERYONE)
    assert not any_topic()
    rules.add("*", WRITE)
    assert any_topic(), "all topics, of which the DENYs take some"
    rules.add("*", WRITE, DENY)
    assert not any_topic()
    rules.remove(first), rules.remove(second)
    assert not any_topic()
    other = Rules(everyone=True)
    assert other.authorizer.is_allowed_for_any(ALICE, HOST, WRITE, TOPIC)
    assert Rules(ALICE).authorizer.is_allowed_for_any(ALICE, HOST, WRITE, TOPIC)


def test_authorized_operations_are_bits() -> None:
    rules = Rules()
    rules.add(operation=READ)
    found = rules.authorizer.authorized_operations(ALICE, HOST, TOPIC, "orders")
    assert found == 1 << READ | 1 << DESCRIBE
    assert Rules(ALICE).authorizer.authorized_operations(ALICE, HOST, TOPIC, "x") == 0b1101_1111_1000
    assert Rules(ALICE).authorizer.authorized_operations(ALICE, HOST, CLUSTER, CLUSTER_NAME) == 0b1_1111_1010_0000
    assert [question.operation for question, _, depends in rules.heard if depends] == [], "nobody depends on it"


def test_before_the_acls_are_loaded_super_users_alone_are_served() -> None:
    rules = Rules(ALICE)
    rules.authorizer.ready = False
    assert rules.may()
    with pytest.raises(AuthorizerNotReady) as raised:
        rules.may(who=BOB)
    assert raised.value.code is ErrorCode.unknown_server_error
    rules.authorizer.ready = True
    assert not rules.may(who=BOB), "what was not known is not remembered"


def test_decisions_are_remembered_until_the_next_change() -> None:
    rules = Rules()
    added = rules.add()
    generation = rules.authorizer.generation
    assert rules.may() and rules.may()
    assert len(rules.heard) == 1, "the second is remembered"
    rules.remove(added)
    assert rules.authorizer.generation != generation and not rules.may()
    assert not rules.may() and len(rules.heard) == 3, "each denial is heard of"
    rules.authorizer.hears_of_all = True
    rules.add()
    assert rules.may() and rules.may() and len(rules.heard) == 5


def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    rules = Rules()
    rules.add("t", pattern=PREFIXED)
    for number in range(25):
        assert rules.may(name=f"t{number}")
        assert len(rules.authorizer._decisions) <= 10


def test_codes_hash_as_numbers_do() -> None:
    """Decisions are looked up by them; Enum's own hash is a function in Python."""
    assert type(READ).__hash__ is int.__hash__ and {READ: 1}[3] == 1  # type: ignore[index]
