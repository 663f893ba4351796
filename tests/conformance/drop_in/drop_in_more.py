"""What a directory of Apache Kafka holds beside that which Ottla serves: put there, and looked at, over the wire."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import io
import struct
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer
from kio.serial import entity_reader, entity_writer

from ottla.protocol.messages import ApiKey
from tests import kio_oracle
from tests.conformance.differential.differential_streams import asked, subtopology, topology
from tests.conformance.operations.operations import Client, eventually
from tests.conformance.pair import Wire

ANY, TOPIC_ACL, READ, WRITE, ALLOW, DENY, LITERAL, PREFIXED = 1, 2, 3, 4, 3, 2, 3, 4
SHA_256, SHA_512 = 1, 2
ALICE = "alice"
PASSWORD, SALT, ITERATIONS = b"secret of alice", b"salt and pepper", 4096
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE = 76, 77
DESCRIBE_SHARE_GROUP_OFFSETS, ALTER_SHARE_GROUP_OFFSETS = 90, 91


def put(client: Client) -> None:
    """ACLs, users with passwords and quotas."""
    acl = {"resource_type": TOPIC_ACL, "principal": "User:alice", "host": "*"}
    creations = [
        {**acl, "resource_name": "t", "resource_pattern_type": LITERAL, "operation": READ, "permission_type": ALLOW},
        {
            **acl,
            "host": "10.1.2.3/8",
            "resource_name": "n",
            "resource_pattern_type": LITERAL,
            "operation": WRITE,
            "permission_type": DENY,
        },  # KIP-1276
        {**acl, "resource_name": "u-", "resource_pattern_type": PREFIXED, "operation": WRITE, "permission_type": DENY},
    ]
    answer = client.ask(ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert [each["error_code"] for each in answer["results"]] == [0, 0, 0], answer
    users = [
        {
            "name": name,
            "mechanism": mechanism,
            "iterations": ITERATIONS,
            "salt": SALT,
            "salted_password": hashlib.pbkdf2_hmac(algorithm, PASSWORD, SALT, ITERATIONS),
        }
        for name, mechanism, algorithm in ((ALICE, SHA_256, "sha256"), ("bob", SHA_512, "sha512"))
    ]
    answer = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": users})
    assert {each["error_code"] for each in answer["results"]} == {0}, answer
    quota = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    entries = [
        {"entity": [{"entity_type": kind, "entity_name": name}], "ops": quota}
        for kind, name in (("user", ALICE), ("client-id", None), ("ip", "127.9.9.9"))
    ]
    entries[-1]["ops"] = [{"key": "connection_creation_rate", "value": 5000.0, "remove": False}]
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
    assert {each["error_code"] for each in answer["entries"]} == {0}, answer


def put_transactions(bootstrap: str, topic: str) -> Producer:
    """Committed, aborted and open ones. The producer of the open one is to be kept for as long as it stays open."""
    for name, commit in (("committed", True), ("aborted", False)):
        producer = _transactional(bootstrap, name)
        producer.produce(topic, name)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer = _transactional(bootstrap, "open")
    producer.produce(topic, "open")
    producer.flush()
    return producer


def _transactional(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 900_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def put_groups(client: Client, topic: str) -> None:
    """Groups of the protocol of KIP-848, streams groups and share groups, some with a member that nobody will hear of
    again."""
    for name in ("streams", "streams-left", "streams-empty"):
        _join_streams(client, name, topic)
    _streams_heartbeat(client, "streams-empty", -1)
    for name in ("848", "848-left"):
        _join_848(client, name, topic)
    for name in ("848-deleted", "848-taken", "848-empty"):
        member = _join_848(client, name, topic)
        answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**_heartbeat(name, member), "member_epoch": -1})
        assert answer["error_code"] == 0, answer
    for name in ("share", "share-empty"):
        share = {"group_id": name, "member_id": str(uuid.uuid4()), "subscribed_topic_names": [topic]}
        eventually(lambda share=share: _ok(_share_heartbeat(client, share, 0)))  # type: ignore[misc]
        eventually(lambda share=share: _has_state(client, share))  # type: ignore[misc]
    assert _ok(_share_heartbeat(client, share, -1))
    moved = [{"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    request = {"group_id": "share-empty", "topics": moved}
    eventually(lambda: _ok(ask_other(client, ALTER_SHARE_GROUP_OFFSETS, 0, "alter_share_group_offsets", request)))


def _streams_heartbeat(client: Client, group: str, epoch: int, **more: Any) -> Any:
    return eventually(lambda: _ok(client.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked(group, "m", epoch, **more))))


def _join_streams(client: Client, group: str, topic: str) -> None:
    """Join, stay until the first assignment was made, after its delay, and commit an offset."""
    answer = _streams_heartbeat(client, group, 0, topology=topology(subtopology("0", topic)))

    def has_tasks() -> bool:
        nonlocal answer
        answer = _streams_heartbeat(client, group, answer["member_epoch"])
        return bool(answer["active_tasks"])

    eventually(has_tasks)
    _commit(client, group, "m", answer["member_epoch"], topic)


def _heartbeat(group: str, member: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
        "server_assignor": None,
        "subscribed_topic_regex": None,
    }


def _join_848(client: Client, group: str, topic: str) -> str:
    """Join and commit an offset; returns the member's id."""
    member = str(uuid.uuid4())
    subscribed = {"rebalance_timeout": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    asked = {**_heartbeat(group, member), **subscribed}
    answer = eventually(lambda: _ok(client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)))
    _commit(client, group, member, answer["member_epoch"], topic)
    return member


