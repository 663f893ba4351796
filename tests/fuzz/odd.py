"""Every field of every API, one at a time, with the values that a handler may not have thought of.

A request that makes sense is built for each API of a broker's and of a controller's listener. Then each of its values
is replaced in turn: the zero uuid and the reserved ones, numbers at the ends of their range, empty and long strings,
null where it may be, arrays that are empty or have a row twice. Whatever is answered, it is not UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import asyncio
import copy
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import METADATA_TOPIC_ID, uuid_to_base64
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import TABLE
from ottla.server.node import Node
from tests import kio_oracle
from tests.fuzz.clients import error_codes, read_frame
from tests.fuzz.tree import FIXED, SIZED, Value, frame, tree
from tests.unit.server.node import Client

TOPIC, GROUP, MEMBER, OTHER = "odd", "odd-group", "odd-member", 7
"""The names of what there is. `OTHER` is the id of a broker that registers during the walk."""
LAST = (
    ApiKey.UNREGISTER_BROKER, ApiKey.DELETE_TOPICS, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.FETCH_SNAPSHOT, ApiKey.END_QUORUM_EPOCH, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.VOTE,
)  # fmt: skip
"""Requests that remove things that others ask about, so they come last."""
WAIT_S = 0.2
"""For an answer that may take as long as a rebalance."""
WAITS = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.FETCH, ApiKey.SHARE_FETCH}
TIMES = ("max_wait", "timeout", "session_timeout", "rebalance_timeout", "transaction_timeout", "retention_time")
"""Not at the end of their range: that would be waited for."""
ABSENT = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"subscribed_topic_regex", "server_assignor", "topic_partitions"},
    ApiKey.STREAMS_GROUP_HEARTBEAT: {
        "active_tasks", "standby_tasks", "warmup_tasks", "task_offsets", "task_end_offsets", "source_topic_regex",
        "repartition_source_topics", "repartition_sink_topics", "instance_id",
    },
    ApiKey.SHARE_FETCH: {"acknowledgement_batches", "forgotten_topics_data"},
    ApiKey.DELETE_TOPICS: {"topic_id"},
}  # fmt: skip
"""Fields that are empty or null in a request that makes sense."""
STRINGS = (b"", b" ", "\0\u00e9".encode(), b"x" * 300)


@dataclass
class Walked:
    requests: int = 0
    apis: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Sensible:
    """What a field has in a request that makes sense on this node: a `Draw` for `tree`."""

    def __init__(self, node: Node, key: ApiKey) -> None:
        topic = node.image.topics_by_name[TOPIC]
        of_other = {
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.CONTROLLER_REGISTRATION,
        }
        broker = node.image.brokers.get(OTHER if key in of_other else node.node_id)
        is_classic = key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP)
        self.values: dict[str, Any] = {
            "cluster_id": node.cluster_id,
            "broker_id": OTHER if key in of_other else node.node_id,
            "controller_id": OTHER,
            "broker_epoch": -1 if broker is None else broker.epoch,
            "topic_id": topic.id,
            "incarnation_id": UUID(int=0x1111),
            "log_dirs": UUID(int=0x2222),
            "id": UUID(int=0x3333),
            "group_id": f"{GROUP}-{key.name}",
            "groups": GROUP,
            "groups_names": GROUP,
            "group": GROUP,
            "member_id": "" if is_classic else MEMBER,
            "name": TOPIC,
            "topic": TOPIC,
            "topic_name": TOPIC,
            "topic_names": TOPIC,
            "subscribed_topic_names": TOPIC,
            "source_topics": TOPIC,
            "transactional_id": "odd",
            "acks": -1,
            "max_wait": 0,
            "timeout": 1000,
            "max_bytes": 1 << 20,
            "partition_max_bytes": 1 << 20,
            "num_partitions": 1,
            "replication_factor": 1,
            "count": 1,
            "resource_type": 2,
            "resource_name": TOPIC,
            "resource_types": 2,
            "protocol_type": "consumer",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "transaction_timeout": 60_000,
            "replica_id": -1,
            "session_epoch": -1,
            "entity_type": "client-id",
            "value": "1000",
            "feature": "x",
            "process_id": "p",
            "subtopology_id": "0",
            "committed_offset": 0,
            "key_type": 0,
            "endpoint_type": 1,
            "max_records": 1,
            "batch_size": 1,
            "replicas": node.node_id,
            "broker_ids": node.node_id,
            "min_supported_version": 1,
            "max_supported_version": 40,
            "timestamp": -1,
            "replica_directory_id": UUID(int=0x4444),
            "voter_directory_id": UUID(int=0x4444),
            "port": 9092,
            "current_leader_epoch": 0,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "new_isr": node.node_id,
            "request_data": b"",
            "request_principal": b"",
            "client_host_address": bytes(4),
            "producer_id": -1,
            "producer_epoch": -1,
            "max_num_members": 1,
            "config_operation": 0,
            "key": "consumer_byte_rate",
            "share_session_epoch": 0,
        }
        if key in (ApiKey.BROKER_REGISTRATION, ApiKey.CONTROLLER_REGISTRATION):
            self.values["name"] = "metadata.version"
        if key in (ApiKey.DESCRIBE_QUORUM, ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH):
            self.values["topic_name"] = "__cluster_metadata"
        if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_TOPICS):
            self.values.update(value="100000")
        if key is ApiKey.CREATE_TOPICS or "CONFIGS" in key.name:
            self.values["configuration_keys"] = "retention.ms"
        self.absent = ABSENT.get(key, set())
        self.records = bytes(build_batch([SimpleRecord(1_700_000_000_000, b"k", b"v")]))

    def __call__(self, about: Any, kind: str, nullable: bool, is_array: bool) -> Any:
        if about.name in self.absent:
            return bytes(16) if kind == "uuid" else [] if is_array else None
        return [self.one(about.name, kind)] if is_array else self.one(about.name, kind)

    def one(self, name: str, kind: str) -> Any:
        if kind == "struct":
            return 0
        if kind == "records":
            return self.records
        value = self.values.get(name)
        if kind == "uuid":
            return value.bytes if isinstance(value, UUID) else UUID(int=0x5555).bytes
        if kind == "string":
            return value.encode() if isinstance(value, str) else b"x"
        if kind == "bytes":
            return value if isinstance(value, bytes) else b"\0\1\0\0\0\1\0\3odd\xff\xff\xff\xff"
        if kind == "float64":
            return 1024.0
        return int(value) if isinstance(value, int) else 0


def odd_values(value: Value, name: str) -> Iterator[Any]:
    """Replacements for a value's content."""
    if value.nullable and value.kind != "uuid":
        yield None
    if value.kind == "array":
        yield []
        if value.content:
            yield [value.content[0], value.content[0]]
    elif value.kind == "uuid":
        yield from (UUID(int=number).bytes for number in (0, 1, 2, (1 << 128) - 1))
    elif value.kind == "string":
        yield from STRINGS
    elif value.kind in SIZED:
        yield from (b"", b"\0", bytes(range(9)))
    elif value.kind == "bool":
        yield 1 - int(value.content)
    elif value.kind == "float64":
        yield from (-1.0, 0.0, float("nan"), float("inf"))
    elif value.kind in FIXED:
        bits = 8 * struct.calcsize(FIXED[value.kind])
        signed = FIXED[value.kind][1].islower()
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        ends = (low, high) if name not in TIMES else (low, 1)
        yield from {0, 1 if not name.endswith("_id") else 0, *ends, *((-1, -2) if signed else ())}


