"""The audit log of a node: logins, denials and changes over a socket, each with who, whence, what and by which rule."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.exits import FAILED, OK
from ottla.cli.main import main
from ottla.controller.changes import Resource
from ottla.drivers.audit import audit_log
from ottla.errors import OttlaError
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.security.audit import Check, Head
from ottla.security.sasl.client import PlainClient
from ottla.server.node import Node
from ottla.server.security import audit
from ottla.server.security.audited_changes import text_of
from ottla.testing.process import reserve
from tests.unit.controller.test_acls import creation, wanted
from tests.unit.server.listeners import test_tls
from tests.unit.server.node import Client, batch, running
from tests.unit.server.security.test_authentication import authenticate, closed, connect, handshake, log_in, of, secured
from tests.unit.server.stub import until

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
GUARDED = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
PASSWORDS = ("alice-secret", "admin-secret", "guessed-c0ffee")


def events(directory: Path, node: int = 1) -> list[dict[str, Any]]:
    """Everything in the log of a node, which has to be whole."""
    place = directory / f"node-{node}"
    check = Check((Head.read((place / "head").read_text()),))
    text = "".join(each.read_text() for each in sorted(place.glob("*.jsonl")))
    said = [each for each in map(check.line, text.encode().splitlines()) if each is not None]
    assert said + check.end() == []
    return [json.loads(line) for line in text.splitlines()]


def named(found: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [each for each in found if each["event"] == event]


@asynccontextmanager
async def audited(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Node]:
    own = {"ottla.audit.directory": str(directory / "audit"), **GUARDED, **(settings or {})}
    async with secured(directory / "data", own) as node:
        yield node


async def as_user(node: Node, name: str) -> Client:
    client = await connect(node)
    assert (await log_in(client, name, f"{name}-secret"))["error_code"] == 0
    return client


def test_logins_denials_and_changes(tmp_path: Path) -> None:
    async def test() -> None:
        async with audited(tmp_path) as node:
            admin, alice = await as_user(node, "admin"), await as_user(node, "alice")
            for password in ("guessed-c0ffee", "guessed-c0ffee"):
                stranger = await connect(node)
                assert (await log_in(stranger, "mallory", password))["error_code"] == 58
                await closed(stranger)
            await admin.create("orders", {"retention.ms": "1000"}, 2)
            refused = await alice.ask(
                ApiKey.METADATA, 9, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
            )
            assert refused["topics"][0]["error_code"] == 29
            assert (await alice.produce("orders", batch()))["error_code"] == 29
            await admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": [creation(operation=4)]})
            assert (await alice.produce("orders", batch()))["error_code"] == 0
            answer = await alice.ask(
                ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "orders", "topic_id": None}], "timeout": 1}
            )
            assert answer["responses"][0]["error_code"] == 29
            await admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]})

    asyncio.run(test())
    found = events(tmp_path / "audit")
    logins = [
        (each["principal"], each["mechanism"], each["host"], each["allowed"]) for each in named(found, "LoggedIn")
    ]
    assert logins == [("User:admin", "PLAIN", "127.0.0.1", True), ("User:alice", "PLAIN", "127.0.0.1", True)]
    first, again = named(found, "LoginFailed")
    assert (first["claimed"], first["allowed"], first["reason"]) == (
        "mallory",
        False,
        "Authentication failed: Invalid username or password",
    )
    assert again["times"] == 1 and again["claimed"] == "mallory"
    denied = {
        (each["principal"], each["operation"], each["resource"]): each["rule"] for each in named(found, "AccessDenied")
    }
    assert denied == {
        ("User:alice", "DESCRIBE", "topic:orders"): "DefaultDeny",
        ("User:alice", "WRITE", "topic:orders"): "DefaultDeny",
        ("User:alice", "DELETE", "topic:orders"): "DefaultDeny",
    }
    (created,) = named(found, "CreateTopics")
    assert (created["principal"], created["resource"], created["rule"]) == ("User:admin", "topic:orders", "SuperUser")
    assert {"what": "retention.ms", "before": None, "after": "1000"} in created["changes"]
    (added,), (removed,) = named(found, "CreateAcls"), named(found, "DeleteAcls")
    assert added["changes"][0]["after"] == removed["changes"][0]["before"] and removed["changes"][0]["after"] is None
    assert [each["event"] for each in found[:2]] == ["FileOpened", "Started"] and found[-1]["event"] == "Stopped"
    text = json.dumps(found)
    assert not any(each in text for each in PASSWORDS)


def test_a_change_by_an_acl_names_the_acl(tmp_path: Path) -> None:
    async def test() -> None:
        async with audited(tmp_path) as node:
            admin, alice = await as_user(node, "admin"), await as_user(node, "alice")
            await admin.ask(
                ApiKey.CREATE_ACLS, 3, {"creations": [creation("or", operation=5, resource_pattern_type=4)]}
            )
            await alice.create("orders")

    asyncio.run(test())
    (created,) = named(events(tmp_path / "audit"), "CreateTopics")
    assert created["principal"] == "User:alice"
    assert created["rule"].startswith(
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=or, patternType=PREFIXED"
    )


def test_changes_that_fail_and_those_of_groups_records_and_loggers(tmp_path: Path) -> None:
    async def test() -> None:
        own = {"ottla.audit.directory": str(tmp_path / "audit")}
        async with running(str(tmp_path / "data"), own) as node:
            client = await Client.connect(node)
            await client.create("orders")
            await client.produce("orders", batch(count=3))
            rows = [{"name": "orders", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}]
            await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": rows, "timeout": 1, "validate_only": False})
            rows[0]["name"] = "checked"
            await client.ask(ApiKey.CREATE_TOPICS, 7, {"topics": rows, "timeout": 1, "validate_only": True})
            deleted = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 2}]}]
            await client.ask(ApiKey.DELETE_RECORDS, 2, {"topics": deleted, "timeout": 1000})
            keys = {"key_type": 0, "coordinator_keys": ["nobody"]}
            while True:
                if not (await client.ask(ApiKey.FIND_COORDINATOR, 4, keys))["coordinators"][0]["error_code"]:
                    answer = await client.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["nobody"]})
                    if answer["results"][0]["error_code"] == 69:
                        break
                await asyncio.sleep(0)
            level = {"name": "ottla.audit", "config_operation": 0, "value": "WARN"}
            logger = {"resource_type": 8, "resource_name": "1", "configs": [level]}
            await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [logger], "validate_only": False})
            setting = {
                "name": "listener.name.plaintext.ssl.key.password",
                "config_operation": 0,
                "value": "guessed-c0ffee",
            }
            broker = {"resource_type": 4, "resource_name": "1", "configs": [setting]}
            await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [broker], "validate_only": False})
            await client.ask(ApiKey.UPDATE_FEATURES, 1, {"timeout": 1, "feature_updates": [], "validate_only": False})

    asyncio.run(test())
    logging.getLogger("ottla.audit").setLevel(logging.NOTSET)
    found = events(tmp_path / "audit")
    made = [each for each in named(found, "CreateTopics") if each["resource"] in ("topic:orders", "topic:checked")]
    again, checked = made[1:]
    assert again["error"] == "TOPIC_ALREADY_EXISTS" and "changes" not in again and again["rule"] == "NoAuthorizer"
    assert checked["validate_only"] is True
    (records,) = named(found, "DeleteRecords")
    assert records["changes"] == [{"what": "start of partition 0", "before": 0, "after": 2}]
    (group,) = named(found, "DeleteGroups")
    assert (group["resource"], group["error"]) == ("group:nobody", "GROUP_ID_NOT_FOUND")
    logger, broker = named(found, "IncrementalAlterConfigs")
    assert logger["changes"] == [{"what": "level of ottla.audit", "before": None, "after": "WARN"}]
    assert (broker["resource"], broker["changes"][0]["after"]) == ("broker:1", "[hidden]")
    assert named(found, "UpdateFeatures")[0]["resource"] == "cluster"
    assert "guessed-c0ffee" not in json.dumps(found)


def test_a_change_through_another_broker_names_the_client(tmp_path: Path) -> None:
    """The controller's log has it, once."""
    held = reserve(0)
    port = held.getsockname()[1]
    common = {
        "ottla.audit.topic": "audit",
        "default.replication.factor": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "ottla.cluster.id": "Jk3UMx2zQ0y8oVh1mE5cRw",
        "ottla.audit.directory": str(tmp_path / "audit"),
    }
    controller = {
        **common,
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
    }
    broker = {**common, "process.roles": "broker", "node.id": "2"}

    async def test() -> None:
        async with running(str(tmp_path / "1"), controller) as first, running(str(tmp_path / "2"), broker) as node:
            client = await Client.connect(node)
            await client.create("orders")
            for each in (first, node):
                topic = None if each.audit is None else each.audit.topic
                assert topic is not None, "a controller without a broker ships too"
                await until(lambda topic=topic: topic.shipped >= 2)  # type: ignore[misc]
            client.close()

    asyncio.run(test())
    held.close()
    made = named(events(tmp_path / "audit", 1), "CreateTopics")
    (created,) = [each for each in made if each["resource"] == "topic:orders"]
    assert (created["principal"], created["host"], created["client_id"]) == ("User:ANONYMOUS", "127.0.0.1", "test")
    assert named(events(tmp_path / "audit", 2), "CreateTopics") == []