def _commit(client: Client, group: str, member: str, epoch: int, topic: str) -> None:
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": 0, "committed_metadata": "m"}
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    answer = client.ask(ApiKey.OFFSET_COMMIT, 9, request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer


def _share_heartbeat(client: Client, share: dict[str, Any], epoch: int) -> Any:
    asked = {**share, "member_epoch": epoch}
    return ask_other(client, SHARE_GROUP_HEARTBEAT, 1, "share_group_heartbeat", asked)


def described(client: Client) -> dict[str, Any]:
    """The groups of KIP-848 with their members."""
    asked = {"group_ids": ["848", "848-left", "848-empty"], "include_authorized_operations": False}
    groups = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)["groups"]
    assert {each["error_code"] for each in groups} == {0}, groups
    return {each["group_id"]: str(each) for each in groups}


def go_on_and_leave(client: Client, group: str) -> None:
    """As the one member that a group of KIP-848 has: with its epoch, under the other broker."""
    asked = {"group_ids": [group], "include_authorized_operations": False}
    [found] = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)["groups"]
    [member] = found["members"]
    for epoch in (member["member_epoch"], -1):
        same = {**_heartbeat(group, member["member_id"]), "member_epoch": epoch}
        answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, same)
        assert (answer["error_code"], answer["member_epoch"]) == (0, epoch), answer


def described_streams(client: Client) -> dict[str, Any]:
    """The streams groups with their members."""
    names = ["streams", "streams-left", "streams-empty"]
    answer = client.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": names, "include_authorized_operations": False})
    assert {each["error_code"] for each in answer["groups"]} == {0}, answer
    return {each["group_id"]: str(each) for each in answer["groups"]}


def go_on_with_tasks_and_leave(client: Client, group: str) -> None:
    """As the one member that a streams group has: with its epoch, under the other broker, which has nothing new."""
    before = described_streams(client)[group]
    (found,) = client.ask(
        ApiKey.STREAMS_GROUP_DESCRIBE, 0, {"group_ids": [group], "include_authorized_operations": False}
    )["groups"]
    epoch = found["members"][0]["member_epoch"]
    answer = _streams_heartbeat(client, group, epoch)
    assert (answer["member_epoch"], answer["active_tasks"], answer["status"]) == (epoch, None, []), answer
    assert described_streams(client)[group] == before
    _streams_heartbeat(client, group, -1)


def listed_groups(client: Client) -> dict[str, tuple[str, str]]:
    """State and type of each group."""
    answer = client.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    return {each["group_id"]: (each["group_state"], each["group_type"]) for each in answer["groups"]}


def kept_groups(client: Client) -> dict[str, Any]:
    """Kafka's description of the groups that were not touched."""
    asked = {"group_ids": ["848-left", "848-empty"], "include_authorized_operations": False}
    consumers = client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked)
    asked["group_ids"] = ["share", "share-empty"]
    shares = ask_other(client, SHARE_GROUP_DESCRIBE, 1, "share_group_describe", asked)
    wanted = {"groups": [{"group_id": each, "topics": None} for each in ("share", "share-empty")]}
    starts = ask_other(client, DESCRIBE_SHARE_GROUP_OFFSETS, 0, "describe_share_group_offsets", wanted)
    streams = client.ask(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        0,
        {"group_ids": ["streams-left", "streams-empty"], "include_authorized_operations": False},
    )
    found = {
        "consumers": consumers["groups"],
        "streams": streams["groups"],
        "shares": shares["groups"],
        "starts": starts["groups"],
    }
    for part, groups in found.items():
        assert {each["error_code"] for each in groups} == {0}, (part, groups)
    return {part: sorted(map(str, groups)) for part, groups in found.items()}


