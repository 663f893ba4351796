"""A cluster as a client sees it: its topics and their leaders, its coordinators, and a connection to each node."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.client.config import ClientConfig, split_address
from ottla.client.connection import Connection, OtherNode
from ottla.client.security import SecurityFailure
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_LEADER_EPOCH, ZERO_UUID, MeantNode, Millis, Offset, TopicPartition
from ottla.protocol.messages import ApiKey

GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of the keys by which coordinators are found (KIP-98)."""

LATEST: Final = -1
EARLIEST: Final = -2
"""Given in place of a timestamp to `Cluster.offsets`."""

_VERSIONS: Final = {
    ApiKey.METADATA: (4, 12),
    ApiKey.LIST_OFFSETS: (4, 7),
    ApiKey.FIND_COORDINATOR: (4, 4),
    ApiKey.OFFSET_COMMIT: (5, 8),
    ApiKey.OFFSET_FETCH: (8, 8),
    ApiKey.INIT_PRODUCER_ID: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (2, 3),
    ApiKey.END_TXN: (2, 4),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.CREATE_TOPICS: (5, 7),
    ApiKey.DESCRIBE_CONFIGS: (2, 4),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.STORE_USER_SCRAM_CREDENTIALS: (0, 0),
}
"""The versions that are spoken here; from EndTxn 5 on transactions are of KIP-890's second kind."""

RETRIABLE: Final = frozenset({
    ErrorCode.leader_not_available, ErrorCode.not_leader_or_follower, ErrorCode.unknown_leader_epoch,
    ErrorCode.fenced_leader_epoch, ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id,
    ErrorCode.replica_not_available, ErrorCode.offset_not_available, ErrorCode.kafka_storage_error,
    ErrorCode.request_timed_out, ErrorCode.network_exception, ErrorCode.inconsistent_topic_id,
})  # fmt: skip
"""Errors of a partition after which to refresh the metadata and ask again: it may be old, or a leader new."""
COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.coordinator_not_available, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress}
)
_COORDINATORS_MAX: Final = 20_000
"""Keys whose coordinator is remembered: a process of Spark lives long, and each write has others."""
_CREATE_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0


class Leader(NamedTuple):
    """The leader of a partition, -1 for none, and the id of its topic, ZERO_UUID where the cluster has none."""

    node_id: int
    epoch: int
    topic_id: UUID


class OffsetAt(NamedTuple):
    """The record found for a timestamp: both are -1 if none is as young."""

    offset: Offset
    timestamp: Millis


class Retry:
    """Pauses that double, up to a second, until a deadline."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _PAUSE_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def again(self) -> bool:
        """Wait, unless the time is over: then False."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._pause * random.uniform(0.8, 1.2)))
        self._pause = min(2 * self._pause, _PAUSE_S_MAX)
        return True