def test_lines_are_shipped_to_a_topic_once_over_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the files, of which there are several."""
    own = {
        "ottla.audit.directory": str(tmp_path / "audit"),
        "ottla.audit.topic": "audit",
        "ottla.audit.file.bytes": "4096",
    }

    async def life(names: list[str], seed: int) -> list[bytes]:
        async with running(str(tmp_path / "data"), own, seed=seed) as node:
            client = await Client.connect(node)
            for name in names:
                await client.create(name)
            assert node.audit is not None and node.audit.topic is not None
            log, shipped = node.audit.log, node.audit.topic
            await until(lambda: log.written == shipped.shipped == log.head.seq)
            lines: list[bytes] = []
            while True:
                found = await client.fetch("audit", len(lines))
                if not found["records"]:
                    break
                for position, _ in iterate_batches(found["records"]):
                    lines += [each.value or b"" for each in iterate_records(found["records"], position)]
            bootstrap = f"127.0.0.1:{node.ports['PLAINTEXT']}"
            verify = ["audit", "verify", "--topic", "audit", "-b", bootstrap]
            assert await asyncio.to_thread(main, verify) == OK
            assert await asyncio.to_thread(main, ["audit", "search", "--topic", "audit", "-b", bootstrap]) == OK
            if seed == 2:
                forged = SimpleRecord(1, b"node-1", lines[3].replace(b"topic", b"t0pic"))
                await client.produce("audit", bytes(build_batch([forged])))
                assert await asyncio.to_thread(main, verify) == FAILED
            client.close()
            return lines

    async def test() -> None:
        first = await life([f"topic{n}" for n in range(30)], 1)
        again = await life(["more"], 2)
        numbers = [json.loads(each)["seq"] for each in again]
        assert again[: len(first)] == first and numbers == list(range(1, len(again) + 1))

    asyncio.run(test())
    said = capsys.readouterr().out
    assert said.count("audit node-1:") == 3 and said.count(": whole") == 2 and "CreateTopics" in said
    assert "stands behind" in said and "audit-0 offset" in said
    assert len(list((tmp_path / "audit/node-1").glob("*.jsonl"))) > 2


def test_classes_of_events_and_reading_and_writing(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"ottla.audit.events": "data"}
        async with audited(tmp_path, settings) as node:
            admin = await as_user(node, "admin")
            await admin.create("orders")
            for _ in range(3):
                await admin.produce("orders", batch())
            await admin.fetch("orders", 0)

    asyncio.run(test())
    found = [each for each in events(tmp_path / "audit") if each["class"] != "audit"]
    assert {each["class"] for each in found} == {"data"}
    told = {(each["principal"], each["operation"], each["resource"]) for each in found}
    assert told == {("User:admin", "WRITE", "topic:orders"), ("User:admin", "READ", "topic:orders")}


def test_floods_are_counted_and_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "REPEATED_MAX", 50)

    async def test() -> None:
        async with audited(tmp_path) as node:
            for number in range(1_000):
                assert node.audit is not None
                node.audit.login_failed("10.0.0.1", "EXTERNAL", "PLAIN", "wrong", f"user{number % 10}" + "x" * 1000)

    asyncio.run(test())
    failed = named(events(tmp_path / "audit"), "LoginFailed")
    assert len(failed) == 20 and sum(each.get("times", 1) for each in failed) == 1_000
    assert all(len(each["claimed"]) == audit.CLAIMED_LENGTH_MAX for each in failed)


def test_a_client_that_never_logs_in_and_one_that_changes_its_mind(tmp_path: Path) -> None:
    async def test() -> None:
        async with audited(tmp_path, {"connections.max.reauth.ms": "60000"}) as node:
            alice = await as_user(node, "alice")
            await handshake(alice)
            answer = await authenticate(alice, PlainClient("alice", "alice-secret").first())
            assert answer["error_code"] == 0
            authentication = of(node)
            authentication.settings = authentication.settings._replace(timeout_s=0.02)
            await closed(await connect(node))

    asyncio.run(test())
    found = events(tmp_path / "audit")
    (late,) = named(found, "LoginFailed")
    assert "has not logged in within" in late["reason"] and late["allowed"] is False
    assert named(found, "Reauthenticated")[0]["principal"] == "User:alice"


def test_clients_with_certificates_and_those_without(tmp_path: Path) -> None:
    async def test() -> None:
        own = {"ottla.audit.directory": str(tmp_path / "audit")}
        async with running(str(tmp_path / "data"), {**test_tls.settings(tmp_path), **own}) as node:
            client = await test_tls.connect(node, tmp_path)
            await client.ask(ApiKey.METADATA, 9, {"topics": []})
            client.close()
            assert node.tls is not None
            with contextlib.suppress(OSError):
                stranger = await test_tls.connect(node, tmp_path, None)
                await closed(stranger)
            tls = node.tls
            await until(lambda: sum(tls.failed.values()))

    asyncio.run(test())
    found = events(tmp_path / "audit")
    (login,), (failed,) = named(found, "LoggedIn"), named(found, "LoginFailed")
    assert "CN=alice" in login["principal"] and login["mechanism"] == failed["mechanism"] == "SSL"
    assert failed["allowed"] is False and "certificate" in failed["reason"]


def test_a_node_without_an_audit_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path)) as node:
            assert node.audit is None

    asyncio.run(test())


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def test() -> None:
        async with running(str(tmp_path / "data"), {"ottla.audit.directory": str(tmp_path / "file")}):
            pass

    with pytest.raises(OttlaError, match=r"ottla\.audit\.directory"):
        asyncio.run(test())


def test_resources_are_written_as_on_the_command_line() -> None:
    assert text_of(Resource("TOPIC", "orders")) == "topic:orders"
    assert text_of(Resource("TRANSACTIONAL_ID", "t")) == "transactional-id:t"
    assert text_of(Resource("CLUSTER", "kafka-cluster")) == "cluster"
    assert audit_log.RESERVED < audit_log.QUEUE_MAX
