"""`ottla acl`: words in, requests out, sentences back. `test_acls_like_kafka.py` runs it against nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.security import acl as acls
from ottla.cli.security.acl_words import operations_of, principal_of, resource_of, why_never
from ottla.protocol.messages import ApiKey
from ottla.security.acls import AclFilter, Binding, Operation, PatternType, Permission, ResourceType
from ottla.security.explained import as_json, sentence
from tests.unit.cli.fake_cluster import BOOTSTRAP, FakeCluster, serve

TOPIC, GROUP, LITERAL, PREFIXED = ResourceType.TOPIC, ResourceType.GROUP, PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE = Operation.READ, Operation.WRITE
ALLOW, DENY = Permission.ALLOW, Permission.DENY


class Acls:
    """A cluster with these ACLs, and what was asked of it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.acls: list[Binding] = []
        self.super_users: str | None = "User:admin"
        self.everyone = "false"
        self.refusal: tuple[int, str | None] = (0, None)
        cluster.answers = {
            ApiKey.CREATE_ACLS: self._create,
            ApiKey.DESCRIBE_ACLS: self._describe,
            ApiKey.DELETE_ACLS: self._delete,
            ApiKey.DESCRIBE_CONFIGS: self._settings,
        }

    def _create(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = []
        for each in values["creations"]:
            code, message = self.refusal
            if not code:
                self.acls.append(
                    Binding(
                        each["resource_type"],
                        each["resource_name"],
                        each["resource_pattern_type"],
                        each["principal"],
                        each["host"],
                        each["operation"],
                        each["permission_type"],
                    )
                )
            rows.append({"error_code": code, "error_message": message})
        return {"results": rows}

    def _matching(self, each: Mapping[str, Any]) -> list[Binding]:
        wanted = AclFilter(
            each["resource_type_filter"],
            each["resource_name_filter"],
            each["pattern_type_filter"],
            each["principal_filter"],
            each["host_filter"],
            each["operation"],
            each["permission_type"],
        )
        return [acl for acl in self.acls if wanted.matches(acl)]

    def _describe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        code, message = self.refusal
        rows = [{**acl._asdict(), "acls": [acl._asdict()]} for acl in self._matching(values)]
        return {"error_code": code, "error_message": message, "resources": [] if code else rows}

    def _delete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = []
        for each in values["filters"]:
            code, message = self.refusal
            rows.append(
                {
                    "error_code": code,
                    "error_message": message,
                    "matching_acls": [acl._asdict() for acl in self._matching(each)],
                }
            )
        gone = [acl for row in rows for acl in row["matching_acls"]]
        self.acls = [acl for acl in self.acls if acl._asdict() not in gone]
        return {"filter_results": rows}

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = {
            "authorizer.class.name": "x",
            "super.users": self.super_users,
            "allow.everyone.if.no.acl.found": self.everyone,
        }
        configs = [{"name": name, "value": value} for name, value in found.items()]
        return {"results": [{"error_code": 0, "error_message": None, "configs": configs}]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Acls:
    return Acls(serve(monkeypatch, FakeCluster()))


def acl(name: str = "orders", operation: Operation = READ, **more: Any) -> Binding:
    plain = Binding(TOPIC, name, LITERAL, "User:alice", "*", operation, ALLOW)
    return plain._replace(**more)


def add(*words: str, **options: Any) -> int:
    user, operations, *resources = words
    return acls.add(user, operations, tuple(resources), bootstrap=BOOTSTRAP, **options)


def explain(*words: str, **options: Any) -> int:
    return acls.explain(*words, bootstrap=BOOTSTRAP, **options)


def test_words_of_users_operations_and_resources() -> None:
    assert [principal_of(each) for each in ("alice", "User:alice", "*", "Group:x", "CN=a,O=b")] == [
        "User:alice",
        "User:alice",
        "User:*",
        "Group:x",
        "User:CN=a,O=b",
    ]
    assert operations_of("read,Write,READ") == [READ, WRITE]
    assert operations_of("alter_configs, describe-configs") == [Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]
    assert resource_of("cluster") == resource_of("cluster:kafka-cluster") == (ResourceType.CLUSTER, "kafka-cluster")
    assert resource_of("topic:a:b") == (TOPIC, "a:b") and str(resource_of("transactional-id:x")) == "transactional-id:x"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: principal_of(""), "a user is a name"),
        (lambda: operation_words("reed"), "an operation is one of all"),
        (lambda: resource_of("orders"), "did you mean: topic:orders"),
        (lambda: resource_of("topic:"), "a resource is"),
        (lambda: resource_of("cluster:other"), "a resource is"),
        (lambda: resource_of("table:x"), "a resource is"),
        (lambda: add("alice", "alter", "cluster", prefixed=True), "--prefixed is not for the cluster"),
    ],
)
def test_words_that_are_none(call: Any, why: str) -> None:
    with pytest.raises(CommandFailed, match=why) as raised:
        call()
    assert raised.value.exit_code == MISUSED


