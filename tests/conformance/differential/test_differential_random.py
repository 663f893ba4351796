"""Requests that nobody would write, made from the schemas: every API in every version, from a seed.

What a field may hold is drawn by its name, or by its type where the name says nothing. Requests that change what
later ones see are only validated, or aim at things that are not there.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from tests import kio_oracle
from tests.conformance.differential.differential import Of, Side, batch
from tests.conformance.differential.differential_cases import BAD_CONFIGS, GOOD_CONFIGS, World
from tests.conformance.differential.test_differential import OF_ALL
from tests.conformance.exemptions import unused

REQUESTS = 25
NOT_DRAWN = {
    ApiKey.PRODUCE: "its own cases and walks are better",
    ApiKey.JOIN_GROUP: "members of random groups make the rest wait",
    ApiKey.UPDATE_FEATURES: "would change the oracle",
    ApiKey.API_VERSIONS: "has all its cases",
    ApiKey.ADD_PARTITIONS_TO_TXN: "some of what brokers would not ask each other is never answered",
    ApiKey.ADD_OFFSETS_TO_TXN: "says nothing without a transaction; its own cases and walks are better",
    ApiKey.END_TXN: "says nothing without a transaction; its own cases and walks are better",
    ApiKey.WRITE_TXN_MARKERS: "its own walks are better",
    ApiKey.TXN_OFFSET_COMMIT: "its own walks are better",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "members of random groups make the rest wait; its own cases and walks are better",
    ApiKey.SHARE_GROUP_HEARTBEAT: "partitions are initialized while the next request comes",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "Kafka loses a group that has nothing but offsets",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "Kafka fails over topics without partitions",
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "needs a plug-in in Kafka; test_streams_like_kafka.py",
    ApiKey.SHARE_FETCH: "says nothing without a session; its own cases and walks are better",
    ApiKey.SHARE_ACKNOWLEDGE: "says nothing without a session; its own cases and walks are better",
    ApiKey.WRITE_SHARE_GROUP_STATE: "Kafka's coordinator believes what no leader would write",
    ApiKey.ALTER_CLIENT_QUOTAS: "of several keys that are wrong Kafka names one in the order of a hash map",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "would see those of other tests; its own cases are better",
    ApiKey.UNREGISTER_CONTROLLER: "test_controller_like_kafka.py asks it",
    ApiKey.UNREGISTER_BROKER: "would take the oracle's only broker away",
    ApiKey.CREATE_ACLS: "Kafka hangs up on kinds that it does not know; test_acls_like_kafka.py asks for them",
    ApiKey.DELETE_ACLS: "Kafka hangs up on kinds that it does not know; test_acls_like_kafka.py asks for them",
    ApiKey.DESCRIBE_ACLS: "Kafka hangs up on kinds that it does not know; test_acls_like_kafka.py asks for them",
}


class Draw:
    """One generator of requests, `dice` its only source of chance."""

    def __init__(self, world: World, seed: str) -> None:
        self.dice = random.Random(seed)
        self.topics = [world.t, world.empty, world.nowhere, "", "a b"]
        self.groups = [f"{world.prefix}r", f"{world.prefix}s"]
        self.pools: dict[str, list[Any]] = {
            "topic_id": [Of("t"), Of("empty"), UUID(int=77), None],
            "partition": [0, 0, 1, 2, 3, -1],
            "partition_index": [0, 0, 1, 2, 3, -1],
            "partitions": [0, 1, 2, 3, -1],
            "partition_indexes": [0, 1, 2, 3, -1],
            "timestamp": [*range(-7, 2), 1_700_000_000_001, 1 << 60],
            "current_leader_epoch": [-1, -1, 0, 0, 1, -2],
            "leader_epoch": [0, 0, 1, -1, 9],
            "last_fetched_epoch": [-1, -1, -1, 0, 1],
            "fetch_offset": [0, 1, 2, 5, 9, 10, -1, 1 << 50],
            "offset": [0, 0, -2, 99],
            "replica_id": [-1],
            "replica_state": [{}],
            "max_wait": [0, 1],
            "min_bytes": [0, 1, 500],
            "max_bytes": [0, 1, 200, 1 << 20],
            "partition_max_bytes": [0, 1, 200, 1 << 20],
            "isolation_level": [0, 1],
            "session_id": [0, 0, 5],
            "session_epoch": [-1, -1, 0, 1],
            "allow_auto_topic_creation": [False],
            "validate_only": [True],
            "timeout": [9000],
            "key_type": [0],
            "resource_type": [2, 2, 2, 4, 8, 16, 32, 0, 3],
            "resource_types": [2, 4, 8, 16, 32, 0, 64],
            "resource_name": [world.t, world.empty, world.nowhere, "", "1", "2", "a b"],
            "config_operation": [0, 0, 1, 2, 3],
            "num_partitions": [1, 2, -1, 0, -5],
            "replication_factor": [1, 1, -1, 0, 3],
            "broker_ids": [1, 1, 2],
            "count": [1, 2, 3, 4, 5, -1],
            "generation_id": [-1, 0, 1],
            "generation_id_or_member_epoch": [-1, -1, -1, 0, 1],
            "member_epoch": [-1, -1, 0],
            "member_id": ["", "", "nobody"],
            "group_instance_id": [None, None, "i"],
            "transactional_id": [None],
            "states_filter": ["Empty", "stable", "x"],
            "types_filter": ["classic", "Consumer", "x"],
            "committed_metadata": [None, "", "m"],
            "topic_name": [*self.topics, "__cluster_metadata"],
            "endpoint_type": [1, 1, 2, 3, 0],
        }

    def request(self, key: ApiKey, version: int) -> dict[str, Any]:
        values = self.entity(kio_oracle.request_class(key, version), key)
        if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            # Kafka does not answer a resource named twice.
            values["resources"] = _distinct(values["resources"], "resource_type", "resource_name")
        if key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE):
            for topic in values["topics"]:
                topic["partitions"] = _distinct(topic["partitions"], "partition_index")
            values["topics"] = _distinct(values["topics"], "topic_id" if version >= 10 else "name")
            values["topics"] = [each for each in values["topics"] if each["partitions"]]
        if key is ApiKey.DESCRIBE_TOPIC_PARTITIONS:  # none means all, those of other tests too
            values["topics"] = values["topics"] or [{"name": self.topics[0]}]
        if key is ApiKey.ELECT_LEADERS:  # none means all, those of other tests too
            values["topic_partitions"] = values["topic_partitions"] or []
        if key is ApiKey.METADATA and version < 4:  # these would create
            values["topics"] = [each for each in values["topics"] or () if each["name"] != self.topics[2]]
        return values

    def entity(self, cls: type, key: ApiKey) -> dict[str, Any]:
        values = {field.name: self.value(field, key) for field in fields(cls)}
        if {"name", "value"} <= values.keys():
            values["name"], values["value"] = self.dice.choice(SETTINGS)
        return values

    def value(self, field: Any, key: ApiKey) -> Any:
        kind = classify_field(field)
        if isinstance(kind, EntityTupleField) or kind.is_array:
            # Of several settings that are wrong Kafka names one in the order of a hash map.
            size = self.dice.choice((0, 1, 1) if field.name == "configs" else (0, 1, 1, 1, 2, 3))
            if "None" in str(field.type) and self.dice.random() < 0.2 and field.name != "topics":
                return None
            if isinstance(kind, EntityTupleField):
                return [self.entity(kind.type_, key) for _ in range(size)]
            return [self.scalar(field, key) for _ in range(size)]
        if isinstance(kind, EntityField):
            absent = field.name == "cursor" and self.dice.random() < 0.5
            return {} if field.name in self.pools else None if absent else self.entity(kind.type_, key)
        return self.scalar(field, key)

    def scalar(self, field: Any, key: ApiKey) -> Any:
        name, kind = field.name, str(field.metadata.get("kafka_type"))
        if name in self.pools and (name, key) != ("resource_name", ApiKey.DESCRIBE_CONFIGS):
            if name == "topic_id" and key is ApiKey.DELETE_TOPICS:
                return self.dice.choice([UUID(int=77), UUID(int=78), None])
            if name == "topic_id" and key is ApiKey.FETCH:  # Kafka fails as a whole over an id of zero
                return self.dice.choice([Of("t"), Of("empty"), UUID(int=77)])
            return self.dice.choice(self.pools[name])
        if name in ("group_id", "groups", "groups_names", "key", "coordinator_keys"):
            return self.dice.choice(self.groups)
        if name == "configuration_keys":
            return self.dice.choice(SETTINGS)[0]
        if name == "resource_name" and key is ApiKey.DESCRIBE_CONFIGS:
            return self.dice.choice([*self.topics, "2"])  # of node 1 much differs
        if name in ("name", "topic", "topic_names"):
            there = key is not ApiKey.DELETE_TOPICS
            return self.dice.choice(self.topics if there else [self.topics[2], "a b", "", "__cluster_metadata"])
        if kind == "uuid":
            return self.dice.choice([UUID(int=77), None])
        if kind in ("string", "bytes"):
            return "" if kind == "string" else b""
        return self.dice.choice((True, False) if kind == "bool" else (-1, 0, 1))


def _distinct(rows: list[Any], *names: str) -> list[Any]:
    return list({tuple(row[name] for name in names): row for row in rows}.values())


SETTINGS = [pair for each in (*GOOD_CONFIGS, *BAD_CONFIGS) for pair in each.items()]


@pytest.fixture(scope="module")
def world(bootstrap: str, oracle: str) -> World:
    made = World(Side(bootstrap), Side(oracle), f"r{os.getpid()}-{time.time_ns() % 10**9}-", "random")
    made.populate()
    made.wait_for_coordinators()
    return made


VERSIONS = [
    (ApiKey(key), version)
    for key, row in TABLE.items()
    if key not in NOT_DRAWN
    for version in range(row.min_version, row.max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in VERSIONS])
def test_drawn_requests(world: World, key: ApiKey, version: int) -> None:
    draw = Draw(world, f"{key.name} {version}")
    before = world.asked
    for _ in range(REQUESTS):
        world.ask(key, version, draw.request(key, version), ours=key in OF_ALL)
    world.check()
    assert world.asked - before >= REQUESTS // 2, "most of what is drawn can be said in this version"


def test_every_exemption_is_used(request: pytest.FixtureRequest) -> None:
    """By the requests above, if all of them were drawn."""
    if sum(item.function is test_drawn_requests for item in request.session.items) == len(VERSIONS):  # type: ignore[attr-defined]
        assert unused("random") == []


@pytest.mark.parametrize("seed", range(2))
def test_drawn_produce_requests(world: World, seed: int) -> None:
    dice = random.Random(seed)
    data = [batch(), batch(codec=1), batch()[:-1], b"", batch() + batch(), batch(control=True), batch(times=[1 << 50])]
    for version, _ in itertools.product(range(3, 14), range(6)):
        acks = dice.choice((-1, 1, 1, 2))
        topics = [
            {
                "name": dice.choice((world.empty, world.nowhere, "a b")),
                "topic_id": dice.choice((Of("empty"), UUID(int=77))),
                "partition_data": [
                    {"index": index, "records": dice.choice(data[:2] if acks == 2 else data)}
                    for index in dice.sample((0, 1, -1), dice.randrange(4))
                ],
            }
        ]
        values = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": topics}
        world.ask(ApiKey.PRODUCE, version, values)
    world.check()
