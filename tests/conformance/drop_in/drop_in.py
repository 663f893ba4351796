"""One directory, port and settings file in which Apache Kafka and Ottla take turns, and what clients see there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import BatchHeader, iterate_batches
from peers.kafka import KafkaPeer, start_fast
from tests.conformance.operations.operations import Client, eventually
from tests.node import NodeProcess

SETTINGS: Mapping[str, str | None] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "log.initial.task.delay.ms": "100",
}
"""Small internal topics start faster; a snapshot follows every few changes of metadata."""


class Place:
    """Both brokers of one directory. At most one of them runs."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str | None] | None = None,
        *format_as: str,
        formatted: bool = True,
        release: str = "4.4",
    ) -> None:
        """Formatted by Kafka's tool with the arguments `format_as`, or left for Ottla to make; `release` of Kafka."""
        self.kafka = KafkaPeer(
            directory,
            heap="384m",
            settings={**SETTINGS, **(settings or {})},
            flags=start_fast(release),
            release=release,
        )
        if "--standalone" in format_as:  # the voters are in the metadata (KIP-853), as in Kafka's own example file
            self.kafka.settings |= {
                "controller.quorum.voters": None,
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.kafka.controller_port}",
            }
        if formatted:
            self.kafka.format(*format_as)
        else:
            self.kafka.write_properties()
        self.ottla = NodeProcess(self.kafka.data, config=self.kafka.properties, port=self.kafka.port)
        self.bootstrap = self.kafka.bootstrap

    @contextmanager
    def running(self, broker: str, *, kill: bool = False) -> Iterator[Client]:
        """`kafka` or `ottla`, stopped at the end as an operator does, or killed."""
        chosen = self.kafka if broker == "kafka" else self.ottla
        chosen.start()
        try:
            client = Client(self.ottla)
            wait_for_groups(client)
            yield client
        except BaseException:
            chosen.kill()
            raise
        if kill:
            chosen.kill()
        else:
            chosen.stop()

    def snapshots(self) -> list[str]:
        """Names of the finished snapshots of the metadata log, oldest first."""
        return sorted(each.name for each in self.kafka.data.parent.rglob("__cluster_metadata-0/*.checkpoint"))


def wait_for_groups(client: Client) -> None:
    """Until the coordinators of all groups have read their logs, which are made where there are none."""
    for number in range(20):
        group = f"any-{number}"  # some of them for each coordinator
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        wanted = {"groups": [asked], "require_stable": False}

        def answers(wanted: Any = wanted, group: str = group) -> bool:
            client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
            return bool(client.ask(ApiKey.OFFSET_FETCH, 8, wanted)["groups"][0]["error_code"] == 0)

        eventually(answers, "the group coordinators do not come")


def seen(client: Client) -> dict[str, Any]:
    """All that clients can see of what a broker keeps, but for what grows with every start (leader epochs)."""
    topics = _topics(client)
    partitions = [(name, number) for name, topic in topics.items() for number in range(topic["partitions"])]
    return {
        "cluster": client.ask(ApiKey.DESCRIBE_CLUSTER, 1, {})["cluster_id"],
        "features": _features(client),
        "topics": topics,
        "configs": _configs(client, list(topics)),
        "logs": {where: log(client, *where) for where in partitions if not where[0].startswith("__")},
        "groups": _groups(client),
        "producers": _producers(client, topics),
        "directories": _directories(client),
    }


def _topics(client: Client) -> dict[str, Any]:
    answer = client.ask(ApiKey.METADATA, 12, {"topics": None, "allow_auto_topic_creation": False})
    return {
        each["name"]: {
            "id": each["topic_id"],
            "partitions": len(each["partitions"]),
            "errors": {part["error_code"] for part in each["partitions"]},
        }
        for each in sorted(answer["topics"], key=lambda each: str(each["name"]))
    }


def _features(client: Client) -> dict[str, int]:
    answer = client.ask(ApiKey.API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})
    return {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}


def _configs(client: Client, topics: list[str]) -> dict[tuple[int, str], dict[str, str | None]]:
    """Settings that somebody has set: by resource, without those that are defaults or come from the file."""
    listed = client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": []})["config_resources"]
    resources = {(each["resource_type"], each["resource_name"]) for each in listed} | {(2, name) for name in topics}
    wanted = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in sorted({*resources, (4, ""), (4, "1")})
        if kind != 8  # log levels are not kept
    ]
    answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": wanted})
    dynamic = {1, 2, 3, 7, 8}
    return {
        (each["resource_type"], each["resource_name"]): {
            config["name"]: config["value"] for config in each["configs"] if config["config_source"] in dynamic
        }
        for each in answer["results"]
    }


def log(client: Client, topic: str, partition: int) -> dict[str, Any]:
    """A partition's bounds, the bytes in between, and which transactions a reader must leave out."""
    start = client.offset(topic, -2, partition=partition)
    digest = hashlib.sha256()
    at, aborted = start, set()
    while (data := fetch(client, topic, at, partition))["records"]:
        for position, header in iterate_batches(bytes(data["records"])):
            if header.last_offset >= at:
                digest.update(data["records"][position : position + header.size])
                at = header.next_offset
        aborted |= {(each["producer_id"], each["first_offset"]) for each in data["aborted_transactions"] or ()}
    return {
        "start": start,
        "end": client.offset(topic, -1, partition=partition),
        "stable": data["last_stable_offset"],
        "aborted": aborted,
        "readable_until": at,
        "bytes": digest.hexdigest(),
    }


def fetch(client: Client, topic: str, offset: int, partition: int = 0) -> Any:
    """Records for a read_committed reader."""
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    request = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 22,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer = client.ask(ApiKey.FETCH, 12, request)["responses"][0]["partitions"][0]
    assert answer["error_code"] == 0, (topic, partition, answer)
    return answer


def batches(client: Client, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The heads of all batches that can be read."""
    found: list[BatchHeader] = []
    at = client.offset(topic, -2, partition=partition)
    while records := fetch(client, topic, at, partition)["records"]:
        found += [header for _, header in iterate_batches(bytes(records)) if header.last_offset >= at]
        at = found[-1].next_offset
    return found


def _groups(client: Client) -> dict[Any, Any]:
    listed = client.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})["groups"]
    types = {each["group_id"]: each["group_type"] for each in listed}
    wanted = [{"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in sorted(types)]
    answer = client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": wanted, "require_stable": False})
    return {
        (types[group["group_id"]], group["group_id"]): {
            (topic["name"], each["partition_index"]): (
                each["committed_offset"],
                each["committed_leader_epoch"],
                each["metadata"],
                each["error_code"],
            )
            for topic in group["topics"]
            for each in topic["partitions"]
        }
        for group in answer["groups"]
    }


def _producers(client: Client, topics: Mapping[str, Any]) -> dict[Any, Any]:
    wanted = [
        {"name": name, "partition_indexes": list(range(topic["partitions"]))}
        for name, topic in topics.items()
        if not name.startswith("__")
    ]
    answer = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": wanted})
    fields = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "current_txn_start_offset")
    return {
        (topic["name"], part["partition_index"]): sorted(
            tuple(each[field] for field in fields) for each in part["active_producers"]
        )
        for topic in answer["topics"]
        for part in topic["partitions"]
    }


def _directories(client: Client) -> dict[str, set[tuple[str, int]]]:
    """Which partition is where."""
    answer = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return {
        each["log_dir"]: {
            (topic["name"], part["partition_index"])
            for topic in each["topics"]
            for part in topic["partitions"]
            if not part["is_future_key"]
        }
        for each in answer["results"]
    }
