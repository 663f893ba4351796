"""What is asked of both brokers: for every API a function from a version to requests, good and bad.

The topics are those of `World`. Requests here leave no state behind that a later one would see; sequences of
requests are in test_differential_log.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid5

from ottla.errors import ErrorCode
from ottla.model import uuid_to_base64
from ottla.protocol.messages import ApiKey
from ottla.telemetry.subscriptions import wanted
from tests.conformance.differential.differential import FETCH, TIME, Cases, Comparison, Of, Side, batch

Requests = Iterator[Mapping[str, Any]]
CASES: dict[ApiKey, Cases] = {}
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_ID = UUID(int=77)
T, EMPTY = Of("t"), Of("empty")
BAD_NAMES = ("", ".", "..", "a b", "a/b", "x" * 250, "x" * 249, "é")


def cases(key: ApiKey) -> Any:
    def mark(function: Cases) -> Cases:
        CASES[key] = function
        return function

    return mark


class World(Comparison):
    """`t`: three partitions with plain batches, a compressed one, none. `shared`: the same, which nobody changes.
    `empty`: one partition."""

    def populate(self) -> None:
        self.t = self.set_up("t", 3)
        self.empty = self.set_up("empty")
        self.txn = self.set_up("txn")
        self.shared = self.set_up("shared", 3)
        for number in range(3):
            self.produce("t", batch(3, times=[TIME + 10 * number + each for each in (2, 0, 1)]))
            self.produce("shared", batch(3, times=[TIME + 10 * number + each for each in (2, 0, 1)]))
        for name in ("t", "shared"):
            self.produce(name, batch(4, codec=1), partition=1)
        self.check()

    def wait_for_coordinators(self) -> None:
        """Kafka makes its offsets topic for the first to ask, and answers when every partition has a leader."""
        for side in self.sides:
            while side.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None})["error_code"]:
                time.sleep(0.05)
            for number in range(100):
                group = f"{self.prefix}{number}" if number else ""
                asked = {"group_id": group, "topics": None}
                while (
                    side.ask(ApiKey.FIND_COORDINATOR, 0, {"key": group})["error_code"]
                    or side.ask(ApiKey.OFFSET_FETCH, 5, asked)["error_code"]
                ):
                    time.sleep(0.05)
            for number in range(100):
                found = {"key": str(number), "key_type": 1}
                while side.ask(ApiKey.FIND_COORDINATOR, 1, found)["error_code"]:
                    time.sleep(0.05)
            for number in range(100):
                self._wait_for_share_coordinator(side, f"{self.prefix}{number}")
            loaded = {"state_filters": [], "producer_id_filters": []}
            while side.ask(ApiKey.LIST_TRANSACTIONS, 0, loaded)["error_code"]:
                time.sleep(0.05)
        # Two that are new give the same ids, and tests would pass that hold only for those.
        mine, theirs = (side.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None}) for side in self.sides)
        if mine["producer_id"] == theirs["producer_id"]:
            self.theirs.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None})

    def _wait_for_share_coordinator(self, side: Side, group: str) -> None:
        found = {"key_type": 2, "coordinator_keys": [f"{group}:{uuid_to_base64(UNKNOWN_ID)}:0"]}
        rows = [{"partition": 0, "leader_epoch": -1}]
        asked = {"group_id": group, "topics": [{"topic_id": UNKNOWN_ID, "partitions": rows}]}
        while side.ask(ApiKey.FIND_COORDINATOR, 6, found)["coordinators"][0]["error_code"]:
            time.sleep(0.05)
        while (
            side.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, asked)["results"][0]["partitions"][0]["error_code"]
            != ErrorCode.unknown_topic_or_partition
        ):
            time.sleep(0.05)

    @property
    def nowhere(self) -> str:
        return self.prefix + "nowhere"

    def names(self) -> list[str]:
        return [self.t, self.empty, self.nowhere, *BAD_NAMES]


@cases(ApiKey.PRODUCE)
def produce(w: World, version: int) -> Requests:
    def request(*partitions: Any, acks: int = -1, name: str = w.empty, topic_id: Any = EMPTY, **more: Any) -> Any:
        data = [{"index": index, "records": records} for index, records in partitions]
        topic = {"name": name, "topic_id": topic_id, "partition_data": data}
        return {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": [topic], **more}

    for acks in (-1, 1, 2, -2, 100):
        yield request((0, batch()), acks=acks)
    for codec in range(5):
        yield request((0, batch(20, codec=codec)))
    yield request((0, batch()), (1, batch()), (-1, batch()))
    yield request((0, batch()), (9, None))
    yield request((0, batch()), (0, b""), name=w.txn, topic_id=Of("txn"))
    yield request()
    yield {**request(), "topic_data": []}
    yield request((0, batch()), transactional_id=f"{w.prefix}t", name=w.txn, topic_id=Of("txn"))
    yield request((0, batch(transactional=True, producer_id=9, producer_epoch=0, base_sequence=0)))
    for name in w.names()[2:]:
        yield request((0, batch()), name=name, topic_id=UNKNOWN_ID)
    yield request((0, batch()), name="__consumer_offsets", topic_id=UUID(int=0))
    yield request((0, batch(times=[-1])))
    yield request((0, batch(times=[-2])))
    yield request((0, batch(times=[1 << 50])))
    yield request((0, batch() + batch()))
    yield request((0, batch()[:-1]))


@cases(ApiKey.FETCH)
def fetch(w: World, version: int) -> Requests:
    def request(*partitions: Any, name: str = w.t, topic_id: Any = T, **more: Any) -> Any:
        asked = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **own}
            for index, offset, own in partitions
        ]
        return {**FETCH, "topics": [{"topic": name, "topic_id": topic_id, "partitions": asked}], **more}

    for offset in (0, 1, 4, 8, 9, 10, -1, 1 << 40):
        yield request((0, offset, {}), (1, 0, {}), (2, 0, {}))
    for isolation in (0, 1, 2, -1):
        yield request((0, 0, {}), isolation_level=isolation)
    for size in (0, 1, 100, 300, -1):
        yield request((0, 0, {"partition_max_bytes": size}), (1, 0, {"partition_max_bytes": size}))
        yield request((0, 0, {}), (1, 0, {}), max_bytes=size)
        yield request((2, 0, {}), (1, 0, {}), min_bytes=size, max_wait=1)
    for epoch in (-2, 0, 1, 99):
        yield request((0, 0, {"current_leader_epoch": epoch}))
        yield request((0, 5, {"last_fetched_epoch": epoch}))
    yield request((0, 0, {}), (0, 3, {}))
    yield request((-1, 0, {}), (3, 0, {}))
    yield {**FETCH, "topics": []}
    for name in w.names()[2:]:
        yield request((0, 0, {}), name=name, topic_id=UNKNOWN_ID)
    yield request((0, 0, {}), topic_id=UUID(int=0))
    for session, epoch in ((0, 1), (5, 1), (5, 0), (5, -1), (0, -2), (-1, 3)):
        yield request((0, 0, {}), session_id=session, session_epoch=epoch)
    yield request((0, 0, {"log_start_offset": 5}), rack_id="r", cluster_id="another")


@cases(ApiKey.LIST_OFFSETS)
def list_offsets(w: World, version: int) -> Requests:
    stamps = (-7, -6, -5, -4, -3, -2, -1, 0, *(TIME + each for each in (-1, 0, 1, 2, 3, 9, 10, 12, 22, 23)), 1 << 60)
    for isolation in (0, 1):
        for stamp in stamps:
            partitions = [{"partition_index": index, "timestamp": stamp} for index in (0, 1, 2, 3, -1)]
            topics = [{"name": w.t, "partitions": partitions}]
            yield {"replica_id": -1, "isolation_level": isolation, "topics": topics}
    for epoch in (-2, 0, 1):
        topics = [{"name": w.t, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}]}]
        for replica in (-1, -2):
            yield {"replica_id": replica, "topics": topics}
    one = {"partition_index": 0, "timestamp": -1}
    yield {"replica_id": -1, "topics": [{"name": w.t, "partitions": [one, {**one, "timestamp": -2}]}]}
    yield {"replica_id": -1, "topics": [{"name": w.t, "partitions": [one]}, {"name": w.t, "partitions": [one]}]}
    yield {"replica_id": -1, "topics": [{"name": w.t, "partitions": []}]}
    yield {"replica_id": -1, "topics": []}
    yield {"replica_id": -1, "topics": [{"name": name, "partitions": [one]} for name in dict.fromkeys(w.names())]}


@cases(ApiKey.METADATA)
def metadata(w: World, version: int) -> Requests:
    base: dict[str, Any] = {"allow_auto_topic_creation": False}
    names = [w.t, w.empty, *BAD_NAMES, *([w.nowhere] if version >= 4 else [])]
    yield {**base, "topics": [{"name": name, "topic_id": None} for name in names]}
    yield {**base, "topics": [{"name": w.t, "topic_id": None}] * 2}
    if version >= 1:
        yield {**base, "topics": []}
    for cluster, topic in itertools.product((False, True), repeat=2):
        flags = {"include_cluster_authorized_operations": cluster, "include_topic_authorized_operations": topic}
        yield {**base, "topics": [{"name": w.t, "topic_id": None}], **flags}
    for name in (None, w.t):
        for topic_id in (Of("t"), UNKNOWN_ID, None):
            yield {**base, "topics": [{"name": name, "topic_id": topic_id}]}
    yield {**base, "topics": [{"name": None, "topic_id": Of("t")}, {"name": None, "topic_id": Of("t")}]}
    yield {**base, "topics": [{"name": None, "topic_id": Of("t")}, {"name": w.empty, "topic_id": None}]}


@cases(ApiKey.FIND_COORDINATOR)
def find_coordinator(w: World, version: int) -> Requests:
    for kind, key in itertools.product((0, 1, 2, 3, -1), ("g", "", "a:b:0", f"g:{uuid_to_base64(UNKNOWN_ID)}:0")):
        yield {"key": key, "key_type": kind, "coordinator_keys": [key]}
    yield {"key": "g", "coordinator_keys": []}
    yield {"key": "g", "coordinator_keys": ["g", "h", "g"]}


@cases(ApiKey.API_VERSIONS)
def api_versions(w: World, version: int) -> Requests:
    for name, number in itertools.product(("kafka", "", "a b", "-a", "a.b-c", "é"), ("1", "", "!")):
        yield {"client_software_name": name, "client_software_version": number}


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": configs, **more}


BAD_CONFIGS: tuple[dict[str, str | None], ...] = (
    {"nonsense": "1"}, {"retention.ms": "x"}, {"retention.ms": "-2"}, {"retention.ms": None}, {"retention.ms": ""},
    {"cleanup.policy": "remove"}, {"cleanup.policy": ""}, {"cleanup.policy": "delete,delete"},
    {"compression.type": "brotli"}, {"segment.bytes": "13"}, {"segment.bytes": "99999999999"},
    {"min.insync.replicas": "0"}, {"message.timestamp.type": "Now"}, {"preallocate": "maybe"}, {"flush.ms": "-1"},
    {"message.timestamp.before.max.ms": "-1"}, {"remote.storage.enable": "true"}, {"local.retention.ms": "-3"},
    {"retention.ms": "5", "local.retention.ms": "6"}, {"max.message.bytes": "-1"}, {"message.format.version": "2.0"},
    {"min.cleanable.dirty.ratio": "1.5"}, {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
    {"leader.replication.throttled.replicas": "0"}, {"unclean.leader.election.enable": "yes"},
    *({f"{side}.replication.throttled.replicas": text}
      for side, text in itertools.product(("leader", "follower"), (
          "x", "0:x", "0:", ":1", "0:1:2", "-1:1", "0:-1", "*,0:1", "0:1,*", "**", "0:1,", "0:1,,1:2", ",", "0 : 1",
          "0:1;1:2", "+0:1", "\u0660:1", "0:1\n"))),
    {"compression.gzip.level": "10"}, {"compression.lz4.level": "0"}, {"compression.zstd.level": "23"},
    {"retention.ms": "1", "nonsense": "x"}, {"remote.log.copy.disable": "true"}, {"segment.jitter.ms": "-1"},
)  # fmt: skip
GOOD_CONFIGS: tuple[dict[str, str | None], ...] = (
    {}, {"retention.ms": "-1"}, {"cleanup.policy": "compact,delete"}, {"cleanup.policy": " compact "},
    {"compression.type": "zstd", "compression.zstd.level": "3"}, {"preallocate": "TRUE"},
    {"segment.bytes": " 1048576 "},
    {"leader.replication.throttled.replicas": "*"}, {"leader.replication.throttled.replicas": "0:1"},
    {"follower.replication.throttled.replicas": " 0:1 , 1:2"}, {"follower.replication.throttled.replicas": ""},
    {"leader.replication.throttled.replicas": "0:1,0:1"}, {"leader.replication.throttled.replicas": "99999999999:1"},
    {"leader.replication.throttled.replicas": " * "}, {"leader.replication.throttled.replicas": None},
    {"min.cleanable.dirty.ratio": "0.25", "message.timestamp.type": "LogAppendTime"}, {"retention.bytes": "123456789"},
)  # fmt: skip


@cases(ApiKey.CREATE_TOPICS)
def create_topics(w: World, version: int) -> Requests:
    def request(*topics: Any) -> Any:
        return {"topics": topics, "timeout": 9000, "validate_only": True}

    new = w.prefix + "new"
    for name in (new, w.t, *BAD_NAMES, "__consumer_offsets", "__cluster_metadata"):
        yield request(new_topic(name))
    yield request(new_topic(w.t.replace("t", "t.x")), new_topic(new), new_topic(new), new_topic(w.empty))
    yield request()
    for count, factor in itertools.product((1, 3, 0, -1, -2, 10_001), (1, -1, 0, -2, 2)):
        yield request(new_topic(new, count, factor))
    for configs in (*GOOD_CONFIGS, *BAD_CONFIGS):
        yield request(new_topic(new, configs=configs))
    twice = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    yield request({**new_topic(new), "configs": twice})
    for count, factor in ((-1, -1), (1, -1), (-1, 1)):
        for placed in ({0: [1]}, {0: [1], 1: [1]}, {1: [1]}, {0: []}, {0: [2]}, {0: [1, 1]}, {0: [1, 2]}, {-1: [1]}):
            rows = [{"partition_index": number, "broker_ids": replicas} for number, replicas in placed.items()]
            yield request(new_topic(new, count, factor, assignments=rows))
    rows = [{"partition_index": 0, "broker_ids": [1]}] * 2
    yield request(new_topic(new, -1, -1, assignments=rows))


@cases(ApiKey.DELETE_TOPICS)
def delete_topics(w: World, version: int) -> Requests:
    names = [w.nowhere, *BAD_NAMES]
    yield {"topic_names": names, "topics": [{"name": name, "topic_id": None} for name in names], "timeout": 9000}
    yield {"topic_names": [w.nowhere] * 2, "topics": [{"name": w.nowhere, "topic_id": None}] * 2, "timeout": 9000}
    yield {"topic_names": [], "topics": [], "timeout": 0}
    if version >= 6:
        for name, topic_id in ((None, None), (w.t, Of("t")), (None, UNKNOWN_ID), (w.nowhere, UNKNOWN_ID)):
            yield {"topics": [{"name": name, "topic_id": topic_id}], "timeout": 9000}
        yield {"topics": [{"name": None, "topic_id": UNKNOWN_ID}] * 2, "timeout": 9000}
        yield {
            "topics": [{"name": w.nowhere, "topic_id": None}, {"name": None, "topic_id": UNKNOWN_ID}],
            "timeout": 9000,
        }
    meta = "__cluster_metadata"
    yield {"topic_names": [meta], "topics": [{"name": meta, "topic_id": None}], "timeout": 9000}


@cases(ApiKey.DELETE_RECORDS)
def delete_records(w: World, version: int) -> Requests:
    for offset in (0, -2, 1, 99, -1):
        partitions = [{"partition_index": index, "offset": offset} for index in (2, 3, -1)]
        yield {"topics": [{"name": w.t, "partitions": partitions}], "timeout": 500}
    yield {"topics": [], "timeout": 500}
    yield {"topics": [{"name": w.t, "partitions": []}], "timeout": 500}
    one = {"partition_index": 2, "offset": 0}
    yield {"topics": [{"name": w.t, "partitions": [one, one]}], "timeout": 500}
    for name in (w.nowhere, *BAD_NAMES, "__consumer_offsets"):
        yield {"topics": [{"name": name, "partitions": [one]}], "timeout": 500}


@cases(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(w: World, version: int) -> Requests:
    base: dict[str, Any] = {"transactional_id": None, "transaction_timeout": 60_000}
    for timeout in (60_000, 0, -1, 1 << 30):
        yield {**base, "transaction_timeout": timeout, "producer_id": -1, "producer_epoch": -1}
    for producer, epoch in ((-1, 0), (5, -1), (5, 0), (-2, -1), (1 << 40, 32767)):
        yield {**base, "producer_id": producer, "producer_epoch": epoch}
    for name in ("", f"{w.prefix}t"):
        yield {**base, "transactional_id": name}


@cases(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(w: World, version: int) -> Requests:
    for current, epoch in itertools.product((-2, -1, 0, 1), (-1, 0, 1, 99)):
        asked = [
            {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch} for index in (0, 1, 2, 3, -1)
        ]
        yield {"replica_id": -1, "topics": [{"topic": w.t, "partitions": asked}]}
    one = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    yield {"replica_id": -1, "topics": [{"topic": name, "partitions": [one]} for name in dict.fromkeys(w.names())]}
    yield {"replica_id": -1, "topics": [{"topic": w.t, "partitions": [one, one]}]}
    yield {"replica_id": -2, "topics": [{"topic": w.t, "partitions": []}]}
    yield {"replica_id": -1, "topics": []}


@cases(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(w: World, version: int) -> Requests:
    flags = {"include_synonyms": True, "include_documentation": True}
    for kind, name in itertools.product(
        (0, 1, TOPIC, 3, BROKER, LOGGER, METRICS, GROUP, 64, -1), ("", "2", "x", "a b")
    ):
        yield {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}], **flags}
    for keys in (None, [], ["retention.ms"], ["retention.ms", "retention.ms", "nonsense"], [""]):
        for kind, name in ((TOPIC, w.t), (GROUP, w.prefix + "g"), (TOPIC, "__consumer_offsets")):
            if (kind, name) == (TOPIC, "__consumer_offsets") and keys is None:
                continue
            for synonyms in (False, True):
                one = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                yield {"resources": [one], "include_synonyms": synonyms, "include_documentation": synonyms}
    one = {"resource_type": TOPIC, "resource_name": w.t, "configuration_keys": ["segment.bytes"]}
    yield {"resources": [one, one], **flags}
    yield {"resources": [one, {**one, "resource_name": w.nowhere}], **flags}
    yield {"resources": [], **flags}


@cases(ApiKey.ALTER_CONFIGS)
def alter_configs(w: World, version: int) -> Requests:
    def request(kind: int, name: str, configs: Mapping[str, str | None]) -> Any:
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        return {
            "resources": [{"resource_type": kind, "resource_name": name, "configs": rows}],
            "validate_only": True,
        }

    for configs in (*GOOD_CONFIGS, *BAD_CONFIGS):
        yield request(TOPIC, w.t, configs)
    for kind, name in itertools.product((0, TOPIC, 3, BROKER, LOGGER, METRICS, GROUP, 64), (w.nowhere, "", "1", "2")):
        yield request(kind, name, {"retention.ms": "1"})
    for name in BAD_NAMES:
        yield request(TOPIC, name, {"retention.ms": "1"})
    for key, value in OF_A_BROKER:
        yield request(BROKER, "1", {key: value})
        yield request(BROKER, "", {key: value})
    yield {"resources": [], "validate_only": True}


OF_A_BROKER: tuple[tuple[str, str | None], ...] = (
    ("log.retention.ms", "5"), ("log.retention.ms", "x"), ("node.id", "5"), ("listeners", "PLAINTEXT://:1"),
    ("nonsense", "1"), ("log.cleaner.threads", "99"), ("num.io.threads", "0"), ("message.max.bytes", "-1"),
    ("log.segment.bytes", "1"), ("compression.type", "brotli"), ("num.replica.fetchers", "2"),
    ("log.retention.ms", None),
    *((f"{side}.replication.throttled.rate", text)
      for side, text in itertools.product(("leader", "follower"), (
          "0", "-1", "x", "", " 7 ", "1.5", "1e3", "+5", "9223372036854775807", "9223372036854775808", None))),
    ("leader.replication.throttled.replicas", "*"), ("replica.alter.log.dirs.io.max.bytes.per.second", "-1"),
)  # fmt: skip
SET, DELETE, APPEND, SUBTRACT = range(4)


@cases(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(w: World, version: int) -> Requests:
    def request(kind: int, name: str, *rows: tuple[str, int, str | None]) -> Any:
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in rows]
        return {
            "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
            "validate_only": True,
        }

    for configs in (*GOOD_CONFIGS, *BAD_CONFIGS):
        yield request(TOPIC, w.t, *((key, SET, value) for key, value in configs.items()))
    # An operation that does not exist makes Kafka's controller resign, which other tests would notice.
    settings = ("retention.ms", "cleanup.policy", "nonsense", "leader.replication.throttled.replicas")
    for key, operation, value in itertools.product(settings, range(4), ("1", "compact", None, "")):
        yield request(TOPIC, w.t, (key, operation, value))
    yield request(TOPIC, w.t, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield request(TOPIC, w.t, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    for kind, name in itertools.product((0, TOPIC, 3, BROKER, METRICS, GROUP, 64), (w.nowhere, "", "1", "2")):
        yield request(kind, name, ("retention.ms", SET, "1"))
    for name in BAD_NAMES:
        yield request(TOPIC, name, ("retention.ms", SET, "1"))
    for key, value in OF_A_BROKER:
        yield request(BROKER, "1", (key, SET, value))
        yield request(BROKER, "", (key, SET, value))
    for name in ("1", "2", "", "x"):
        for logger, level in (("root", "INFO"), ("nonsense", "INFO"), ("root", "LOUD"), ("root", None)):
            for operation in (SET, DELETE, APPEND):
                yield request(LOGGER, name, (logger, operation, level))
    for name in ("", w.prefix + "g"):
        for key, value in (
            ("consumer.session.timeout.ms", "46000"),
            ("consumer.session.timeout.ms", "1"),
            ("x", "1"),
            ("interval.ms", "1000"),
            ("interval.ms", "1"),
            ("match", "x"),
        ):
            yield request(GROUP, name, (key, SET, value))
            yield request(METRICS, name, (key, SET, value))
    yield {"resources": [], "validate_only": True}
    yield {"resources": request(TOPIC, w.t, ("retention.ms", SET, "1"))["resources"] * 2, "validate_only": True}


@cases(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(w: World, version: int) -> Requests:
    yield {"topics": [{"topic": w.t, "partitions": [0, 1, 2, 3, -1]}, {"topic": w.nowhere, "partitions": [0]}]}
    yield {"topics": [{"topic": w.t, "partitions": [1, 1]}, {"topic": w.t, "partitions": [0]}]}
    yield {"topics": [{"topic": w.t, "partitions": []}]}
    yield {"topics": [{"topic": name, "partitions": [0]} for name in BAD_NAMES]}
    yield {"topics": []}


@cases(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(w: World, version: int) -> Requests:
    """Requests for directories that neither node has; moves are in test_log_mover.py."""
    for path in ("/nowhere", "", ".", "a\0b"):
        yield {"dirs": [{"path": path, "topics": [{"name": w.t, "partitions": [0, 1, -1, 99]}]}]}
    for name in (w.nowhere, *BAD_NAMES):
        yield {"dirs": [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0]}]}]}
    twice = {"name": w.t, "partitions": [0]}
    yield {"dirs": [{"path": "/nowhere", "topics": [twice, twice]}, {"path": "/elsewhere", "topics": [twice]}]}
    yield {"dirs": [{"path": "/nowhere", "topics": []}]}
    yield {"dirs": []}


@cases(ApiKey.CREATE_PARTITIONS)
def create_partitions(w: World, version: int) -> Requests:
    def request(*topics: tuple[str, int, list[list[int]] | None]) -> Any:
        rows = [
            {
                "name": name,
                "count": count,
                "assignments": None if placed is None else [{"broker_ids": each} for each in placed],
            }
            for name, count, placed in topics
        ]
        return {"topics": rows, "timeout": 9000, "validate_only": True}

    for count in (-1, 0, 1, 3, 4):
        for placed in (None, [], [[1]], [[2]], [[1, 1]], [[]], [[1], [1]], [[1, 2]]):
            yield request((w.t, count, placed))
    for name in (w.nowhere, *BAD_NAMES):
        yield request((name, 5, None))
    yield request((w.t, 4, None), (w.t, 5, None), (w.empty, 2, None))
    yield request((w.t, 4, None), (w.empty, 1, None))
    yield request()
    yield {**request((w.t, 4, None)), "timeout": -1}


@cases(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(w: World, version: int) -> Requests:
    for topic, partitions in (
        ("__cluster_metadata", [0]),
        ("__cluster_metadata", [1]),
        ("__cluster_metadata", [0, 0]),
        ("__cluster_metadata", []),
        (w.t, [0]),
        ("", [0]),
    ):
        yield {"topics": [{"topic_name": topic, "partitions": [{"partition_index": each} for each in partitions]}]}
    yield {"topics": []}


@cases(ApiKey.UPDATE_FEATURES)
def update_features(w: World, version: int) -> Requests:
    features = ("metadata.version", "group.version", "transaction.version", "kraft.version", "nonsense", "")
    levels = (-1, 0, 1, 999) if version else (-1, 999)
    for feature, level in itertools.product(features, levels):
        for kind in (0, 1, 2, 3, 4):
            row = {"feature": feature, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind == 1}
            yield {"timeout": 9000, "feature_updates": [row], "validate_only": True}
    row = {"feature": "nonsense", "max_version_level": 1, "upgrade_type": 1}
    yield {"timeout": 9000, "feature_updates": [row, row], "validate_only": True}
    yield {"timeout": 9000, "feature_updates": [], "validate_only": True}


@cases(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(w: World, version: int) -> Requests:
    for endpoints, operations, fenced in itertools.product((0, 1, 2, 3), (False, True), (False, True)):
        yield {
            "endpoint_type": endpoints,
            "include_cluster_authorized_operations": operations,
            "include_fenced_brokers": fenced,
        }


@cases(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(w: World, version: int) -> Requests:
    for name in w.names():
        yield {"topics": [{"name": name, "partition_indexes": [0]}]}
    yield {"topics": [{"name": w.t, "partition_indexes": [0, 2, 3, -1, 0]}]}
    yield {"topics": [{"name": w.t, "partition_indexes": []}]}
    yield {"topics": []}


@cases(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(w: World, version: int) -> Requests:
    for kinds in ([], [TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [0], [64], [-1], [TOPIC, TOPIC], [TOPIC, 64]):
        if version or not kinds:
            yield {"resource_types": kinds}


@cases(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def get_telemetry_subscriptions(w: World, version: int) -> Requests:
    """Clients that nobody knows yet; the second time it is too soon."""
    for number in range(3):
        yield {"client_instance_id": uuid5(UNKNOWN_ID, f"{w.prefix}{number}")}
        yield {"client_instance_id": uuid5(UNKNOWN_ID, f"{w.prefix}{number}")}


@cases(ApiKey.PUSH_TELEMETRY)
def push_telemetry(w: World, version: int) -> Requests:
    known = {"terminating": False, "compression_type": 0, "metrics": b""}
    for number, more in enumerate(
        (
            {},
            {"compression_type": 4},
            {"compression_type": 9},
            {"compression_type": -1},
            {"subscription_id": 0},
            {"metrics": bytes(1_048_577)},
            {"terminating": True},
            {"terminating": True, "subscription_id": 0},
        )
    ):
        client = uuid5(UNKNOWN_ID, f"{w.prefix}pushes-{number}")
        request = {"client_instance_id": client, "subscription_id": wanted({}, {}, client).id, **known, **more}
        yield request
        yield request
        yield {**request, "terminating": True}
    for client in (UUID(int=0), UUID(int=1)):
        yield {"client_instance_id": client, "subscription_id": 0, **known}


@cases(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(w: World, version: int) -> Requests:
    for names in ([w.t], [w.empty, w.t], [w.t, w.t], [w.nowhere], [*BAD_NAMES], [w.nowhere, w.t]):
        for limit in (2000, 1, 2, 0, -1):
            yield {"topics": [{"name": each} for each in names], "response_partition_limit": limit, "cursor": None}
    for name, index in ((w.t, 0), (w.t, 2), (w.t, 3), (w.t, -1), (w.nowhere, 0), ("zzz", 0), ("", 0)):
        cursor = {"topic_name": name, "partition_index": index}
        yield {"topics": [{"name": w.empty}, {"name": w.t}], "response_partition_limit": 2, "cursor": cursor}


@cases(ApiKey.ELECT_LEADERS)
def elect_leaders(w: World, version: int) -> Requests:
    for kind in (0, 1, 5, -1) if version else (0,):
        for name, partitions in ((w.t, [0, 1, 3, -1]), (w.t, [0, 0]), (w.t, []), (w.nowhere, [0]), ("a b", [0])):
            rows = [{"topic": name, "partitions": partitions}]
            yield {"election_type": kind, "topic_partitions": rows, "timeout": 9000}
        yield {"election_type": kind, "topic_partitions": [], "timeout": 0}


@cases(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(w: World, version: int) -> Requests:
    def request(*rows: tuple[str, int, list[int] | None], **fields: Any) -> Any:
        topics = [
            {"name": name, "partitions": [{"partition_index": number, "replicas": replicas}]}
            for name, number, replicas in rows
        ]
        return {"timeout": 9000, "topics": topics, **fields}

    for replicas in ([1], [2], [1, 1], [1, 2], [], [-1], None):
        yield request((w.t, 0, replicas))
        yield request((w.t, 3, replicas))
        yield request((w.nowhere, 0, replicas))
        if version >= 1:
            yield request((w.t, 0, replicas), allow_replication_factor_change=False)
    yield request((w.t, 0, [1]), (w.empty, 0, [7]))
    yield request()
    yield {"timeout": 9000, "topics": [{"name": w.t, "partitions": []}]}


@cases(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(w: World, version: int) -> Requests:
    for name, numbers in ((w.t, [0, 1, 7, -1]), (w.t, []), (w.nowhere, [0]), ("a b", [0])):
        yield {"timeout": 9000, "topics": [{"name": name, "partition_indexes": numbers}]}
    for topics in (None, []):
        yield {"timeout": 9000, "topics": topics}


@cases(ApiKey.UNREGISTER_BROKER)
def unregister_broker(w: World, version: int) -> Requests:
    for broker in (77, -1, 1 << 30):
        yield {"broker_id": broker}


@cases(ApiKey.ADD_RAFT_VOTER)
def add_raft_voter(w: World, version: int) -> Requests:
    listeners = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}]
    for cluster in (None, "another"):
        for voter, directory in ((77, UUID(int=77)), (1, UUID(int=77)), (-1, UUID(int=77)), (77, None)):
            row = {"voter_id": voter, "voter_directory_id": directory, "listeners": listeners}
            yield {"cluster_id": cluster, "timeout": 1000, **row}
    yield {"timeout": 1000, "voter_id": 77, "voter_directory_id": UUID(int=77), "listeners": []}


@cases(ApiKey.REMOVE_RAFT_VOTER)
def remove_raft_voter(w: World, version: int) -> Requests:
    for cluster in (None, "another"):
        for voter, directory in ((77, UUID(int=77)), (1, UUID(int=77)), (-1, UUID(int=77)), (77, None)):
            yield {"cluster_id": cluster, "voter_id": voter, "voter_directory_id": directory}
