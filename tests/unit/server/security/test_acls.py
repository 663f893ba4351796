"""A node with an authorizer: its ACL APIs over a socket, what is logged and counted, and what is kept."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.security.authorizer import Authorizer, AuthorizerNotReady
from ottla.server.node import Node
from ottla.server.security import acls
from ottla.server.security.acls import DecisionLog
from ottla.testing.process import reserve
from tests.unit.controller.test_acls import creation, wanted
from tests.unit.server.node import Client, running

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS = "User:ANONYMOUS"
OPEN = {"authorizer.class.name": STANDARD, "super.users": f"User:admin; {ANONYMOUS}"}
CLOSED = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
VERSIONS = (1, 2, 3)


async def create(client: Client, *creations: dict[str, Any], version: int = 3) -> list[int]:
    answer = await client.ask(ApiKey.CREATE_ACLS, version, {"creations": creations})
    return [row["error_code"] for row in answer["results"]]


async def describe(client: Client, version: int = 3, **more: Any) -> set[tuple[str, str, int]]:
    answer = await client.ask(ApiKey.DESCRIBE_ACLS, version, wanted(**more))
    assert answer["error_code"] == 0, answer
    return {
        (each["resource_name"], acl["principal"], acl["operation"])
        for each in answer["resources"]
        for acl in each["acls"]
    }


async def delete(client: Client, version: int = 3, **more: Any) -> list[str]:
    answer = await client.ask(ApiKey.DELETE_ACLS, version, {"filters": [wanted(**more)]})
    (row,) = answer["filter_results"]
    assert row["error_code"] == 0, row
    return sorted(acl["resource_name"] for acl in row["matching_acls"])


def test_acls_are_made_shown_enforced_deleted_and_kept(tmp_path: Any) -> None:
    asyncio.run(made_and_kept(str(tmp_path)))


async def made_and_kept(directory: str) -> None:
    async with running(directory, OPEN) as node:
        client = await Client.connect(node)
        for version in VERSIONS:
            assert await create(client, creation(f"t{version}"), version=version) == [0]
        assert await create(client, creation(operation=4), creation(principal="User:bob", permission_type=2)) == [0, 0]
        everything = {("t1", "User:alice", 3), ("t2", "User:alice", 3), ("t3", "User:alice", 3)}
        for version in VERSIONS:
            assert everything < await describe(client, version)
        assert await describe(client, resource_name_filter="t2", pattern_type_filter=2) == {("t2", "User:alice", 3)}
        assert may(node, "User:alice", "t1") and not may(node, "User:alice", "t4")
        assert not may(node, "User:bob", "t1") and may(node, "User:admin", "t4")
        for version, name in zip(VERSIONS, ("t1", "t2"), strict=False):
            assert await delete(client, version, resource_name_filter=name) == [name]
            assert not may(node, "User:alice", name), "at once, once the answer is there"
        client.close()
    async with running(directory, OPEN, seed=2) as node:
        assert may(node, "User:alice", "t3") and not may(node, "User:alice", "t1")
        client = await Client.connect(node)
        assert await delete(client) == ["orders", "orders", "t3"]
        assert await describe(client) == set() and node.authorizer is not None and node.authorizer.acl_count == 0
        client.close()


def may(node: Node, principal: str, topic: str) -> bool:
    assert node.authorizer is not None
    return node.authorizer.is_allowed(principal, "127.0.0.1", Operation.READ, ResourceType.TOPIC, topic)


def test_the_controller_decides_for_a_broker_elsewhere(tmp_path: Any) -> None:
    """By its own super users; the broker follows, and decides by its own about what it answers itself."""
    held = reserve(0)
    port = held.getsockname()[1]
    common = {
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "ottla.cluster.id": "Jk3UMx2zQ0y8oVh1mE5cRw",
        "group.initial.rebalance.delay.ms": "0",
    }
    controller = {
        **OPEN,
        **common,
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
    }
    broker = {**CLOSED, **common, "process.roles": "broker", "node.id": "2"}

    async def test() -> None:
        async with running(str(tmp_path / "1"), controller) as first, running(str(tmp_path / "2"), broker) as node:
            client = await Client.connect(node)
            refused = await client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())
            assert refused["error_code"] == ErrorCode.cluster_authorization_failed
            describe_cluster = creation("kafka-cluster", resource_type=4, principal=ANONYMOUS, operation=8)
            assert await create(client, describe_cluster, creation(), creation(operation=1)) == [
                0,
                0,
                ErrorCode.invalid_request,
            ]
            assert may(node, "User:alice", "orders") and may(first, "User:alice", "orders")
            assert len(await describe(client)) == 2, "at once"
            assert await delete(client, resource_type_filter=2) == ["orders"]
            assert not may(node, "User:alice", "orders") and not may(first, "User:alice", "orders")
            direct = Client(*await asyncio.open_connection("127.0.0.1", port))
            assert len(await describe(direct)) == 1
            cluster_action = creation("kafka-cluster", resource_type=4, principal=ANONYMOUS, operation=9)
            assert await create(direct, cluster_action) == [0], "the broker goes on as a broker"
            assert first.authorizer is not None
            first.authorizer.super_users = frozenset({"User:admin"})
            first.authorizer.changed()
            assert await create(client, creation("x")) == [ErrorCode.cluster_authorization_failed]
            assert await create(direct, creation("x")) == [ErrorCode.cluster_authorization_failed]
            client.close()
            direct.close()

    asyncio.run(test())
    held.close()


def test_without_an_authorizer_security_is_disabled(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            client = await Client.connect(node)
            assert await create(client, creation(), creation()) == [ErrorCode.security_disabled] * 2
            described = await client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())
            assert described["error_code"] == ErrorCode.security_disabled and described["resources"] == []
            deleted = await client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})
            assert [row["error_code"] for row in deleted["filter_results"]] == [ErrorCode.security_disabled]
            client.close()

    asyncio.run(test())


def test_a_client_that_may_not_change_acls_reads_what_it_lacks(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), CLOSED) as node:
            client = await Client.connect(node)
            answer = await client.ask(ApiKey.CREATE_ACLS, 3, {"creations": [creation()]})
            (row,) = answer["results"]
            assert row["error_code"] == ErrorCode.cluster_authorization_failed
            assert row["error_message"] == f"Cluster authorization failed: {ANONYMOUS} needs ALTER on the cluster."
            described = await client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())
            assert described["error_code"] == ErrorCode.cluster_authorization_failed
            assert "DESCRIBE" in described["error_message"]
            deleted = await client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted(), wanted()]})
            codes = [row["error_code"] for row in deleted["filter_results"]]
            assert codes == [ErrorCode.cluster_authorization_failed] * 2
            assert len(node.image.acls) == 0
            assert node.authorizer is not None and node.authorizer.denied == 3
            client.close()

    asyncio.run(test())


def test_a_denial_is_logged_with_who_what_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = decisions()
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        ask(authorizer, "orders")
        assert [record.getMessage() for record in caplog.records] == ["denied"]
        assert caplog.records[0].ottla_fields == {
            "principal": "User:alice",
            "operation": "READ",
            "host": "10.0.0.1",
            "resource": "TOPIC:LITERAL:orders",
            "rule": "DefaultDeny",
        }
        ask(authorizer, "orders")
        ask(authorizer, "orders", log_denial=False)
        assert len(caplog.records) == 1, "the same again, and a look-up that only filters"
        for number in range(acls.LINES_MAX * 2):
            ask(authorizer, f"t{number}")
        assert len(caplog.records) == acls.LINES_MAX
    assert authorizer.denied == acls.LINES_MAX * 2 + 2 and authorizer.allowed == 0


def test_permissions_are_logged_where_somebody_debugs(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = decisions("User:alice")
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        ask(authorizer, "orders")
    assert not caplog.records and authorizer.allowed == 1
    with caplog.at_level(logging.DEBUG, "ottla.authorizer"):
        authorizer.changed()
        for _ in range(3):
            ask(authorizer, "orders")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("DEBUG", "allowed")] * 3
    assert caplog.records[0].ottla_fields["rule"] == "SuperUser"


def test_denials_that_were_left_out_are_counted_in_the_next_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(acls, "elapsed_s", lambda: now_s)
    authorizer = decisions()
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        for _ in range(4):
            ask(authorizer, "orders")
        now_s += acls.SAME_S
        ask(authorizer, "orders")
    assert [each.ottla_fields.get("denials_left_out") for each in caplog.records] == [None, 3]


def decisions(*supers: str) -> Authorizer:
    authorizer = Authorizer(supers)
    authorizer.ready = True
    authorizer.on_decision = DecisionLog(authorizer).heard
    return authorizer


def ask(authorizer: Authorizer, name: str, *, log_denial: bool = True) -> bool:
    return authorizer.is_allowed(
        "User:alice", "10.0.0.1", Operation.READ, ResourceType.TOPIC, name, log_denial=log_denial
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "the only authorizer is Kafka's own"),
        ({**CLOSED, "super.users": "User:admin;alice"}, "super.users contains alice: expected principals such as"),
        ({**CLOSED, "early.start.listeners": "OTHER"}, "early.start.listeners contains listener OTHER"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        ServerConfig.load(None, settings, {})


def test_controllers_serve_super_users_before_the_acls_are_loaded() -> None:
    """And no others, unless their listener is left out of `early.start.listeners`."""

    def early(**more: str) -> list[str]:
        settings = {**CLOSED, "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2", **more}
        node = type("Node", (), {})()
        node.config = ServerConfig.load(None, settings, {})
        node.listeners = [type("Listener", (), {"name": name})() for name in ("PLAINTEXT", "CONTROLLER")]
        node.controller_endpoints = {"CONTROLLER": None}
        return [each.name for each in acls.early_listeners(node)]

    assert early() == ["CONTROLLER"]
    assert early(**{"early.start.listeners": "PLAINTEXT"}) == ["PLAINTEXT"]
    assert early(**{"early.start.listeners": ""}) == []


def test_what_is_not_loaded_is_no_reason_to_allow(tmp_path: Any) -> None:
    async def test() -> None:
        async with running(str(tmp_path), CLOSED) as node:
            assert node.authorizer is not None
            client = await Client.connect(node)
            node.authorizer.ready = False
            node.authorizer.changed()
            answer = await client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())
            assert answer["error_code"] == ErrorCode.unknown_server_error == AuthorizerNotReady().code
            assert answer["error_message"] == "the ACLs of the cluster are not loaded yet"
            client.close()

    asyncio.run(test())