class Walker:
    def __init__(self, node: Node, listener: str, done: Walked) -> None:
        self.node, self.listener, self.done = node, listener, done
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def walk(self, key: ApiKey, version: int) -> None:
        sensible = Sensible(self.node, key)
        if key is ApiKey.FETCH and self.listener == "CONTROLLER":
            sensible.values["topic_id"] = METADATA_TOPIC_ID
        request = tree(kio_oracle.request_class(key, version), sensible)
        if key is ApiKey.BROKER_REGISTRATION:
            self.knows_features(request)
        await self.ask(key, version, request, "as it should be")
        for value in [*request.walk()]:
            name = value.path.rpartition(".")[2]
            if key in (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH) and "epoch" in name:
                continue  # of epochs that are too large see tests/unit/quorum
            before = value.content
            for odd in odd_values(value, name):
                value.content = odd
                await self.ask(key, version, request, f"{value.path} {str(odd)[:60]}")
            value.content = before

    def knows_features(self, request: Value) -> None:
        """A broker has to support every feature that is finalized."""
        (features,) = (each for each in request.content if each.path == "features")
        row = features.content[0]
        features.content = [copy.deepcopy(row) for _ in self.node.image.features]
        for each, name in zip(features.content, self.node.image.features, strict=True):
            each.content[0].content = name.encode()

    async def ask(self, key: ApiKey, version: int, request: Value, what: str) -> None:
        """One request; its answer, or that it was refused, is judged."""
        data = frame(key, version, 1, "odd", request)
        self.done.requests += 1
        try:
            if self.streams is None:
                port = self.node.ports[self.listener]
                self.streams = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
            reader, writer = self.streams
            writer.write(struct.pack(">i", len(data)) + data)
            async with asyncio.timeout(WAIT_S if key in WAITS or key is ApiKey.PRODUCE else 30):
                answer = await read_frame(reader)
        except TimeoutError:
            self.leave()
            if key not in WAITS and key is not ApiKey.PRODUCE:  # with acks=0 there is no answer
                self.done.problems.append(f"{key.name} {what}: no answer")
            return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.leave()
            return
        self.done.apis[f"{self.listener} {key.name}"] += 1
        plain = messages.plain(messages.decode_response(key, version, answer)[1])
        codes = set(error_codes(plain))
        self.done.codes.update(code.name for code in codes)
        if ErrorCode.unknown_server_error in codes:
            self.done.problems.append(f"{key.name} {version} {what}: UNKNOWN_SERVER_ERROR")

    def leave(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def coordinators(node: Node) -> None:
    """The topics of all coordinators are there, and loaded."""
    client = await Client.connect(node)
    share = f"{GROUP}:{uuid_to_base64(UUID(int=0x5555))}:0"
    for kind, name in ((0, GROUP), (1, "odd"), (2, share)):
        asked = {"key_type": kind, "coordinator_keys": [name]}
        async with asyncio.timeout(20):
            while (await client.ask(ApiKey.FIND_COORDINATOR, 6, asked))["coordinators"][0]["error_code"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    client.close()


async def walk_all(node: Node, done: Walked) -> None:
    """All APIs of both listeners in their newest and oldest versions; the dangerous ones at the end."""
    tables = {"PLAINTEXT": TABLE, "CONTROLLER": CONTROLLER_TABLE}
    every = [
        (name, ApiKey(key), version)
        for name, table in tables.items()
        for key, row in table.items()
        for version in {row.max_version: None, max(row.min_version, 3 if key == ApiKey.PRODUCE else 0): None}
    ]
    every.sort(key=lambda each: LAST.index(each[1]) if each[1] in LAST else -1)
    walkers = {name: Walker(node, name, done) for name in tables}
    await coordinators(node)
    for name, key, version in every:
        if TOPIC not in node.image.topics_by_name:
            client = await Client.connect(node)
            await client.create(TOPIC)
            client.close()
        await walkers[name].walk(key, version)
    for walker in walkers.values():
        walker.leave()