def operation_words(text: str) -> None:
    operations_of(text)


def test_add_says_what_it_added(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    assert add("alice", "read,write", "topic:orders", "group:billing") == OK
    assert cluster.acls == [acl(), acl(operation=WRITE), acl("billing", resource_type=GROUP)]
    out, err = capsys.readouterr()
    assert (
        out.splitlines()
        == [
            "allow User:alice to read topic orders from any host",
            "allow User:alice to write topic orders from any host",
            "allow User:alice to read group billing from any host",
        ]
        and not err
    )
    cluster.acls.clear()
    assert add("*", "all", "topic:tmp", deny=True, prefixed=True, host="10.0.0.1") == OK
    assert capsys.readouterr().out == "deny everyone to do everything with topics that begin with tmp from 10.0.0.1\n"
    assert cluster.acls == [Binding(TOPIC, "tmp", PREFIXED, "User:*", "10.0.0.1", Operation.ALL, DENY)]


def test_add_as_json_with_a_warning(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    assert add("alice", "write", "group:billing", json=True) == OK
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert (
        row
        == {
            "principal": "User:alice",
            "permission": "allow",
            "operation": "write",
            "resource_type": "group",
            "resource_name": "billing",
            "pattern_type": "literal",
            "host": "*",
            "warning": "nothing asks to write a group: its operations are read, delete, describe, describe-configs, "
            "alter-configs",
        }
        and not err
    )
    assert add("alice", "read", "topic:orders-*") == OK
    assert "warning: this ACL can never match: no topic has a * in its name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (acl("orders-*"), "give --prefixed topic:orders-"),
        (acl("no such"), "no topic can have such a name"),
        (acl(host="localhost"), "is none"),
        (acl(host=""), "is none"),
        (acl(host="10.0.0.0/8"), "matches no address"),
        (acl(host="::1"), "0:0:0:0:0:0:0:1"),
        (acl(operation=Operation.CREATE_TOKENS), "nothing asks to create-tokens"),
        (acl("*", resource_type=GROUP, pattern_type=PREFIXED), "leave out --prefixed"),
        (acl(), None),
        (acl("*"), None),
        (acl("ord", pattern_type=PREFIXED), None),
        (acl(operation=Operation.ALL), None),
        (acl(host="10.0.0.1"), None),
        (acl("a b", resource_type=GROUP), None),
        (acl(host="0:0:0:0:0:0:0:1"), None),
    ],
)
def test_what_can_never_match(given: Binding, why: str | None) -> None:
    found = why_never(given, networks=False)
    assert found is None if why is None else found is not None and why in found
    assert why_never(acl(host="10.0.0.0/8"), networks=True) is None


def test_refusals_say_which(cluster: Acls) -> None:
    cluster.refusal = 42, "Invalid something"
    with pytest.raises(
        CommandFailed, match=r"refused: allow User:alice to read topic a .*\(INVALID_REQUEST\)"
    ) as raised:
        add("alice", "read", "topic:a")
    assert raised.value.exit_code == FAILED
    cluster.refusal = 54, None
    for call in (
        lambda: add("alice", "read", "topic:a"),
        lambda: acls.list_acls(bootstrap=BOOTSTRAP),
        lambda: acls.remove("alice", bootstrap=BOOTSTRAP),
    ):
        with pytest.raises(CommandFailed, match=r"set authorizer\.class\.name and super\.users"):
            call()


