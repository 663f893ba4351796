"""Hanging transactions, producers and their clients, rights in words, moves, groups that no path can name, and the
words of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from ottla.console.app import Application
from ottla.console.asking import Asking, Invalid, Site
from ottla.console.brokers import failure
from ottla.console.masks import Masks
from ottla.console.pages import group_url
from ottla.console.routes import PAGES
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.unit.console.fake_cluster import NOW_MS, FakeBrokers, user

BY_NAME = {each.name: each for each in PAGES}


def shown(brokers: FakeBrokers, page: str, path: Mapping[str, str] | None = None, **query: str) -> tuple[Any, Asking]:
    asking = Asking(user(brokers), Site(Masks()), BY_NAME[page].parameters(path or {}, query))
    return BY_NAME[page].view(asking), asking


class Open(FakeBrokers):
    """A transaction is open in a partition; the coordinator knows of it what the test says."""

    def __init__(self, owners: dict[str, tuple[int, list[str]]]) -> None:
        super().__init__(["t", "u"])
        self.owners = owners
        self.ended = False
        self.looks = 0

    def describe_producers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.looks += 1
        answer = super().describe_producers(values)
        for topic in answer["topics"]:
            is_open = topic["name"] == "t" and not (self.ended and self.looks > 1)
            (part,) = topic["partitions"]
            producers = [{**part["active_producers"][0], "coordinator_epoch": 2}] if is_open else []
            topic["partitions"] = [{**part, "active_producers": producers}]
        return answer

    def list_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"transactional_id": name, "producer_id": number, "transaction_state": "Ongoing"}
            for name, (number, _) in self.owners.items()
            if number in values["producer_id_filters"]
        ]
        return {"error_code": 0, "transaction_states": rows}

    def describe_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "error_code": 0,
                "transactional_id": name,
                "topics": [{"topic": topic, "partitions": [0]} for topic in self.owners[name][1]],
            }
            for name in values["transactional_ids"]
        ]
        return {"transaction_states": rows}


@pytest.mark.parametrize(
    ("owners", "hangs"),
    [
        ({}, [None]),
        ({"x": (7, ["t"])}, []),
        ({"x": (7, ["u"])}, ["x"]),
        ({"x": (8, ["t"])}, [None]),
    ],
)
def test_what_hangs(owners: dict[str, tuple[int, list[str]]], hangs: list[str | None]) -> None:
    page, asking = shown(Open(owners), "hanging", older="0")
    assert [each.transactional_id for each in page.rows] == hangs
    assert page.partitions == 2
    assert asking.problems == {}
    if hangs:
        row = page.rows[0]
        assert (row.topic, row.partition, row.start_offset, row.producer_id, row.coordinator_epoch) == (
            "t",
            0,
            "0",
            "7",
            2,
        )


def test_what_ends_meanwhile_or_is_young_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Open({})
    brokers.ended = True
    assert shown(brokers, "hanging", older="0")[0].rows == []
    monkeypatch.setattr("ottla.console.views.hanging.now_ms", lambda: NOW_MS + 60_000)
    assert shown(Open({}), "hanging", older="2")[0].rows == []
    assert len(shown(Open({}), "hanging", older="1")[0].rows) == 1
    assert shown(Open({}), "hanging", older="0", topic="u")[0].rows == []


def test_without_a_coordinator_nothing_is_said_to_hang() -> None:
    class Away(Open):
        def list_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
            return {"error_code": ErrorCode.coordinator_not_available, "transaction_states": []}

    page, asking = shown(Away({}), "hanging", older="0")
    assert page.rows == []
    assert "COORDINATOR_NOT_AVAILABLE" in asking.problems["hanging"].sentence


class Ruled(FakeBrokers):
    """ACLs and super users that the test gives."""

    def __init__(self, *acls: tuple[str, int, int], supers: str | None = "", error: int = 0) -> None:
        """`acls` are principal, operation and permission, of topic t."""
        super().__init__(["t"])
        self.acls, self.supers, self.error = acls, supers, error

    def describe_acls(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"principal": principal, "host": "*", "operation": operation, "permission_type": permission}
            for principal, operation, permission in self.acls
        ]
        resource = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "acls": rows}
        return {"error_code": self.error, "resources": [resource] if rows else []}

    def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        configs = [{"name": "super.users", "value": self.supers}]
        return {"results": [{"error_code": 0, "resource_type": 4, "resource_name": "1", "configs": configs}]}


@pytest.mark.parametrize(
    ("brokers", "may", "because"),
    [
        (Ruled(), False, "no ACL covers the resource"),
        (Ruled(("User:bob", 3, 3)), False, "ACLs cover the resource, but none is for this user"),
        (Ruled(("User:alice", 4, 3)), False, "none of the ACLs here is for this operation and host"),
        (Ruled(("User:alice", 3, 3)), True, "an ACL says: allow User:alice to read topic t from any host"),
        (Ruled(("User:alice", 3, 3), ("User:*", 3, 2)), False, "deny everyone to read topic t from any host"),
        (Ruled(supers="User:alice"), True, "this user is in super.users"),
        (Ruled(error=ErrorCode.security_disabled), True, "the cluster has no authorizer"),
    ],
)
def test_why(brokers: Ruled, may: bool, because: str) -> None:
    page, _ = shown(brokers, "rights", user="alice", name="t")
    assert page.is_asked
    assert page.may is may
    assert because in page.because
    assert page.sentence == f"User:alice {'may' if may else 'may not'} read topic:t"
    removal = "ottla acl remove 'User:*' read topic:t"
    assert page.remedy == ("" if may else removal if page.decider else "ottla acl add User:alice read topic:t")


def test_a_denial_goes_before_what_allows() -> None:
    brokers = Ruled(("User:alice", 3, 2), ("User:*", 2, 2), ("User:bob", 3, 3))
    page, _ = shown(brokers, "rights", user="alice", name="t")
    assert sorted(page.remedy.splitlines()[:2]) == [
        "ottla acl remove 'User:*' all topic:t",
        "ottla acl remove User:alice read topic:t",
    ]
    assert page.remedy.splitlines()[2] == "ottla acl add User:alice read topic:t"
    assert page.decider.permission == "deny"


LINE = ("Principal = User:alice is Denied operation = READ from host = 10.0.0.7 on resource = Topic:LITERAL:t for "
        "request = Fetch with resourceRefCount = 1 based on rule DefaultDeny")  # fmt: skip


def test_why_by_a_line_of_a_log() -> None:
    page, asking = shown(Ruled(), "rights", line=LINE)
    assert page.sentence == "User:alice may not read topic:t from 10.0.0.7"
    assert (page.rule, asking.text("user"), asking.text("name")) == ("DefaultDeny", "User:alice", "t")
    for line in ("nothing", "{", '{"principal": "User:a"}', LINE.replace("READ", "EAT")):
        with pytest.raises(Invalid, match="audit log"):
            shown(Ruled(), "rights", line=line)


def test_super_users_that_are_hidden() -> None:
    page, _ = shown(Ruled(supers=None), "rights", user="alice", name="t")
    assert not page.is_complete
    assert not shown(Ruled(), "rights")[0].is_asked
    for query in (
        {"user": ":", "name": "t", "operation": "cluster-action"},
        {"user": "a", "name": "t", "operation": "cluster-action"},
    ):
        with pytest.raises(Invalid):
            shown(Ruled(), "rights", **query)


def test_moves() -> None:
    page, _ = shown(FakeBrokers(["t"]), "moves")
    (row,) = page.rows
    assert (row.topic, row.adding, row.removing, row.in_sync) == ("t", [1], [2], [1])
    assert (page.adding, page.in_sync) == (1, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "...", "a/b", "plain", "a b"])
def test_every_group_has_a_page(name: str) -> None:
    application = Application(Site(Masks()), anonymous=user(FakeBrokers(["t"], [(name, "classic")])))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application.asgi())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.get(path) for path in ("/groups", group_url(name))]

    listed, page = asyncio.run(ask())
    assert f'href="{group_url(name).replace("&", "&amp;")}"' in listed.text
    assert page.status_code == 200
    assert f"<h1>{name or '(no name)'}</h1>" in page.text


def test_a_topic_in_words() -> None:
    class Plain(FakeBrokers):
        def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().describe_configs(values)
            answer["results"][0]["configs"] = []
            return answer

    page, _ = shown(Plain(["t"]), "topic", {"topic": "t"})
    words = {each.heading: each.text for each in page.explained}
    assert "It survives the loss of no broker" in words["losses"]
    assert words["kept"].startswith("A record is kept for 7 days")


class Told(FakeBrokers):
    """A broker whose answer to ListClients the test gives."""

    def __init__(self, answer: Any) -> None:
        super().__init__(["t"])
        self.answer = answer

    def list_clients(self, values: Mapping[str, Any]) -> dict[str, Any]:
        assert values["only_producers"]
        if isinstance(self.answer, Exception):
            raise self.answer
        (known,) = super().list_clients(values)["clients"]
        rows: list[dict[str, Any]] = [{**known, **row} for row in self.answer]
        return {"error_code": 0, "clients": rows}


def test_the_connection_that_was_used_last_counts() -> None:
    page, asking = shown(
        Told(
            [
                {"client_id": "new", "idle_ms": 10, "principal": "User:ann", "software_version": "unknown"},
                {"client_id": "old", "idle_ms": 9_000},
                {"client_id": "another", "producer_id": 8, "idle_ms": 1},
            ]
        ),
        "topic",
        {"topic": "t"},
    )
    (row,) = page.producers
    assert (row.client_id, row.user, row.software, row.address) == ("new", "ann", "s", "h")
    assert asking.problems == {}


def test_a_producer_that_is_not_connected_is_shown_without_a_client() -> None:
    (row,) = shown(Told([{"producer_id": 9}]), "topic", {"topic": "t"})[0].producers
    assert (row.producer_id, row.client_id, row.software) == ("7", None, None)


def test_brokers_that_do_not_tell() -> None:
    """Kafka's have no such request, which is no problem of the page; a right that is missing is named."""
    page, asking = shown(Told(failure(ApiKey.LIST_CLIENTS, ErrorCode.unsupported_version)), "topic", {"topic": "t"})
    assert page.producers[0].client_id is None and asking.problems == {}
    refused = failure(ApiKey.LIST_CLIENTS, ErrorCode.cluster_authorization_failed)
    page, asking = shown(Told(refused), "topic", {"topic": "t"})
    assert page.producers[0].producer_id == "7"
    assert asking.problems["clients"].right == "Describe on the cluster"
