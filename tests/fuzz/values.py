"""Draws the values of a request: by the name of the field where that says what makes sense, else by its type."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any
from uuid import UUID

from tests.fuzz import batches
from tests.fuzz.tree import FIXED

TOPICS = [f"fuzz-{number}" for number in range(6)]
GROUPS = [f"fuzz-group-{number}" for number in range(4)]
CONFIGS = {
    "retention.ms": ["-1", "x", "100000000"], "cleanup.policy": ["delete", "compact", "compact,delete", "other"],
    "segment.bytes": ["1048576", "-1", ""], "compression.type": ["zstd", "producer", "none"],
    "max.message.bytes": ["1000012", "200"], "min.insync.replicas": ["1", "9"], "no.such.config": ["1"],
    "message.timestamp.type": ["LogAppendTime", "CreateTime"], "flush.messages": ["1", "1000"],
    "log.cleaner.threads": ["1", "0"], "consumer.session.timeout.ms": ["45000"],
    "streams.initial.rebalance.delay.ms": ["0"], "interval.ms": ["1000"],
}  # fmt: skip
POOLS: dict[str, list[Any]] = {
    "partition": [0, 0, 0, 1, -1, 7], "partition_index": [0, 0, 0, 1, -1, 7], "index": [0, 0, 0, 1, -1, 7],
    "partitions": [0, 0, 1, -1], "partition_indexes": [0, 0, 1, -1],
    "timestamp": [*range(-7, 2), batches.TIME, 1 << 60], "acks": [-1, -1, 1, 0, 2],
    "current_leader_epoch": [-1, -1, 0, 1], "leader_epoch": [0, 1, -1, 9], "last_fetched_epoch": [-1, -1, 0, 1],
    "fetch_offset": [0, 0, 1, 5, 100, -1, 1 << 50], "offset": [0, 1, -1, 1 << 40], "replica_id": [-1, -1, -1, 1],
    "max_wait": [0, 0, 1, 20], "min_bytes": [0, 1, 500], "max_bytes": [0, 200, 1 << 20, 1 << 26],
    "partition_max_bytes": [0, 200, 1 << 20], "isolation_level": [0, 1, 2], "session_epoch": [-1, -1, 0, 1],
    "timeout": [0, 1000], "key_type": [0, 0, 0, 1, 2], "resource_type": [2, 2, 4, 8, 16, 32, 0],
    "resource_types": [2, 4, 8, 16, 32, 0], "config_operation": [0, 0, 1, 2, 3], "num_partitions": [1, 2, -1, 0],
    "replication_factor": [1, 1, -1, 0, 3], "count": [1, 2, 3, 4, -1], "generation_id": [-1, 0, 1, 2, 3],
    "generation_id_or_member_epoch": [-1, -1, 0, 1, 2], "member_epoch": [-1, 0, 1], "session_timeout": [6, 100, 10_000],
    "rebalance_timeout": [1, 5, 20], "endpoint_type": [1, 1, 2], "committed_offset": [0, 5, -1, 1 << 40],
    "broker_ids": [1, 1, 2], "transaction_timeout": [1000], "response_partition_limit": [1, 2, 2000, 0],
    "retention_time": [-1, 1000], "upgrade_type": [1, 2, 3], "max_version_level": [0, 1],
    "entity_name": ["fuzz", "", None, "192.0.2.1"], "match": ["fuzz", None], "match_type": [0, 1, 2, 3],
    "error_code": [0], "broker_id": [7, 7, -1],
}  # fmt: skip
STRINGS: dict[str, list[str]] = {
    "entity_type": ["user", "client-id", "ip", "topic"],
    "protocol_type": ["consumer", "consumer", "connect", ""], "protocol_name": ["range", "roundrobin"],
    "states_filter": ["Stable", "empty", "x"], "types_filter": ["classic", "Consumer", "x"],
    "feature": ["metadata.version", "group.version", "x"], "group_instance_id": ["i1", "i2"],
    "committed_metadata": ["", "m"], "client_software_name": ["fuzz"], "client_software_version": ["1"],
    "transactional_id": ["t"], "reason": ["", "r"], "rack_id": ["", "r"], "subtopology_id": ["0", "0", "1"],
    "process_id": ["p1", "p2"], "instance_id": ["i1"],
}  # fmt: skip
OF_GROUPS = {"group_id", "groups", "groups_names", "key", "coordinator_keys"}
OF_TOPICS = {"name", "topic", "topic_name", "topic_names", "source_topics", "repartition_sink_topics"}


class Known:
    """Names and ids from the node's answers, for later requests."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, UUID] = {}
        self.seen: dict[str, deque[Any]] = {
            name: deque(maxlen=8) for name in ("member_id", "session_id", "producer_id", "generation_id")
        }

    def learn(self, answer: Any) -> None:
        if isinstance(answer, dict):
            for name, value in answer.items():
                if name in self.seen and value not in ("", -1, 0):
                    self.seen[name].append(value)
                elif isinstance(value, list | dict):
                    self.learn(value)
            if answer.get("name") in TOPICS and answer.get("topic_id"):
                self.topic_ids[answer["name"]] = answer["topic_id"]
        elif isinstance(answer, list):
            for each in answer[:50]:
                self.learn(each)


class Draw:
    """Draws for one request after another; `dice` is the only source of chance."""

    def __init__(self, dice: Random, known: Known) -> None:
        self.dice, self.known = dice, known
        self.setting = "retention.ms"

    def __call__(self, field: Any, kind: str, nullable: bool, is_array: bool) -> Any:
        dice, name = self.dice, field.name
        if is_array:
            if nullable and dice.random() < 0.15:
                return None
            size = dice.choice((0, 1, 1, 1, 2, 3))
            return [0 if kind == "struct" else self.one(name, kind) for _ in range(size)]
        if nullable and kind != "uuid" and dice.random() < 0.25:
            return None
        return 0 if kind == "struct" else self.one(name, kind)

    def one(self, name: str, kind: str) -> Any:
        dice = self.dice
        seen = self.known.seen.get(name)
        if seen and dice.random() < 0.7:
            value = dice.choice(list(seen))
            return value.encode() if isinstance(value, str) else value
        if kind == "records":
            return batches.drawn(dice) if dice.random() < 0.6 else batches.wrong(dice)
        if kind == "uuid":
            return dice.choice(
                [bytes(16), bytes(15) + b"\x4d", *(each.bytes for each in self.known.topic_ids.values())]
            )
        if kind == "bytes":
            return dice.choice((b"", b"\0\1\0\0\0\1\0\6fuzz-0\xff\xff\xff\xff", dice.randbytes(9)))
        if kind == "string":
            return self.text(name).encode()
        if name in POOLS:
            return dice.choice(POOLS[name])
        if kind == "bool":
            return dice.randrange(2)
        if kind.startswith("uint"):
            return dice.choice((0, 1, 9092))
        return dice.choice((-1, 0, 0, 1)) if kind in FIXED else 0

    def text(self, name: str) -> str:
        dice = self.dice
        if name in STRINGS:
            return dice.choice(STRINGS[name])
        if name == "value":
            return dice.choice(CONFIGS.get(self.setting, ["1"]))
        if name in OF_GROUPS:
            return dice.choice(GROUPS)
        if name == "resource_name":
            return dice.choice([*TOPICS, "1", "", GROUPS[0]])
        if name == "configuration_keys" or (name == "name" and dice.random() < 0.3):
            self.setting = dice.choice(list(CONFIGS))
            return self.setting
        if name in OF_TOPICS:
            return dice.choice(TOPICS)
        return dice.choice(("", "x"))