class Cluster:
    """Not thread-safe: each thread has its own, as Spark tasks have a process each."""

    def __init__(self, config: ClientConfig) -> None:
        """Connects when first asked."""
        self.config = config
        self._cluster_id: str | None = None
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, Connection] = {}
        self._spare: dict[int, list[Connection]] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._errors: dict[str, ErrorCode] = {}
        self._known_at: dict[str, float] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._any: Connection | None = None

    # Connections

    def connection(self, node_id: int) -> Connection:
        """The kept connection to a node. Raises OSError, also for a node that metadata does not know."""
        connection = self._connections.get(node_id)
        if connection is None:
            connection = self._connections[node_id] = self.connect(node_id)
        return connection

    def connect(self, node_id: int) -> Connection:
        """A connection of the caller's own, for answers that are long in coming. Give it back to `spare` it."""
        spare = self._spare.get(node_id)
        if spare:
            return spare.pop()
        address = self._nodes.get(node_id)
        if address is None:
            raise ConnectionError(f"node {node_id} is not known")
        try:
            return Connection(*address, self.config, meant=self._meant(node_id))
        except OtherNode:
            self._bootstrap()
            raise

    def _meant(self, node_id: int) -> MeantNode | None:
        return None if self._cluster_id is None else MeantNode(self._cluster_id, node_id)

    def _bootstrap(self) -> None:
        """Drop all that is known of the cluster, whose nodes have moved: the next request goes to the bootstrap
        addresses, as by Kafka's client (KIP-1102, KIP-1242)."""
        self.close()
        self._cluster_id = None
        self._nodes, self._leaders, self._errors, self._known_at, self._coordinators = {}, {}, {}, {}, {}

    def spare(self, node_id: int, connection: Connection) -> None:
        """Take a connection back on which nothing is under way."""
        self._spare.setdefault(node_id, []).append(connection)

    def ask(self, node_id: int, api_key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        """One request to a node, in the newest version known to both. Raises OSError, after which the connection is
        made again, and KafkaError UNSUPPORTED_VERSION."""
        try:
            return _asked(self.connection(node_id), api_key, values)
        except (OSError, SecurityFailure):
            self._connections.pop(node_id, None)
            raise

    def ask_any(self, api_key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        """One request to whoever answers: the last one that did, else any node or bootstrap address. Raises
        SecurityFailure when nobody does and one refuses this client, else OSError."""
        if self._any is not None:
            try:
                return _asked(self._any, api_key, values)
            except OSError:
                self._any.close()
                self._any = None
        meant = {address: self._meant(node_id) for node_id, address in self._nodes.items()}
        addresses = list(dict.fromkeys([*meant, *map(split_address, self.config.bootstrap)]))
        random.shuffle(addresses)
        failures: list[str] = []
        forbidden: SecurityFailure | None = None
        for host, port in addresses:
            try:
                self._any = Connection(host, port, self.config, meant=meant.get((host, port)))
                return _asked(self._any, api_key, values)
            except SecurityFailure as failure:
                self._any, forbidden = None, forbidden or failure
            except OtherNode:
                self._bootstrap()
                return self.ask_any(api_key, values)  # knows no node now, so it does not come here again
            except OSError as error:
                self._any = None
                failures.append(str(error) if f"{host}:{port}" in str(error) else f"{host}:{port}: {error}")
        if forbidden is not None:
            raise forbidden
        raise ConnectionError(f"no broker can be reached: {'; '.join(failures)}")

    def last_has(self, api_key: ApiKey) -> bool:
        """Whether the node that has answered `ask_any` last has an API."""
        return self._any is not None and self._any.newest(api_key) >= 0

    def close(self) -> None:
        """Close every connection; the cluster can be used again."""
        kept = [*self._connections.values(), *(one for spare in self._spare.values() for one in spare)]
        for connection in [*kept, *([self._any] if self._any else [])]:
            connection.close()
        self._connections, self._spare, self._any = {}, {}, None

    @property
    def node_ids(self) -> list[int]:
        """Ids of the nodes in the newest metadata, sorted."""
        return sorted(self._nodes)

    # Topics

    def topics(self) -> list[str]:
        """The names of all that there are, internal ones too, sorted."""
        return sorted(self._metadata(None))

    def refresh(self, topics: Iterable[str]) -> None:
        """Ask for the metadata of topics again. Raises OSError."""
        names = sorted(set(topics))
        if names:
            self._metadata(names)

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, Leader]:
        """All partitions of topics, as they are now; topics that do not exist are absent.

        Raises KafkaError for topics that may not be read or have no valid name, OSError when nobody answers.
        """
        names = set(topics)
        retry = Retry(self.config.request_timeout_s)
        self.refresh(names)
        # A topic may be so new that the node asked has not heard who leads it.
        while any(self._errors.get(name) is ErrorCode.leader_not_available for name in names) and retry.again():
            self.refresh(names)
        for name in sorted(names):
            code = self._errors.get(name)
            if code is not None and code is not ErrorCode.unknown_topic_or_partition:
                raise KafkaError(code, f"topic {name}")
        return {partition: leader for partition, leader in self._leaders.items() if partition.topic in names}

    def leader(self, topic: str, partition: int) -> Leader:
        """The leader of a partition, by metadata at most `metadata_max_age_s` old; -1 if it has none at the moment.
        Raises KafkaError for a partition that does not exist, OSError when nobody answers.

        Raises KafkaError for a partition that does not exist, OSError when nobody answers.
        """
        at = TopicPartition(topic, partition)
        age = time.monotonic() - self._known_at.get(topic, float("-inf"))
        if at not in self._leaders or age > self.config.metadata_max_age_s or self._leaders[at].node_id < 0:
            self.refresh([topic])
        found = self._leaders.get(at)
        if found is None:
            raise KafkaError(self._errors.get(topic, ErrorCode.unknown_topic_or_partition), f"partition {at}")
        return found

    def drop(self, topic: str) -> None:
        """Drop the metadata of a topic, which turned out to be old."""
        self._known_at.pop(topic, None)

    def _metadata(self, names: list[str] | None) -> set[str]:
        rows = None if names is None else [{"name": name, "topic_id": ZERO_UUID} for name in names]
        answer = self.ask_any(ApiKey.METADATA, {"topics": rows, "allow_auto_topic_creation": False})
        self._cluster_id = answer.get("cluster_id")
        self._set_nodes({row["node_id"]: (row["host"], row["port"]) for row in answer["brokers"]})
        found = {row["name"]: row for row in answer["topics"]}
        asked = set(found) if names is None else set(names)
        for at in [at for at in self._leaders if at.topic in asked]:
            del self._leaders[at]
        for name in asked:
            self._known_at[name] = time.monotonic()
            row = found.get(name)
            code = ErrorCode.unknown_topic_or_partition if row is None else ErrorCode(row["error_code"])
            self._errors.pop(name, None)
            if row is None or code is not ErrorCode.none:
                self._errors[name] = code
                continue
            for partition in row["partitions"]:
                self._leaders[TopicPartition(name, partition["partition_index"])] = Leader(
                    partition["leader_id"],
                    partition.get("leader_epoch", NO_LEADER_EPOCH),
                    row.get("topic_id", ZERO_UUID),
                )
        return {name for name in asked if name not in self._errors}

    def _set_nodes(self, nodes: dict[int, tuple[str, int]]) -> None:
        """Connections to a node that has moved are of no use."""
        for node_id, address in self._nodes.items():
            if nodes.get(node_id) != address:
                for connection in [self._connections.pop(node_id, None), *self._spare.pop(node_id, [])]:
                    if connection is not None:
                        connection.close()
        self._nodes = nodes

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str], *, replicas: int = -1) -> None:
        """Unless there is one; -1 replicas are the cluster's default. Raises KafkaError, OSError."""
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": config, "value": value} for config, value in configs.items()],
        }
        values = {"topics": [row], "timeout": _CREATE_TIMEOUT_MS, "validate_only": False}
        (answer,) = self.ask_any(ApiKey.CREATE_TOPICS, values)["topics"]
        code = ErrorCode(answer["error_code"])
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(code, f"topic {name}: {answer['error_message'] or ''}")

    # Offsets

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after a timestamp (ms), or LATEST or EARLIEST, for each partition (ListOffsets).

        With `read_committed` the latest is the last stable offset. Leaders that move are followed until
        `request_timeout_s` is over. Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION among others), OSError.
        """
        found: dict[TopicPartition, OffsetAt] = {}
        left = dict(wanted)
        retry = Retry(self.config.request_timeout_s)
        while left:
            failures = self._ask_offsets(left, read_committed, found)
            left = {at: timestamp for at, timestamp in left.items() if at not in found}
            if not left:
                break
            failure = next(iter(failures.values()))
            if isinstance(failure, KafkaError) and failure.code not in RETRIABLE:
                raise failure
            if not retry.again():
                raise failure
            self.refresh({at.topic for at in left})
        return found

    def bounds(self, at: TopicPartition) -> tuple[Offset, Offset]:
        """Where a partition begins and ends. Raises as `offsets` does."""
        return self.offsets({at: EARLIEST})[at].offset, self.offsets({at: LATEST})[at].offset

    def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int], read_committed: bool, found: dict[TopicPartition, OffsetAt]
    ) -> dict[TopicPartition, KafkaError | OSError]:
        """Put answers into `found`; returns why others have none."""
        failures: dict[TopicPartition, KafkaError | OSError] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for at in wanted:
            try:
                leader = self.leader(*at)
            except KafkaError as error:
                failures[at] = error
                continue
            if leader.node_id < 0:
                failures[at] = KafkaError(ErrorCode.leader_not_available, f"partition {at}")
            else:
                by_node.setdefault(leader.node_id, []).append(at)
        for node_id, partitions in by_node.items():
            rows = [(at, {"partition_index": at.partition, "timestamp": wanted[at]}) for at in partitions]
            values = {"replica_id": -1, "isolation_level": int(read_committed), "topics": by_topic(rows)}
            try:
                answer = self.ask(node_id, ApiKey.LIST_OFFSETS, values)
            except OSError as error:
                failures.update(dict.fromkeys(partitions, error))
                continue
            for topic in answer["topics"]:
                for row in topic["partitions"]:
                    at = TopicPartition(topic["name"], row["partition_index"])
                    if row["error_code"]:
                        failures[at] = KafkaError(ErrorCode(row["error_code"]), f"partition {at}")
                    else:
                        found[at] = OffsetAt(row["offset"], row["timestamp"])
        return failures

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Set a group's offsets, as AdminClient.alterConsumerGroupOffsets does: the group may have no members.

        Raises KafkaError (UNKNOWN_MEMBER_ID when it has), OSError.
        """
        rows = [
            (
                at,
                {
                    "partition_index": at.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                },
            )
            for at, offset in offsets.items()
        ]
        if not rows:
            return
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": by_topic(rows),
        }

        def error_of(answer: Mapping[str, Any]) -> int:
            codes = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
            return next(filter(None, codes), 0)

        self.ask_coordinator(GROUP, group, ApiKey.OFFSET_COMMIT, values, error_of)

    def committed_offsets(self, group: str) -> dict[TopicPartition, Offset]:
        """All offsets of a group; none for a group that does not exist. Raises KafkaError, OSError."""
        row = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        values = {"groups": [row], "require_stable": False}
        answer = self.ask_coordinator(
            GROUP, group, ApiKey.OFFSET_FETCH, values, lambda answer: int(answer["groups"][0]["error_code"])
        )
        return {
            TopicPartition(topic["name"], each["partition_index"]): each["committed_offset"]
            for topic in answer["groups"][0]["topics"]
            for each in topic["partitions"]
        }

    # Coordinators

    def coordinator(self, key_type: int, key: str) -> int:
        """The node that coordinates a group or a transactional id. Raises KafkaError, OSError."""
        return self.coordinators(key_type, [key])[key]

    def coordinators(self, key_type: int, keys: Iterable[str]) -> dict[str, int]:
        """The coordinators of many keys, in one request. Raises KafkaError when one of them has none now, OSError."""
        if len(self._coordinators) > _COORDINATORS_MAX:
            self._coordinators.clear()
        wanted = list(dict.fromkeys(keys))
        if unknown := [key for key in wanted if (key_type, key) not in self._coordinators]:
            answer = self.ask_any(ApiKey.FIND_COORDINATOR, {"key_type": key_type, "coordinator_keys": unknown})
            for row in answer["coordinators"]:
                key, node_id = row["key"], row["node_id"]
                if row["error_code"]:
                    raise KafkaError(ErrorCode(row["error_code"]), row["error_message"] or f"no coordinator of {key}")
                if self._nodes.get(node_id) != (row["host"], row["port"]):
                    self._set_nodes({**self._nodes, node_id: (row["host"], row["port"])})
                self._coordinators[key_type, key] = node_id
        return {key: self._coordinators[key_type, key] for key in wanted}

    def drop_coordinator(self, key_type: int, key: str) -> None:
        self._coordinators.pop((key_type, key), None)

    def ask_coordinator(
        self,
        key_type: int,
        key: str,
        api_key: ApiKey,
        values: Mapping[str, Any],
        error_of: Callable[[Mapping[str, Any]], int],
        *,
        retried: frozenset[ErrorCode] = frozenset(),
    ) -> dict[str, Any]:
        """The answer of a coordinator, looked for again while it moves or loads, and asked again on a lost connection.

        Codes in `retried` are asked again as well. So a request may have been done before it is done: it has to be one
        that can be repeated. Raises KafkaError for any other code, OSError.
        """
        retry = Retry(self.config.request_timeout_s)
        while True:
            failure: KafkaError | OSError
            try:
                answer = self.ask(self.coordinator(key_type, key), api_key, values)
                code = ErrorCode(error_of(answer))
                if code is ErrorCode.none:
                    return answer
                failure = KafkaError(code, answer.get("error_message") or f"{api_key.name} of {key}")
            except KafkaError as error:
                failure = error
            except OSError as error:
                failure = error
            if isinstance(failure, OSError) or failure.code in COORDINATOR_MOVED:
                self.drop_coordinator(key_type, key)
            elif failure.code not in retried:
                raise failure
            if not retry.again():
                raise failure


def by_topic(rows: Iterable[tuple[TopicPartition, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of partitions under the names of their topics, as most requests want them."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for at, row in rows:
        topics.setdefault(at.topic, []).append(row)
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _asked(connection: Connection, api_key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    return connection.ask(api_key, connection.version(api_key, *_VERSIONS[api_key]), values)
