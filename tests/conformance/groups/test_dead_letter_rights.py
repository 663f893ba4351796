"""A topic for dead letters to which the node has no right, or whose right it loses: told in the log, and the record is
archived, neither kept for ever nor delivered again."""

from __future__ import annotations

from collections.abc import Iterator

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
from tests.conformance.groups.test_dead_letters import SETTINGS, lag, letters, prepared
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
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, "*", AclOperation.WRITE, permission
    )  # fmt: skip


def said(node: NodeProcess, text: str, group: str) -> list[str]:
    """Lines of the node's log about a group."""
    return [line for line in node.output.read_text().splitlines() if text in line and group in line]


def reject(member: RawMember, bootstrap: str, name: str, offset: int, left: int) -> None:
    """Reject a record, and wait until no more than `left` are not done with."""
    assert member.acknowledge(offset, offset, REJECT) == 0
    until(lambda: lag(bootstrap, name) == left)


def test_a_topic_that_only_somebody_else_may_write_to(node: NodeProcess) -> None:
    bootstrap, admin = node.bootstrap, AdminClient({"bootstrap.servers": node.bootstrap})
    create(bootstrap, "dlq.closed", 1, errors_deadletterqueue_group_enable="true")
    for future in admin.create_acls([rule("dlq.closed", "User:alice", AclPermissionType.ALLOW)]).values():
        future.result(30)
    member = prepared(bootstrap, "closed", count=3)
    assert [each.offset for each in member.some()] == [0, 1, 2]
    for offset in range(3):
        reject(member, bootstrap, "closed", offset, 2 - offset)
    (line,) = said(node, LOST, "g-closed")
    assert "TOPIC_AUTHORIZATION_FAILED" in line and "dlq.closed" in line and "ERROR" in line, "once for each reason"
    assert not member.take()
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
        ResourceType.TOPIC, "dlq.lost", ResourcePatternType.LITERAL, NODE, "*", AclOperation.WRITE,
        AclPermissionType.DENY,
    )  # fmt: skip
    for removed in admin.delete_acls([which]).values():
        assert len(removed.result(30)) == 1
    reject(member, bootstrap, "lost", 2, 1)
    assert len(said(node, AGAIN, "g-lost")) == 1
    offsets = [dict(each[4])["__dlq.errors.offset"] for each in letters(bootstrap, "dlq.lost", 2)]
    assert offsets == [b"0", b"2"]
    member.leave()
