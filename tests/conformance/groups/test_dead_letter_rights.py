"""Topics for dead letters that cannot be written: told in the log and by `ottla share describe`, and the record is
archived, neither kept for ever nor delivered again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conformance.groups.raw_share_member import REJECT, RawMember, create, raise_share_version, until
from tests.conformance.groups.test_dead_letters import SETTINGS, lag, letters, ottla_share, prepared, run
from tests.node import NodeProcess

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true", "ottla.allow.open.listeners": "true",
}  # fmt: skip
LOST = "dead letters of a share group are lost; their records are archived"
AGAIN = "dead letters of a share group are written again"
NODE = "User:ANONYMOUS"
"""The node itself, on its own listener without security."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("ottla") / "data", {**SETTINGS, **GUARDED}) as node:
        raise_share_version(node.bootstrap)
        yield node


def rule(topic: str, user: str, permission: AclPermissionType) -> AclBinding:
    """Whether a user may write to a topic."""
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*", AclOperation.WRITE, permission)


def said(node: NodeProcess, text: str, group: str) -> list[str]:
    """Lines of the node's log about a group."""
    return [line for line in node.output.read_text().splitlines() if text in line and group in line]


def reject(member: RawMember, bootstrap: str, name: str, offset: int, left: int) -> None:
    """Reject a record, and wait until no more than `left` are not done with."""
    assert member.acknowledge(offset, offset, REJECT) == 0
    until(lambda: lag(bootstrap, name) == left)


def allow_only_alice(topic: str, admin: AdminClient) -> None:
    for future in admin.create_acls([rule(topic, "User:alice", AclPermissionType.ALLOW)]).values():
        future.result(30)


class Bad(NamedTuple):
    """A topic for dead letters that cannot be written."""

    says: str
    """What the log and the command say of it."""
    prefix: str = "dlq"
    exists: bool = True
    enabled: str = "true"
    closed: bool = False
    """Whether only somebody else may write to it."""
    code: str = "INVALID_CONFIG"
    """Kafka's name of the error."""


BAD = {
    "missing": Bad("does not exist", exists=False),
    "disabled": Bad("has not errors.deadletterqueue.group.enable=true", enabled="false"),
    "outside": Bad("does not start with 'dlq.'", prefix="out"),
    "closed": Bad("dlq.bad-closed-0", closed=True, code="TOPIC_AUTHORIZATION_FAILED"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_topic_that_cannot_be_written_is_named_and_the_record_is_archived(node: NodeProcess, kind: str) -> None:
    bad, bootstrap, name = BAD[kind], node.bootstrap, f"bad-{kind}"
    topic = f"{bad.prefix}.{name}"
    if bad.exists:
        create(bootstrap, topic, 1, errors_deadletterqueue_group_enable=bad.enabled)
    if bad.closed:
        allow_only_alice(topic, AdminClient({"bootstrap.servers": bootstrap}))
    member = prepared(bootstrap, name, count=3, errors_deadletterqueue_topic_name=topic)
    assert [each.offset for each in member.some()] == [0, 1, 2]
    for offset in range(2):
        reject(member, bootstrap, name, offset, 2 - offset)
    (line,) = said(node, LOST, f"g-{name}")
    assert f"{bad.code}: " in line and bad.says in line and topic in line and "ERROR" in line, "once for each reason"
    (shown,) = json.loads(run(bootstrap, "describe", f"g-{name}", "--json"))
    assert bad.says in shown["dead_letters"]["problem"], shown
    (lost,) = shown["dead_letters"]["lost"]
    assert lost["record"] == f"{name}-0@1" and lost["problem"].startswith(f"{bad.code}: "), lost
    assert bad.says in lost["problem"], lost
    text = run(bootstrap, "describe", f"g-{name}")
    assert f"were LOST, and their records archived: {name}-0@1 at" in text and bad.says in text
    assert bad.says in run(bootstrap, "list")
    if not bad.exists:
        for command in ("dead", "redrive"):
            refused = ottla_share(bootstrap, command, f"g-{name}")
            assert refused.returncode == 1 and f"topic {topic!r} does not exist" in refused.stderr, refused
    left: set[int] = set()
    until(lambda: left.update(each.offset for each in member.take()) or left)
    assert left == {2}, "the dead are not delivered again"
    member.leave()


def test_a_right_that_is_lost_and_given_back(node: NodeProcess) -> None:
    bootstrap, admin = node.bootstrap, AdminClient({"bootstrap.servers": node.bootstrap})
    create(bootstrap, "dlq.lost", 1, errors_deadletterqueue_group_enable="true")
    member = prepared(bootstrap, "lost", count=4)
    assert [each.offset for each in member.some()] == [0, 1, 2, 3]
    reject(member, bootstrap, "lost", 0, 3)
    denied = rule("dlq.lost", NODE, AclPermissionType.DENY)
    for future in admin.create_acls([denied]).values():
        future.result(30)
    reject(member, bootstrap, "lost", 1, 2)
    assert len(said(node, LOST, "g-lost")) == 1
    which = AclBindingFilter(
        ResourceType.TOPIC,
        "dlq.lost",
        ResourcePatternType.LITERAL,
        NODE,
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    for removed in admin.delete_acls([which]).values():
        assert len(removed.result(30)) == 1
    reject(member, bootstrap, "lost", 2, 1)
    assert len(said(node, AGAIN, "g-lost")) == 1
    (shown,) = json.loads(run(bootstrap, "describe", "g-lost", "--json"))
    assert shown["dead_letters"]["problem"] is None and shown["dead_letters"]["lost"] == []
    offsets = [dict(each[4])["__dlq.errors.offset"] for each in letters(bootstrap, "dlq.lost", 2)]
    assert offsets == [b"0", b"2"]
    member.leave()