def _has_state(client: Client, share: Mapping[str, Any]) -> bool:
    """Kafka initializes the state of share-partitions a moment after a heartbeat, or after the next one."""
    wanted = {"groups": [{"group_id": share["group_id"], "topics": None}]}
    answer = ask_other(client, DESCRIBE_SHARE_GROUP_OFFSETS, 0, "describe_share_group_offsets", wanted)
    if answer["groups"][0]["topics"]:
        return True
    _share_heartbeat(client, share, 0)
    return False


def _ok(answer: Any) -> Any:
    return answer if answer["error_code"] == 0 else None


def ask_other(client: Client, key: int, version: int, name: str, values: Mapping[str, Any]) -> Any:
    """A request of an API that Ottla has no name for."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    request, response = (
        getattr(importlib.import_module(f"kio.schema.{name}.v{version}.{kind.lower()}"), camel + kind)
        for kind in ("Request", "Response")
    )
    out = io.BytesIO()
    entity_writer(request)(out, kio_oracle.build(request, values))
    frame = struct.pack(">hhih", key, version, 1, -1) + b"\0" + out.getvalue()
    wire = client.wire
    wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
    answer = wire._read(struct.unpack(">i", wire._read(4))[0])
    return kio_oracle.plain(entity_reader(response)(answer, 5)[0])


def put_acl(client: Client, topic: str) -> None:
    creation = {
        "resource_type": TOPIC_ACL,
        "resource_name": topic,
        "resource_pattern_type": LITERAL,
        "principal": "User:bob",
        "host": "10.0.0.1",
        "operation": READ,
        "permission_type": ALLOW,
    }
    (row,) = client.ask(ApiKey.CREATE_ACLS, 3, {"creations": [creation]})["results"]
    assert row["error_code"] == 0, row


def delete_acls(client: Client, name: str) -> None:
    """Delete the one ACL of this prefix."""
    wanted = {
        "resource_type_filter": TOPIC_ACL,
        "resource_name_filter": name,
        "pattern_type_filter": PREFIXED,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    (row,) = client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted]})["filter_results"]
    assert row["error_code"] == 0 and len(row["matching_acls"]) == 1, row


def kept_acls(client: Client) -> list[str]:
    """All ACLs, whichever broker shows them."""
    any_acl = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    answer = client.ask(ApiKey.DESCRIBE_ACLS, 3, any_acl)
    return sorted(map(str, answer["resources"]))


def kept(client: Client) -> dict[str, Any]:
    """Kafka's description of all that, without fields that grow or depend on the moment."""
    users = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
    quotas = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    transactions = client.ask(
        ApiKey.LIST_TRANSACTIONS, 1, {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    )
    shown = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["open", "committed", "aborted"]})
    found = {
        "acls": kept_acls(client),
        "users": [(each["user"], sorted(map(str, each["credential_infos"]))) for each in users["results"]],
        "quotas": sorted(map(str, quotas["entries"] or ())),
        "transactions": sorted(map(str, transactions["transaction_states"])),
        "transaction": sorted(map(str, shown["transaction_states"])),
    }
    for part, value in found.items():
        assert value, part
    return found


class Token:
    """Delegation tokens, which only a user who logged in may have: SCRAM (RFC 5802) by hand."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(f"127.0.0.1:{port}")
        answer = self.wire.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        assert answer["error_code"] == 0, answer
        bare = b"n=" + ALICE.encode() + b",r=nonce"
        first = self._send(b"n,," + bare)
        parts = dict(part.split(b"=", 1) for part in first.split(b","))
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, base64.b64decode(parts[b"s"]), int(parts[b"i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = b"c=biws,r=" + parts[b"r"]
        signature = hmac.digest(hashlib.sha256(key).digest(), bare + b"," + first + b"," + last, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._send(last + b",p=" + base64.b64encode(proof))

    def _send(self, data: bytes) -> bytes:
        answer = self.wire.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": data})
        assert answer["error_code"] == 0, answer
        return bytes(answer["auth_bytes"])

    def create(self) -> None:
        renewers = [{"principal_type": "User", "principal_name": "bob"}]
        request = {"owner_principal_type": None, "owner_principal_name": None, "renewers": renewers, "max_lifetime": -1}
        answer = self.wire.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, request)
        assert answer["error_code"] == 0, answer

    def shown(self) -> list[str]:
        answer = self.wire.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
        assert answer["error_code"] == 0, answer
        return sorted(map(str, answer["tokens"]))
