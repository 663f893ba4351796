"""Every znode as Kafka's own classes write and read it (`kafka.zk` of 3.9.2, `ZnodeLines.java`), with random values.

Both ways: Kafka reads what Ottla writes, and Ottla reads what Kafka writes of that. No real cluster has all of these
values. `OTTLA_TEST_ZNODES=20000` asks for as many of each kind; the suite has a hundred.
"""

from __future__ import annotations

import json
import os
import random as random_module
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from ottla.model import uuid_from_base64, uuid_to_base64
from ottla.protocol.schemas import records as r
from ottla.security.acls import Binding, Operation, PatternType, Permission, ResourceType
from ottla.znodes import acls, cluster, configs, passwords, topics
from ottla.znodes.checking import decode_migration
from ottla.znodes.reading import made_up_id
from ottla.znodes.tree import BadZnode, desanitized, sanitized, to_json
from ottla.znodes.unfinished import decode_reassignments
from tests.conformance.line_program import Lines

COUNT = int(os.environ.get("OTTLA_TEST_ZNODES", "100"))
REFUSED = "refused"

Row = tuple[bytes, Any, Callable[[bytes], Any]]
"""What is written, what it means as plain values, and how Ottla reads it as such."""


class Kafka:
    def __init__(self) -> None:
        self.lines = Lines("ZnodeLines", "3.9")

    def read(self, kind: str, data: bytes) -> tuple[Any, bytes]:
        """What Kafka makes of a znode, and what it writes of that; or REFUSED."""
        word, *rest = self.lines.ask(f"{kind} {data.hex()}")[0].split(" ")
        if word == REFUSED:
            return REFUSED, rest[0].encode()
        again, value = (bytes.fromhex(part[1:]) for part in rest)
        return json.loads(value), again


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    kafka = Kafka()
    yield kafka
    kafka.lines.close()


def _name(random: Random) -> str:
    letters = "abcXYZ019._- %+*~&=/?#\"'\\<>|üß漢😀\t"
    return "".join(random.choice(letters) for _ in range(random.randint(1, 8)))


def _brokers(random: Random, least: int = 1) -> tuple[int, ...]:
    return tuple(random.sample(range(random.choice([5, 3000])), random.randint(least, 4)))


def _topic(random: Random) -> Row:
    """In the versions of before 2.4, before 2.8, and since."""
    replicas = {number: _brokers(random) for number in range(random.randint(1, 12))}
    adding, removing = ({n: each[:1] for n, each in replicas.items() if random.random() < 0.3} for _ in range(2))
    version = random.choice([1, 2, 3, 3])
    if version == 1:
        adding, removing = {}, {}
    topic_id = made_up_id(random.randbytes(8)) if version == 3 and random.random() < 0.8 else None
    data = topics.encode_topic(topics.TopicZnode(topic_id, replicas, adding, removing))
    if version < 3:
        content = {**json.loads(data), "version": version}
        data = to_json({k: v for k, v in content.items() if version == 2 or "replicas" not in k})

    def plain(data: bytes) -> Any:
        found = topics.decode_topic("/t", data)
        parts = found.replicas, found.adding, found.removing
        rows = ({str(n): list(each) for n, each in x.items() if n in found.replicas} for x in parts)
        return ["" if found.topic_id is None else uuid_to_base64(found.topic_id), *rows]

    texts = ({str(n): list(each) for n, each in x.items()} for x in (replicas, adding, removing))
    return data, ["" if topic_id is None else uuid_to_base64(topic_id), *texts], plain


def _state(random: Random) -> Row:
    isr = _brokers(random, 0)
    leader = random.choice((*isr, -1))
    epochs = random.randrange(1 << 31), random.randrange(1 << 31)
    state = topics.PartitionState(leader, epochs[0], isr, epochs[1], random.randrange(2))
    if random.random() < 0.5:
        state = state._replace(directories=tuple(uuid_from_base64("AAAAAAAAAAAAAAAAAAAAAQ") for _ in isr))

    def plain(data: bytes) -> Any:
        found = topics.decode_state("/s", data)
        return [found.leader, found.leader_epoch, list(found.isr), found.controller_epoch, found.recovery_state]

    return topics.encode_state(state), [leader, epochs[0], list(isr), epochs[1], state.recovery_state], plain


def _config(random: Random) -> Row:
    found = {_name(random): _name(random) for _ in range(random.randrange(5))}
    return configs.encode_config(found), found, lambda data: configs.decode_config("/c", data)


