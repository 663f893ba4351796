"""ACLs through Kafka's own tool, librdkafka's admin client, our commands and bare requests: as Apache Kafka answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import until
from tests.conformance.cli.test_cli_on_kafka import Ran
from tests.conformance.pair import Wire
from tests.conformance.shell import Shell
from tests.conformance.twins import Twins
from tests.node import NodeProcess
from tests.unit.controller.test_acls import creation, wanted

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
VERSIONS = (1, 2, 3)
INVALID, UNKNOWN = ErrorCode.invalid_request, ErrorCode.unknown_server_error


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("ottla") / "data", SECURED) as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaPeer(directory, heap="512m", settings=SECURED, flags=start_fast("4.4"), release="4.4") as peer:
        yield peer.bootstrap


@pytest.fixture(autouse=True)
def nothing_left(ottla: str, kafka: str) -> Iterator[None]:
    """What a test leaves that has failed must not fail the next one."""
    yield
    for address in (ottla, kafka):
        Wire(address).ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})
    settle(ottla, kafka)


def settle(ottla: str, kafka: str) -> None:
    """Wait until Kafka's broker shows what its controller has answered already, as Ottla's does."""
    mine, theirs = Wire(ottla), Wire(kafka)

    def described(wire: Wire) -> Any:
        return comparable(wire.ask(ApiKey.DESCRIBE_ACLS, 3, wanted()))

    until(lambda: described(theirs), described(mine).__eq__)


def test_kafka_acls(shell: Shell, ottla: str, kafka: str) -> None:
    """The tool of `kafka-acls.sh`, unchanged."""
    twins = Twins(shell, ottla, kafka)

    def acls(*arguments: str, **options: bool) -> str:
        return twins.same("AclCommand", *arguments, **options)  # type: ignore[arg-type]

    alice, topic = ("--allow-principal", "User:alice"), ("--topic", "orders")
    assert "Adding ACLs for resource" in acls("--add", *alice, "--operation", "Read", *topic)
    acls("--add", *alice, "--producer", *topic)
    acls("--add", "--allow-principal", "User:bob", "--consumer", "--group", "billing", *topic)
    acls("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "*")
    acls("--add", *alice, "--operation", "Describe", "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls("--add", *alice, "--operation", "Alter", "--cluster")
    acls("--add", *alice, "--transactional-id", "tx", "--operation", "Write", "--operation", "Describe")
    acls("--add", "--user-principal", "User:carol", *alice, "--operation", "DescribeTokens")
    assert "User:eve" in acls("--list")
    acls("--list", *topic)
    acls("--list", *topic, "--resource-pattern-type", "match")
    acls("--list", *topic, "--resource-pattern-type", "any")
    acls("--list", "--principal", "User:alice")
    acls("--list", "--group", "billing")
    acls("--remove", "--force", *alice, "--operation", "Read", *topic)
    acls("--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls("--remove", "--force", "--group", "billing")
    acls("--add", *alice, "--operation", "Write", "--group", "billing", fails=True)
    assert "User:alice" in acls("--list")
    for kind in (
        (*topic, "--topic", "*"),
        ("--cluster",),
        ("--transactional-id", "tx"),
        ("--user-principal", "User:carol"),
    ):
        acls("--remove", "--force", *kind)
    assert "User:" not in acls("--list")


CREATIONS: tuple[dict[str, Any], ...] = (
    creation(), creation(), creation("ord", resource_pattern_type=4), creation("*"), creation("x" * 300),
    creation("kafka-cluster", resource_type=4, operation=7),
    creation("kafka-cluster", resource_type=4, resource_pattern_type=4, operation=7),
    creation("other", resource_type=4), creation(""), creation(host=""), creation(host="localhost"),
    creation(operation=9), creation("g", resource_type=3, operation=4), creation("t", resource_type=5, operation=15),
    creation("token", resource_type=6, operation=8), creation("User:a", resource_type=7, operation=13),
    creation(operation=2), creation(permission_type=2), creation(principal="Group:a"), creation(principal="alice"),
    creation(principal="User:"), creation(principal=":a"), creation(principal=""),
    creation(principal="User:CN=a,O=b:c"), creation(resource_type=99), creation(resource_pattern_type=9),
    creation(operation=77), creation(permission_type=55),
)  # fmt: skip
FILTERS: tuple[dict[str, Any], ...] = (
    wanted(), wanted(resource_type_filter=2), wanted(resource_type_filter=4), wanted(resource_type_filter=7),
    *(wanted(resource_type_filter=2, resource_name_filter="orders", pattern_type_filter=kind) for kind in (1, 2, 3, 4)),
    wanted(pattern_type_filter=2), wanted(pattern_type_filter=4), wanted(principal_filter="User:alice"),
    wanted(principal_filter="alice"), wanted(host_filter="*"), wanted(host_filter=""), wanted(operation=2),
    wanted(operation=3), wanted(permission_type=2), wanted(resource_name_filter="*", pattern_type_filter=2),
)  # fmt: skip


def test_requests(ottla: str, kafka: str) -> None:
    wires = Wire(ottla), Wire(kafka)

    def same(key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        mine, theirs = (comparable(wire.ask(key, version, values)) for wire in wires)
        assert mine == theirs, (key.name, version, values)
        return mine

    for version in VERSIONS:
        created = same(ApiKey.CREATE_ACLS, version, {"creations": CREATIONS})
        assert sorted({row["error_code"] for row in created["results"]}) == [0, INVALID]
        settle(ottla, kafka)
        for asked in FILTERS:
            same(ApiKey.DESCRIBE_ACLS, version, asked)
        assert same(ApiKey.DESCRIBE_ACLS, version, wanted())["resources"]
        same(ApiKey.DELETE_ACLS, version, {"filters": FILTERS[4:]})
        settle(ottla, kafka)
        same(ApiKey.DESCRIBE_ACLS, version, wanted())
        same(ApiKey.DELETE_ACLS, version, {"filters": FILTERS[:4]})
        settle(ottla, kafka)
        assert same(ApiKey.DESCRIBE_ACLS, version, wanted())["resources"] == []
        same(ApiKey.CREATE_ACLS, version, {"creations": ()})
        same(ApiKey.DELETE_ACLS, version, {"filters": ()})


def comparable(answer: Any) -> Any:
    """Without the order of hash maps, and without texts that name Java's classes."""
    if isinstance(answer, dict):
        return {name: comparable(value) for name, value in answer.items() if name != "throttle_time"}
    if isinstance(answer, list):
        items = [comparable(each) for each in answer]
        is_ordered = items and "error_code" in items[0] and "resource_type" not in items[0]
        return items if is_ordered else sorted(items, key=str)
    return answer


