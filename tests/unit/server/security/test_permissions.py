"""Every API in every version, by clients that may do nothing, everything, or everything but one thing.

`tests/conformance/differential/test_permissions_like_kafka.py` asks Apache Kafka the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.principal import encode_principal
from ottla.replication.share.dead_letters import LostLetters
from ottla.security.acls import Operation, ResourceType
from ottla.server import api
from ottla.server.api import Api
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import FORWARDABLE, OWN, TABLE
from ottla.server.security.authorization import ERRORS, rules_changed
from ottla.server.security.permissions import Need, Open, Refused
from tests.unit.server.node import Client, batch, fetch_values, produce_values, running
from tests.unit.server.permits import Rules, everything, nothing, refusals, requests, rule

SETTINGS = {
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names": "CONTROLLER",
    "share.coordinator.state.topic.replication.factor": "1", "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
}  # fmt: skip
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
READ, WRITE, CREATE, DELETE, DESCRIBE = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.DESCRIBE,
)  # fmt: skip
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER

Test = Callable[[Any, Client], Awaitable[None]]


def play(tmp_path: Path, test: Test, **settings: str) -> None:
    """A node whose topic `t` was made before it had an authorizer, and a client of its broker."""

    async def run() -> None:
        changed = {name.replace("_", "."): value for name, value in settings.items()}
        async with running(str(tmp_path), {**SETTINGS, **changed}) as node:
            client = await Client.connect(node)
            await client.create("t")
            await test(node, client)
            client.close()

    asyncio.run(asyncio.wait_for(run(), 120))


async def with_coordinators(client: Client) -> None:
    for kind, name in ((0, "g"), (1, "x")):
        while True:
            found = await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [name]})
            if not found["coordinators"][0]["error_code"]:
                break
    found = {"key_type": 2, "coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"]}
    while (await client.ask(ApiKey.FIND_COORDINATOR, 6, found))["coordinators"][0]["error_code"]:
        pass
    while refused_rows(await client.ask(ApiKey.OFFSET_COMMIT, 8, commit("g"))):
        pass


def commit(group: str) -> dict[str, Any]:
    rows = [{"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": ""}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": rows}],
    }


def refused_rows(answer: Any) -> list[ErrorCode]:
    return [row["error_code"] for topic in answer["topics"] for row in topic["partitions"] if row["error_code"]]


async def of_controller(node: Any) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", node.ports["CONTROLLER"], limit=1 << 24))


def id_of(node: Any, name: str = "t") -> UUID:
    found: UUID = node.image.topic(name).id
    return found


def needs_of(loaded: Api, version: int) -> list[Need]:
    if isinstance(loaded.needs, Open):
        return []
    return [each for each in loaded.needs if each.versions is None or each.versions[0] <= version <= each.versions[1]]


def declared(loaded: Api, version: int) -> set[tuple[Operation, ResourceType]]:
    needs = needs_of(loaded, version)
    return {(each.operation, each.kind) for each in needs} | {other for each in needs for other in each.instead}


AFTER_LOGIN = {
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.STORE_USER_SCRAM_CREDENTIALS,
}  # fmt: skip
"""Refused on PLAINTEXT to everybody: `test_delegation_tokens.py` and `test_stored_users.py` ask whom else."""


def served(controller: bool) -> Iterator[tuple[ApiKey, int, Api]]:
    load, table = (api.load_for_controller, CONTROLLER_TABLE) if controller else (api.load, {**TABLE, **OWN})
    for key, row in table.items():
        for version in range(row.min_version, row.max_version + 1):
            if (key != ApiKey.PRODUCE or version >= 3) and key not in AFTER_LOGIN:
                yield ApiKey(key), version, load(key)


@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_who_may_do_nothing_is_refused_by_every_api_in_every_version(tmp_path: Path, controller: bool) -> None:
    """And is asked about nothing that is not declared."""
    wrong: list[str] = []
    seen: dict[ApiKey, set[tuple[Operation, ResourceType]]] = {}

    async def test(node: Any, client: Client) -> None:
        if controller:
            client = await of_controller(node)
        rules, looked_at = rule(node, nothing), 0
        for key, version, loaded in served(controller):
            needs = needs_of(loaded, version)
            for values in requests(key, version, id_of(node)):
                rules.asked.clear()
                answer = await client.ask(key, version, values)
                asked = {each.what for each in rules.asked}
                seen.setdefault(key, set()).update(asked)
                looked_at += 1
                omits = all(each.refused is Refused.OMITTED for each in needs) or values.get("topics", ()) is None
                if asked - declared(loaded, version) or not (asked or omits):
                    wrong.append(f"{key.name} v{version}: asks {asked}, declared {declared(loaded, version)}")
                has_no_room = key == ApiKey.DESCRIBE_LOG_DIRS and version < 3 and not answer["results"]
                if needs and not refusals(answer) and not omits and not has_no_room:
                    wrong.append(f"{key.name} v{version} {values}: not refused, {answer}")
        assert looked_at > (60 if controller else 250)

    play(tmp_path, test)
    assert not wrong, "\n" + "\n".join(wrong)


NOT_FOR_TESTS = {
    ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_REGISTRATION, ApiKey.REMOVE_RAFT_VOTER, ApiKey.END_QUORUM_EPOCH,
    ApiKey.DELETE_TOPICS,
}  # fmt: skip
"""A node that does them is not the same afterwards; those that are refused have tests of their own."""


@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_every_declared_permission_is_asked_and_its_lack_refuses(tmp_path: Path, controller: bool) -> None:
    """Everything is allowed but one thing, and what would do in its place."""
    wrong: list[str] = []

    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        if controller:
            client = await of_controller(node)
        looked_at = 0
        for key, version, loaded in served(controller):
            if version not in (loaded.min_version, loaded.max_version, 3) or key in NOT_FOR_TESTS:
                continue
            for need in needs_of(loaded, version):
                denied = {(need.operation, need.kind), *need.instead}
                rules = rule(node, lambda operation, kind, name, denied=denied: (operation, kind) not in denied)  # type: ignore[misc]
                found: set[ErrorCode] = set()
                for values in requests(key, version, id_of(node)):
                    found |= refusals(await client.ask(key, version, values))
                looked_at += 1
                asked = {each.what for each in rules.asked}
                if (need.operation, need.kind) not in asked:
                    wrong.append(f"{key.name} v{version}: {need} was not asked")
                elif need.refused is not Refused.OMITTED and ERRORS[need.kind] not in found:
                    wrong.append(f"{key.name} v{version}: {need}, but {found}")
                elif found - {ERRORS[need.kind]}:
                    wrong.append(f"{key.name} v{version}: {need} refused with {found}")
        assert looked_at > (25 if controller else 120)

    play(tmp_path, test)
    found = [each for each in wrong if not any(part in each for part in UNSEEN)]
    assert not found, "\n" + "\n".join(found)


UNSEEN = (
    "LIST_GROUPS", "LIST_TRANSACTIONS", "DESCRIBE_LOST_LETTERS", "DESCRIBE_SHARE_PARTITIONS",  # lists empty here
    "of a controller", "of replicas", "to have internal topics created",
    "groups.members.assignment", "groups.topology", "transaction_states.topics",
    "SHARE_ACKNOWLEDGE v1: Need(operation=<Operation.READ: 3>, kind=<ResourceType.TOPIC",  # there is no session
    "SHARE_ACKNOWLEDGE v2: Need(operation=<Operation.READ: 3>, kind=<ResourceType.TOPIC",
    "DESCRIBE_LOG_DIRS v1",  # no room for an error
)  # fmt: skip
"""Needs that these requests do not show; tests of their own do."""


def test_who_may_do_everything_meets_no_refusal(tmp_path: Path) -> None:
    wrong: list[str] = []

    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        rule(node, everything)
        for key, version, loaded in served(False):
            if version != loaded.max_version or key in NOT_FOR_TESTS:
                continue
            for values in requests(key, version, id_of(node)):
                answer = await client.ask(key, version, values)
                if refusals(answer):
                    wrong.append(f"{key.name} {values}: {answer}")

    play(tmp_path, test)
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_node_without_an_authorizer_asks_nobody(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        assert node.authorizer is None
        for key, version, loaded in served(False):
            if version == loaded.max_version and key not in NOT_FOR_TESTS:
                for values in requests(key, version, id_of(node)):
                    assert not refusals(await client.ask(key, version, values))

    play(tmp_path, test)


# What is learned under old rules.


def test_no_shortcut_answers_by_rules_that_have_changed(tmp_path: Path) -> None:
    """Produce, heartbeats, commits and fetches of offsets that repeat are answered without a look at the rules."""

    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        rules = rule(node, everything)
        offsets = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}
        join = {
            "group_id": "j",
            "session_timeout": 30_000,
            "rebalance_timeout": 1000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        joined = await client.ask(ApiKey.JOIN_GROUP, 3, join)
        member = {"group_id": "j", "generation_id": joined["generation_id"], "member_id": joined["member_id"]}
        await client.ask(ApiKey.SYNC_GROUP, 2, {**member, "assignments": []})
        consumer = {
            "group_id": "k",
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": ["t"],
            "server_assignor": None,
            "topic_partitions": [],
        }
        epoch = (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, consumer))["member_epoch"]
        beat = {**consumer, "member_epoch": epoch, "rebalance_timeout": -1, "subscribed_topic_names": None}
        beat["topic_partitions"] = None
        asked: list[tuple[ApiKey, int, dict[str, Any]]] = [
            (ApiKey.PRODUCE, 9, produce_values("t", batch())),
            (ApiKey.OFFSET_COMMIT, 8, commit("g")),
            (ApiKey.OFFSET_FETCH, 8, offsets),
            (ApiKey.HEARTBEAT, 3, member),
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat),
        ]
        for key, version, values in asked:
            for _ in range(3):
                assert not refusals(await client.ask(key, version, values)), key
            rules.asked.clear()
            assert not refusals(await client.ask(key, version, values))
            assert rules.asked == [], f"{key.name} has no shortcut that this test could see"
        rule(node, nothing)
        for key, version, values in asked:
            for _ in range(3):  # nor is a refused one learned
                assert refusals(await client.ask(key, version, values)), key
        rule(node, everything)
        for key, version, values in asked:
            assert not refusals(await client.ask(key, version, values)), key

    play(tmp_path, test)


def test_an_acl_counts_from_the_next_request_on(tmp_path: Path) -> None:
    """The real authorizer: a DENY that is created on one connection refuses what another one repeats."""
    deny = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": WRITE,
        "permission_type": 2,
    }
    found = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "t",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }

    async def test(node: Any, client: Client) -> None:
        other = await Client.connect(node)
        denied = ErrorCode.topic_authorization_failed
        for _ in range(3):
            assert not (await client.produce("t", batch()))["error_code"]
        (row,) = (await other.ask(ApiKey.CREATE_ACLS, 3, {"creations": [deny]}))["results"]
        assert not row["error_code"]
        for _ in range(3):
            assert (await client.produce("t", batch()))["error_code"] == denied
        (row,) = (await other.ask(ApiKey.DELETE_ACLS, 3, {"filters": [found]}))["filter_results"]
        assert len(row["matching_acls"]) == 1
        assert not (await client.produce("t", batch()))["error_code"]

    play(tmp_path, test, authorizer_class_name=STANDARD, allow_everyone_if_no_acl_found="true")


def test_the_shortcuts_of_all_connections_are_forgotten(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        other = await Client.connect(node)
        for each in (client, other):
            for _ in range(2):
                await each.produce("t", batch())
        connections = [each for listener in node.listeners for each in listener.connections]
        assert len([each for each in connections if each.shortcuts]) == 2
        rules_changed(node)
        assert not any(each.shortcuts for each in connections)

    play(tmp_path, test)


def test_a_transactional_batch_is_not_smuggled_past_its_id(tmp_path: Path) -> None:
    """A request with a transactional id and a plain batch needs no permission for the id. What is learned from it must
    not answer one with a transactional batch."""

    async def test(node: Any, client: Client) -> None:
        rule(node, lambda operation, kind, name: kind != ResourceType.TRANSACTIONAL_ID)
        plain = {**produce_values("t", batch()), "transactional_id": "x"}
        records = batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        transactional = {**produce_values("t", records), "transactional_id": "x"}
        for _ in range(3):
            assert not refusals(await client.ask(ApiKey.PRODUCE, 9, plain))
            assert refusals(await client.ask(ApiKey.PRODUCE, 9, transactional)) == {
                ErrorCode.transactional_id_authorization_failed
            }

    play(tmp_path, test)


# Produce and fetch.


def test_a_refused_produce_without_answers_closes_the_connection(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        rule(node, nothing)
        client.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0))
        assert await client.reader.read() == b""
        rule(node, everything)
        again = await Client.connect(node)
        again.send(ApiKey.PRODUCE, 9, produce_values("t", batch(), acks=0))
        assert (await again.fetch("t", 0))["high_watermark"] == 1

    play(tmp_path, test)


def test_rows_are_refused_one_by_one(tmp_path: Path) -> None:
    """A topic that may not be written to looks the same whether it exists; by its id that can be told, as in Kafka."""

    async def test(node: Any, client: Client) -> None:
        await client.create("u")
        rule(node, lambda operation, kind, name: name == "t")
        topics = [
            {"name": name, "partition_data": [{"index": 0, "records": batch()}]} for name in ("t", "u", "missing")
        ]
        answer = await client.ask(ApiKey.PRODUCE, 9, {**produce_values("t", b""), "topic_data": topics})
        errors = {each["name"]: each["partition_responses"][0]["error_code"] for each in answer["responses"]}
        denied = ErrorCode.topic_authorization_failed
        assert errors == {"t": ErrorCode.none, "u": denied, "missing": denied}
        named = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        asked = [{"topic_id": each, "partitions": named} for each in (id_of(node, "t"), id_of(node, "u"), UUID(int=9))]
        answer = await client.ask(ApiKey.FETCH, 13, fetch_values("t", 0, topics=asked))
        errors = {each["topic_id"]: each["partitions"][0]["error_code"] for each in answer["responses"]}
        assert [*errors.values()] == [ErrorCode.none, denied, ErrorCode.unknown_topic_id]

    play(tmp_path, test)


def test_each_fetch_of_a_session_is_decided_again(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        rule(node, everything)
        await client.produce("t", batch())
        opened = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0, session_epoch=0))
        assert opened["session_id"] and opened["responses"][0]["partitions"][0]["records"]
        session = {"session_id": opened["session_id"], "topics": []}
        rule(node, nothing)
        answer = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0, session_epoch=1, **session))
        (row,) = answer["responses"][0]["partitions"]
        assert row["error_code"] == ErrorCode.topic_authorization_failed and not row["records"]
        rule(node, everything)
        answer = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0, session_epoch=2, **session))
        assert answer["responses"][0]["partitions"][0]["records"]

    play(tmp_path, test)


def test_a_replica_that_nobody_allows_reads_nothing(tmp_path: Path) -> None:
    """CVE-2018-1288: the permission of a consumer is none of a replica."""

    async def test(node: Any, client: Client) -> None:
        rules = rule(node, lambda operation, kind, name: kind == TOPIC)
        answer = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0, replica_id=5))
        assert answer["responses"][0]["partitions"][0]["error_code"] == ErrorCode.topic_authorization_failed
        assert {each.what for each in rules.asked} == {(Operation.CLUSTER_ACTION, CLUSTER)}
        rules.allows = lambda operation, kind, name: kind == CLUSTER
        answer = await client.ask(ApiKey.FETCH, 12, fetch_values("t", 0, replica_id=5))
        assert answer["responses"][0]["partitions"][0]["error_code"] != ErrorCode.topic_authorization_failed

    play(tmp_path, test)


def test_share_consumers_read_and_acknowledge_what_they_may(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        rules = rule(node, lambda operation, kind, name: kind == GROUP)
        where = {"partition_index": 0, "acknowledgement_batches": []}
        topics = [{"topic_id": id_of(node), "partitions": [where]}]
        fetch = {
            "group_id": "s",
            "member_id": "m",
            "share_session_epoch": 0,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": topics,
            "forgotten_topics_data": [],
        }
        denied = {ErrorCode.topic_authorization_failed}
        assert refusals(await client.ask(ApiKey.SHARE_FETCH, 1, fetch)) == denied
        done = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        topics = [{"topic_id": id_of(node), "partitions": [{**where, "acknowledgement_batches": done}]}]
        acknowledge = {"group_id": "s", "member_id": "m", "share_session_epoch": 1, "topics": topics}
        assert refusals(await client.ask(ApiKey.SHARE_ACKNOWLEDGE, 1, acknowledge)) == denied
        rules.allows = everything
        again = {**acknowledge, "share_session_epoch": 2}
        assert not refusals(await client.ask(ApiKey.SHARE_ACKNOWLEDGE, 1, again))
        rules.allows = lambda operation, kind, name: kind == TOPIC
        answer = await client.ask(ApiKey.SHARE_FETCH, 1, {**fetch, "share_session_epoch": 3})
        assert answer["error_code"] == ErrorCode.group_authorization_failed

    play(tmp_path, test)


def test_lost_letters_name_no_topic_that_is_hidden(tmp_path: Path) -> None:
    """The group was all that was asked about."""

    async def test(node: Any, client: Client) -> None:
        lost = LostLetters(TopicPartition("t", 0), 7, 1, "no topic")
        node.share.partitions.lost_letters["s"] = lost
        rules = rule(node, lambda operation, kind, name: kind == GROUP)
        asked = {"groups": ["s", "other"]}
        assert (await client.ask(ApiKey.DESCRIBE_LOST_LETTERS, 0, asked))["groups"] == []
        rules.allows = lambda operation, kind, name: kind == TOPIC
        assert (await client.ask(ApiKey.DESCRIBE_LOST_LETTERS, 0, asked))["groups"] == []
        rules.allows = everything
        (row,) = (await client.ask(ApiKey.DESCRIBE_LOST_LETTERS, 0, asked))["groups"]
        assert (row["group_id"], row["topic"], row["first_offset"]) == ("s", "t", 7)

    play(tmp_path, test)


def test_denied_topics_do_not_become_part_of_a_transaction(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        await client.create("u")
        init = {"transactional_id": "x", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        made = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, init)
        rule(node, lambda operation, kind, name: name != "u")
        records = batch(
            transactional=True, producer_id=made["producer_id"], producer_epoch=made["producer_epoch"], base_sequence=0
        )
        topics = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in ("t", "u")]
        values = {**produce_values("t", b""), "transactional_id": "x", "topic_data": topics}
        answer = await client.ask(ApiKey.PRODUCE, 12, values)
        errors = [each["partition_responses"][0]["error_code"] for each in answer["responses"]]
        assert errors == [ErrorCode.none, ErrorCode.topic_authorization_failed]
        (state,) = (await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x"]}))[
            "transaction_states"
        ]
        assert [each["topic"] for each in state["topics"]] == ["t"]

    play(tmp_path, test)


# Lists leave out what is hidden.


def test_metadata_of_all_topics_leaves_out_the_hidden(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await client.create("u")
        rule(node, lambda operation, kind, name: name == "t" and operation == DESCRIBE)
        values = {"topics": None, "allow_auto_topic_creation": True, "include_topic_authorized_operations": True}
        answer = await client.ask(ApiKey.METADATA, 10, {**values, "include_cluster_authorized_operations": True})
        (row,) = answer["topics"]
        assert (row["name"], row["topic_authorized_operations"]) == ("t", 1 << DESCRIBE)
        assert answer["cluster_authorized_operations"] == 0
        named = [{"name": name, "topic_id": None} for name in ("t", "u", "missing")]
        answer = await client.ask(ApiKey.METADATA, 12, {**values, "topics": named})
        errors = {row["name"]: (row["error_code"], row["topic_id"]) for row in answer["topics"]}
        assert errors["u"] == errors["missing"] and errors["u"][0] == ErrorCode.topic_authorization_failed
        assert node.image.topic("missing") is None

    play(tmp_path, test)


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER])
def test_missing_topics_are_created_for_who_may(tmp_path: Path, kind: ResourceType) -> None:
    async def test(node: Any, client: Client) -> None:
        rules = rule(node, lambda operation, kind, name: operation == DESCRIBE)
        asked = {"topics": [{"name": "made"}], "allow_auto_topic_creation": True}
        (row,) = (await client.ask(ApiKey.METADATA, 5, asked))["topics"]
        assert row["error_code"] == ErrorCode.topic_authorization_failed and node.image.topic("made") is None
        rules.allows = lambda operation, on, name: operation == DESCRIBE or (operation, on) == (CREATE, kind)
        (row,) = (await client.ask(ApiKey.METADATA, 5, asked))["topics"]
        assert row["error_code"] == ErrorCode.none and node.image.topic("made") is not None

    play(tmp_path, test)


def test_lists_of_groups_and_transactions_leave_out_the_hidden(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        for name in ("g1", "g2"):
            await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(name))
            init = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
            await client.ask(ApiKey.INIT_PRODUCER_ID, 4, init)

        async def listed() -> tuple[list[str], list[str]]:
            groups = (await client.ask(ApiKey.LIST_GROUPS, 3, {}))["groups"]
            loaded = {"state_filters": [], "producer_id_filters": []}
            ids = (await client.ask(ApiKey.LIST_TRANSACTIONS, 0, loaded))["transaction_states"]
            found = sorted(row["group_id"] for row in groups if row["group_id"] != "g")
            return found, sorted(row["transactional_id"] for row in ids)

        rules = rule(node, lambda operation, kind, name: name == "g2")
        assert await listed() == (["g2"], ["g2"])
        rules.allows = lambda operation, kind, name: kind == CLUSTER  # an old way to see all groups
        assert await listed() == (["g1", "g2"], [])
        offsets = {"groups": [{"group_id": "g1", "topics": None}]}
        rules.allows = lambda operation, kind, name: kind == GROUP
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, offsets))["groups"]
        assert (group["error_code"], group["topics"]) == (ErrorCode.none, [])

    play(tmp_path, test)


def test_members_of_groups_with_hidden_topics_are_hidden(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        await with_coordinators(client)
        consumer = {
            "group_id": "k",
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": ["t"],
            "server_assignor": None,
            "topic_partitions": [],
        }
        assert not (await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, consumer))["error_code"]
        asked = {"group_ids": ["k"], "include_authorized_operations": True}
        rules = rule(node, lambda operation, kind, name: kind == GROUP and operation == DESCRIBE)
        (row,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, asked))["groups"]
        assert (row["error_code"], row["members"]) == (ErrorCode.topic_authorization_failed, [])
        rules.allows = lambda operation, kind, name: operation == DESCRIBE
        (row,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, asked))["groups"]
        assert len(row["members"]) == 1 and row["authorized_operations"] == 1 << DESCRIBE

    play(tmp_path, test)


# Topics.


def test_topics_are_deleted_by_who_may_and_hidden_from_who_may_not(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        for name in ("u", "v"):
            await client.create(name)
        rules = rule(node, lambda operation, kind, name: (operation, name) in {(DESCRIBE, "u"), (DESCRIBE, "none")})
        ids = {name: id_of(node, name) for name in ("t", "u", "v")}
        asked = [
            *({"name": name, "topic_id": None} for name in ("t", "u", "missing", "none")),
            *({"name": None, "topic_id": each} for each in (ids["v"], UUID(int=9))),
        ]
        answer = await client.ask(ApiKey.DELETE_TOPICS, 6, {"topics": asked, "timeout": 1000})
        rows = {row["name"] or row["topic_id"]: row["error_code"] for row in answer["responses"]}
        denied = ErrorCode.topic_authorization_failed
        assert rows == {
            "t": denied,
            "u": denied,
            "missing": denied,
            "none": ErrorCode.unknown_topic_or_partition,
            ids["v"]: denied,
            UUID(int=9): ErrorCode.unknown_topic_id,
        }
        assert len(node.image.topics_by_name) == 3
        rules.allows = lambda operation, kind, name: (operation, kind) == (DELETE, CLUSTER)
        answer = await client.ask(ApiKey.DELETE_TOPICS, 1, {"topic_names": ["t"], "timeout": 1000})
        assert [row["error_code"] for row in answer["responses"]] == [ErrorCode.none]

    play(tmp_path, test)


def test_settings_of_a_new_topic_are_shown_to_who_may_see_them(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        def asked(*names: str) -> dict[str, Any]:
            more = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            topics = [{"name": name, **more} for name in names]
            return {"topics": topics, "timeout": 1000, "validate_only": False}

        rules = rule(node, lambda operation, kind, name: (operation, kind) == (CREATE, TOPIC) and name != "b")
        rows = {row["name"]: row for row in (await client.ask(ApiKey.CREATE_TOPICS, 7, asked("a", "b")))["topics"]}
        assert rows["b"]["error_code"] == ErrorCode.topic_authorization_failed and node.image.topic("b") is None
        hidden = rows["a"]
        assert (hidden["error_code"], hidden["num_partitions"], hidden["configs"]) == (ErrorCode.none, -1, [])
        assert hidden["topic_config_error_code"] == ErrorCode.topic_authorization_failed
        rules.allows = everything
        (shown,) = (await client.ask(ApiKey.CREATE_TOPICS, 7, asked("c")))["topics"]
        assert shown["num_partitions"] == 2 and shown["configs"] and not shown["topic_config_error_code"]

    play(tmp_path, test)


def test_settings_of_a_broker_are_not_looked_at_before_the_client_is(tmp_path: Path) -> None:
    """Kafka validates first, and opens any file that is named."""

    async def test(node: Any, client: Client) -> None:
        rule(node, nothing)
        configs = [{"name": "ssl.keystore.location", "config_operation": 0, "value": "/etc/passwd"}]
        broker = [{"resource_type": 4, "resource_name": str(node.node_id), "configs": configs}]
        asked = {"resources": broker, "validate_only": False}
        (row,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked))["responses"]
        assert row["error_code"] == ErrorCode.cluster_authorization_failed
        logger = [{"name": "root", "config_operation": 0, "value": "nonsense"}]
        broker = [{"resource_type": 8, "resource_name": str(node.node_id), "configs": logger}]
        (row,) = (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {**asked, "resources": broker}))["responses"]
        assert row["error_code"] == ErrorCode.cluster_authorization_failed

    play(tmp_path, test)


def test_a_refused_search_for_coordinators_creates_no_topic(tmp_path: Path) -> None:
    async def test(node: Any, client: Client) -> None:
        rules = rule(node, nothing)
        for version, values in ((3, {"key": "g", "key_type": 0}), (4, {"coordinator_keys": ["g"], "key_type": 1})):
            assert refusals(await client.ask(ApiKey.FIND_COORDINATOR, version, values))
        assert not [name for name in node.image.topics_by_name if name.startswith("__")]
        rules.allows = lambda operation, kind, name: (operation, kind) == (DESCRIBE, GROUP)
        while (await client.ask(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0}))["error_code"]:
            pass
        assert node.image.topic("__consumer_offsets") is not None

    play(tmp_path, test)


# Between nodes.


def enveloped(key: ApiKey, version: int, values: Any, principal: str, host: bytes) -> dict[str, Any]:
    return {
        "request_data": bytes(messages.encode_request(key, version, 1, "inside", values)),
        "request_principal": encode_principal(principal),
        "client_host_address": host,
    }


def test_an_envelope_needs_the_broker_s_permission_and_that_of_its_client(tmp_path: Path) -> None:
    asked = {"topics": [], "timeout": 1000, "validate_only": False}
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

    async def test(node: Any, client: Client) -> None:
        controller = await of_controller(node)
        rules = rule(node, nothing)
        values = {**asked, "topics": [topic]}
        envelope = enveloped(ApiKey.CREATE_TOPICS, 7, values, "User:alice", bytes((10, 1, 2, 3)))
        assert (await controller.ask(ApiKey.ENVELOPE, 0, envelope))["error_code"] == (
            ErrorCode.cluster_authorization_failed
        )
        assert {(each.principal, each.operation) for each in rules.asked} == {
            ("User:ANONYMOUS", Operation.CLUSTER_ACTION)
        }
        rules.asked.clear()
        rules.allows = lambda operation, kind, name: operation == Operation.CLUSTER_ACTION
        answer = await controller.ask(ApiKey.ENVELOPE, 0, envelope)
        assert answer["error_code"] == ErrorCode.none
        _, inner = messages.decode_response(ApiKey.CREATE_TOPICS, 7, answer["response_data"])
        assert [row.error_code for row in inner.topics] == [ErrorCode.topic_authorization_failed]
        inside = {(each.principal, each.host) for each in rules.asked if each.operation != Operation.CLUSTER_ACTION}
        assert inside == {("User:alice", "10.1.2.3")}
        assert node.image.topic("new") is None

    play(tmp_path, test)


def test_nothing_but_what_brokers_forward_travels_in_an_envelope(tmp_path: Path) -> None:
    """Not another envelope, with another principal in it, nor what nodes ask for themselves."""

    async def test(node: Any, client: Client) -> None:
        controller = await of_controller(node)
        rule(node, everything)
        inside = enveloped(ApiKey.CREATE_TOPICS, 7, {"topics": [], "timeout": 1}, "User:admin", bytes(4))
        for key, version, values in (
            (ApiKey.ENVELOPE, 0, inside),
            (ApiKey.API_VERSIONS, 0, {}),
            (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 99}),
            (ApiKey.VOTE, 1, {"cluster_id": None, "topics": []}),
        ):
            envelope = enveloped(key, version, values, "User:alice", bytes((10, 1, 2, 3)))
            answer = await controller.ask(ApiKey.ENVELOPE, 0, envelope)
            assert (answer["error_code"] == ErrorCode.invalid_request) == (key not in FORWARDABLE), key

    play(tmp_path, test)


@pytest.mark.parametrize("key", sorted(FORWARDABLE - AFTER_LOGIN), ids=lambda key: ApiKey(key).name)
def test_what_travels_in_an_envelope_is_authorized_inside(tmp_path: Path, key: int) -> None:
    async def test(node: Any, client: Client) -> None:
        controller = await of_controller(node)
        rule(node, lambda operation, kind, name: operation == Operation.CLUSTER_ACTION)
        loaded: Api = api.load_for_controller(key)
        for version in range(loaded.min_version, loaded.max_version + 1):
            for values in requests(key, version, id_of(node)):
                envelope = enveloped(ApiKey(key), version, values, "User:alice", bytes((10, 1, 2, 3)))
                answer = await controller.ask(ApiKey.ENVELOPE, 0, envelope)
                _, inner = messages.decode_response(key, version, answer["response_data"])
                assert refusals(messages.plain(inner)), (version, values)

    play(tmp_path, test)


def test_what_declares_nothing_is_closed() -> None:
    """A handler that was forgotten is for nodes and super users alone."""

    @api.api(ApiKey.DELETE_RECORDS, versions=(0, 2))
    def handle(context: Any, request: Any) -> None: ...

    node = SimpleNamespace(authorizer=Rules(nothing))
    context: Any = SimpleNamespace(node=node, principal="User:a", client_host="::1")
    forgotten: Api = handle.__ottla_api__  # type: ignore[attr-defined]
    with pytest.raises(KafkaError, match="cluster_authorization_failed"):
        forgotten.handle(context, None)
    node.authorizer = None
    forgotten.handle(context, None)


def test_the_rules_of_the_double_are_those_of_the_interface() -> None:
    """It stands for the authorizer: the same calls."""
    import inspect

    from ottla.security.authorizer import Authorizer

    for name in ("is_allowed", "is_allowed_for_any", "authorized_operations"):
        mine, theirs = (inspect.signature(getattr(each, name)) for each in (Rules, Authorizer))
        assert [*mine.parameters] == [*theirs.parameters]