def _broker(random: Random) -> Row:
    """Host and port alone (version 1), and each later version without what came behind it."""
    version = random.randint(1, 5)
    names = random.sample(["PLAINTEXT", "SSL", "SASL_SSL", "INTERNAL", "A-B.C"], random.randint(1, 3))
    protocols = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    endpoints = [
        cluster.BrokerEndpoint(
            name,
            random.choice(["h", "127.0.0.1", "a-b.c", "::1"]),
            random.randrange(1 << 16),
            random.choice(protocols) if version >= 4 or name not in protocols else name,
        )
        for name in names
        if version >= 4 or name in protocols
    ]
    if version == 1 or not endpoints:
        version = 1
        endpoints = [cluster.BrokerEndpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")]
    rack = _name(random) if version >= 3 and random.random() < 0.5 else None
    low = random.randint(1, 5)
    features = {_name(random): (low, low + random.randrange(9))} if version == 5 else {}
    content = json.loads(cluster.encode_broker(cluster.Broker(7, endpoints, rack, features), 5))
    content["version"] = version
    for since, member in ((2, "endpoints"), (4, "listener_security_protocol_map"), (5, "features")):
        if version < since:
            del content[member]

    def plain(data: bytes) -> Any:
        found = cluster.decode_broker("/brokers/ids/7", data)
        shown = {name: list(levels) for name, levels in found.features.items()}
        return [found.id, [list(each) for each in found.endpoints], shown, found.rack]

    shown = {name: list(levels) for name, levels in features.items()}
    return to_json(content), [7, [list(each) for each in endpoints], shown, rack], plain


def _controller(random: Random) -> Row:
    found = cluster.Controller(random.randrange(1 << 31), random.choice([-1, random.randrange(1 << 31)]))
    data = cluster.encode_controller(found, 5, {"ottla": "importing"} if random.random() < 0.5 else None)
    return data, list(found), lambda data: list(cluster.decode_controller(data))


def _controller_epoch(random: Random) -> Row:
    found = random.randrange(1 << 31)
    return str(found).encode(), found, cluster.decode_controller_epoch


def _cluster_id(random: Random) -> Row:
    found = uuid_to_base64(made_up_id(random.randbytes(8)))
    return cluster.encode_cluster_id(found), found, cluster.decode_cluster_id


def _features(random: Random) -> Row:
    levels = {_name(random): random.randint(1, 9) for _ in range(random.randrange(3))}
    off = {f"{_name(random)}.off": 0 for _ in range(random.randrange(2))}
    data = cluster.encode_features({**levels, **off})
    if random.random() < 0.5:
        old = {name: {"min_version_level": 1, "max_version_level": level} for name, level in levels.items()}
        data = to_json({"version": 1, "status": 1, "features": old})

    def plain(data: bytes) -> Any:
        return {name: level for name, level in cluster.decode_features(data).items() if level}

    return data, levels, plain


def _producer_ids(random: Random) -> Row:
    following = random.randrange(1000, 1 << 62)
    return cluster.encode_producer_ids(following), following, cluster.decode_producer_ids


def _acls(random: Random) -> Row:
    operations = [each for each in Operation if Operation.ANY < each <= Operation.DESCRIBE_TOKENS]
    found = sorted(
        {
            Binding(
                ResourceType.TOPIC,
                "t",
                PatternType.LITERAL,
                f"{random.choice(['User', 'Group'])}:{_name(random)}",
                random.choice(["*", "10.0.0.1", "::1"]),
                random.choice(operations),
                random.choice([Permission.ALLOW, Permission.DENY]),
            )
            for _ in range(random.randint(1, 5))
        }
    )

    def shown(rows: list[Binding]) -> Any:
        return sorted(
            [each.principal, each.host, Operation(each.operation).name, Permission(each.permission_type).name]
            for each in rows
        )

    def plain(data: bytes) -> Any:
        return shown(acls.decode_acls("/a", data, ResourceType.TOPIC, PatternType.LITERAL, "t"))

    return acls.encode_acls(found), shown(found), plain


def _token(random: Random) -> Row:
    owner, other = f"User:{_name(random)}", f"User:{_name(random)}"
    requester = random.choice([owner, other])
    renewers = [f"User:{_name(random)}" for _ in range(random.randrange(3))]
    issued, latest, expiry = (random.randrange(1 << 62) for _ in range(3))
    token_id = uuid_to_base64(made_up_id(random.randbytes(8)))
    data = cluster.encode_token(
        r.DelegationTokenRecord(owner, requester, tuple(renewers), issued, latest, expiry, token_id)
    )
    if requester == owner and random.random() < 0.5:
        data = to_json({**json.loads(data), "version": 2})

    def plain(data: bytes) -> Any:
        found = cluster.decode_token("/t", data)
        times = found.issue_timestamp, found.max_timestamp, found.expiration_timestamp
        return [found.owner, found.requester, list(found.renewers), *times, found.token_id]

    return data, [owner, requester, renewers, issued, latest, expiry, token_id], plain


def _reassignments(random: Random) -> Row:
    found = {f"{random.choice('abc')}.x-{number}": list(_brokers(random)) for number in range(random.randint(1, 3))}
    rows = [
        {"topic": key.rpartition("-")[0], "partition": int(key.rpartition("-")[2]), "replicas": replicas}
        for key, replicas in found.items()
    ]

    def plain(data: bytes) -> Any:
        return {f"{each.topic}-{each.partition}": list(each.replicas) for each in decode_reassignments(data)}

    return to_json({"version": 1, "partitions": rows}), found, plain


def _migration(random: Random) -> Row:
    controller = random.randrange(-1, 1 << 31)
    data = to_json(
        {
            "version": 0,
            "kraft_metadata_offset": random.randrange(1 << 40),
            "kraft_controller_id": controller,
            "kraft_metadata_epoch": random.randrange(1 << 31),
            "kraft_controller_epoch": random.randrange(1 << 31),
        }
    )
    return data, controller, decode_migration


def _credential(random: Random) -> Row:
    parts = [random.randbytes(random.randint(1, 40)) for _ in range(3)]
    iterations = random.randint(4096, 1 << 20)
    record = r.UserScramCredentialRecord("u", 1, *parts, iterations)
    data = json.loads(configs.encode_entity({}, [record]))["config"]["SCRAM-SHA-256"].encode()

    def plain(data: bytes) -> Any:
        znode = configs.encode_config({"SCRAM-SHA-256": data.decode()})
        (found,) = configs.decode_entity("/u", znode, "u").credentials
        return [found.salt.hex(), found.stored_key.hex(), found.server_key.hex(), found.iterations]

    return data, [*(part.hex() for part in parts), iterations], plain


KINDS: dict[str, Callable[[Random], Row]] = {
    "topic": _topic, "state": _state, "config": _config, "broker": _broker, "controller": _controller,
    "controller_epoch": _controller_epoch, "cluster_id": _cluster_id, "features": _features,
    "producer_ids": _producer_ids, "acls": _acls, "token": _token, "reassignments": _reassignments,
    "migration": _migration, "credential": _credential,
}  # fmt: skip


def _same(kind: str, value: Any) -> Any:
    """ACLs are a set."""
    return sorted(value) if kind == "acls" and value != REFUSED else value


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways(kafka: Kafka, kind: str) -> None:
    random = random_module.Random(kind)
    for _ in range(COUNT):
        data, value, plain = KINDS[kind](random)
        read, again = kafka.read(kind, data)
        assert _same(kind, read) == value, data
        assert plain(data) == value, data
        assert plain(again) == value, again


@pytest.mark.parametrize("kind", KINDS)
def test_what_ottla_reads_of_a_damaged_znode_is_what_kafka_reads(kafka: Kafka, kind: str) -> None:
    """Either may refuse more than the other one; where both read it, they read the same."""
    random = random_module.Random(f"damaged {kind}")
    for _ in range(COUNT):
        data, _, plain = KINDS[kind](random)
        at = random.randrange(len(data))
        piece = random.choice([b"", b"0", b'"', b"}", b"-", b"1.5", b"null", b"\xff", data[at : at + 3]])
        damaged = data[:at] + piece + data[at + random.randint(0, 2) :]
        try:
            found = plain(damaged)
        except (BadZnode, UnicodeDecodeError):
            continue
        read = _same(kind, kafka.read(kind, damaged)[0])
        assert read in (REFUSED, found), damaged


def test_paths_and_names(kafka: Kafka) -> None:
    random = random_module.Random(7)
    for _ in range(COUNT):
        name = _name(random)
        assert kafka.read("sanitized", name.encode())[0] == [sanitized(name), name]
        assert desanitized("/x", sanitized(name)) == name
    for kind in ResourceType:
        if kind > ResourceType.ANY:
            for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
                of = kafka.read("acl_path", f"{kind.name}\0{pattern.name}\0a/ü".encode())[0]
                assert of == acls.acl_path(kind, pattern, "a/ü")


@pytest.mark.parametrize("cipher", ["cbc", "gcm"])
def test_passwords(kafka: Kafka, cipher: str) -> None:
    """Each side opens what the other one has encrypted; Ottla writes the default cipher alone."""
    random = random_module.Random(11)
    for _ in range(max(COUNT // 20, 3)):
        password, secret = _name(random), _name(random)
        _, theirs = kafka.read(f"password_{cipher}", f"{secret}\0\0{password}".encode())
        assert passwords.is_encrypted(theirs.decode())
        assert passwords.decrypted(theirs.decode(), ["wrong", secret]).reveal() == password
        if cipher == "cbc":
            ours = passwords.encrypted(password, secret, random.randbytes(64), random.randbytes(16))
            assert kafka.read("password_cbc", f"{secret}\0{ours}".encode())[0] == password