BETTER = (
    (creation(resource_pattern_type=1), UNKNOWN), (creation(resource_pattern_type=2), UNKNOWN),
    (creation(resource_type=1), UNKNOWN), (creation(operation=1), UNKNOWN), (creation(permission_type=1), UNKNOWN),
    (creation(resource_type=0), None), (creation(operation=0), None),
)  # fmt: skip
"""What Kafka answers where we say INVALID_REQUEST; None: it hangs up."""


@pytest.mark.parametrize(("asked", "theirs"), BETTER)
def test_where_kafka_fails_we_refuse(ottla: str, kafka: str, asked: dict[str, Any], theirs: int | None) -> None:
    mine = Wire(ottla).ask(ApiKey.CREATE_ACLS, 3, {"creations": [asked]})
    (row,) = mine["results"]
    assert row["error_code"] == INVALID
    said = Wire(kafka).ask(ApiKey.CREATE_ACLS, 3, {"creations": [asked]})
    assert (None if said is None else said["results"][0]["error_code"]) == theirs
    Wire(kafka).ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})


def test_the_admin_client_of_librdkafka(ottla: str) -> None:
    admin = AdminClient({"bootstrap.servers": ottla})
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.create_acls([binding]).values():
        future.result(60)
    assert admin.describe_acls(everything).result(60) == [binding]
    (gone,) = admin.delete_acls([everything]).values()
    assert gone.result(60) == [binding] and admin.describe_acls(everything).result(60) == []


COMMANDS = (
    "acl add alice read,write topic:orders group:billing",
    "acl add * describe topic:public --host 10.0.0.1",
    "acl add eve all topic:o --prefixed --deny",
    "acl add alice alter cluster --json",
    "acl list", "acl list --json", "acl list --resource topic:orders", "acl list --user *",
    "acl remove alice write topic:orders --dry-run", "acl remove alice write topic:orders", "acl remove alice",
    "acl remove eve any topic:o --prefixed --json", "acl remove *", "acl list", "acl remove nobody",
    "acl add alice read topic:", "acl add alice fly topic:a",
)  # fmt: skip


def test_our_commands(ottla: str, kafka: str) -> None:
    for typed in COMMANDS:
        settle(ottla, kafka)
        ours, theirs = (Ran(address, typed, "", {}) for address in (ottla, kafka))
        assert ours == theirs, f"ottla {typed}\n--- Ottla: {ours!r}\n--- Kafka: {theirs!r}"
        assert "internal error" not in ours.complaints
    explained = Ran(ottla, "acl explain admin read topic:orders", "", {})
    assert explained.out.splitlines() == ["User:admin may read topic:orders", "  because this user is in super.users"]
    hidden = Ran(kafka, "acl explain admin read topic:orders", "", {})
    assert "the cluster does not show its super.users" in hidden.out


def test_what_was_written_is_there_after_a_kill(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", SECURED)
    with node:
        wire = Wire(node.bootstrap)
        assert wire.ask(ApiKey.CREATE_ACLS, 3, {"creations": [creation()]})["results"][0]["error_code"] == 0
        node.kill()
        node.start()
        found = Wire(node.bootstrap).ask(ApiKey.DESCRIBE_ACLS, 3, wanted())["resources"]
        assert [each["resource_name"] for each in found] == ["orders"]