def test_list(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.acls = [
        acl("ord", pattern_type=PREFIXED),
        acl("other", principal="User:bob"),
        acl("kafka-cluster", resource_type=ResourceType.CLUSTER, operation=Operation.ALTER),
    ]
    assert acls.list_acls(bootstrap=BOOTSTRAP) == OK
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["USER", "MAY", "OPERATION", "RESOURCE", "HOST"],
        ["User:alice", "allow", "read", "topic:ord...", "*"],
        ["User:alice", "allow", "alter", "cluster", "*"],
        ["User:bob", "allow", "read", "topic:other", "*"],
    ]
    assert acls.list_acls(user="alice", resource="topic:orders", json=True, bootstrap=BOOTSTRAP) == OK
    assert json.loads(capsys.readouterr().out) == [as_json(cluster.acls[0])], "those that cover it"


def test_remove(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    mine = [acl(), acl(operation=WRITE), acl(permission_type=DENY), acl("ord", pattern_type=PREFIXED)]
    cluster.acls = [*mine, acl(principal="User:bob")]
    assert acls.remove("alice", "read", ("topic:orders",), dry_run=True, bootstrap=BOOTSTRAP) == OK
    assert capsys.readouterr().out.count("would remove: ") == 2 and len(cluster.acls) == 5
    assert acls.remove("alice", "read", ("topic:orders",), bootstrap=BOOTSTRAP) == OK
    assert cluster.acls == [acl(operation=WRITE), acl("ord", pattern_type=PREFIXED), acl(principal="User:bob")]
    assert acls.remove("alice", "any", ("topic:ord",), prefixed=True, json=True, bootstrap=BOOTSTRAP) == OK
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == [as_json(acl("ord", pattern_type=PREFIXED))]
    assert acls.remove("alice", bootstrap=BOOTSTRAP) == OK
    assert cluster.acls == [acl(principal="User:bob")]
    capsys.readouterr()
    assert acls.remove("alice", bootstrap=BOOTSTRAP) == OK
    assert capsys.readouterr().out == "User:alice has no such ACL\n"


def test_explain(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, **options: Any) -> list[str]:
        assert explain(*words, **options) == OK
        return capsys.readouterr().out.splitlines()

    assert said("alice", "read", "topic:orders") == [
        "User:alice may not read topic:orders",
        "  because no ACL covers the resource",
    ]
    cluster.acls = [acl(principal="User:bob")]
    assert said("alice", "read", "topic:orders")[1] == "  because ACLs cover the resource, but none is for this user"
    cluster.acls.append(acl(host="10.0.0.1"))
    assert said("alice", "read", "topic:orders") == [
        "User:alice may not read topic:orders",
        "  because none of the ACLs here is for this operation and host",
        "  other ACLs of this user or everyone here:",
        "    allow User:alice to read topic orders from 10.0.0.1",
    ]
    assert said("alice", "describe", "topic:orders", host="10.0.0.1") == [
        "User:alice may describe topic:orders from 10.0.0.1",
        "  because an ACL says: allow User:alice to read topic orders from 10.0.0.1",
    ]
    assert said("admin", "delete", "topic:x")[1] == "  because this user is in super.users"
    cluster.everyone, cluster.super_users = "true", None
    assert said("alice", "read", "group:g") == [
        "User:alice may read group:g",
        "  because no ACL covers the resource, and allow.everyone.if.no.acl.found is true",
        "  the cluster does not show its super.users: whoever is one may do everything",
    ]
    cluster.acls += [acl(operation=Operation.ALL, principal="User:*", permission_type=DENY)]
    cluster.acls += [acl(host=f"10.0.1.{number}") for number in range(20)]
    lines = said("alice", "read", "topic:orders")
    assert lines[1] == "  because an ACL says: deny everyone to do everything with topic orders from any host"
    assert lines[-2] == "    and 11 more: ottla acl list --resource topic:orders"


def test_explain_as_json(cluster: Acls, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.acls = [acl()]
    assert explain("alice", "read", "topic:orders", json=True) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["allowed"] is True and found["acl"] == as_json(acl()) and found["rule"].startswith("MatchingAcl(acl=")
    assert found["super_users_known"] is True and found["other_acls"] == [] and found["host"] is None


def test_codes_of_newer_clusters_have_no_words() -> None:
    newer = Binding(99, "x", LITERAL, "User:alice", "*", 99, ALLOW)
    assert sentence(newer) == "allow User:alice to operation-99 resource type 99 x from any host"
    assert as_json(newer)["resource_type"] == "99"
