"""A cluster that answers the console's requests from memory: with any names, and any number of topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any
from uuid import UUID

from ottla.client.config import ClientConfig
from ottla.console.asking import User
from ottla.console.brokers import Brokers
from ottla.console.snapshots import Snapshots
from ottla.errors import KafkaError
from ottla.protocol.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

ID = UUID(int=1)
NOW_MS = 1_790_000_000_000


class FakeBrokers(Brokers):
    """One broker, whose topics and groups are given. Every name that it says ends with `word`."""

    def __init__(
        self,
        topics: Iterable[str] = (),
        groups: Iterable[tuple[str, str]] = (),
        word: str = "",
        records: Sequence[SimpleRecord] = (),
    ) -> None:
        """`groups` are (name, kind)."""
        super().__init__(ClientConfig(("localhost:1",)), _NOBODY)
        self.topics, self.groups, self.word = list(topics), dict(groups), word
        self.records = records
        self.asked: list[ApiKey] = []

    def ask_any(self, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        return self.ask(1, key, values)

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(key)
        answer: dict[str, Any] = getattr(self, key.name.lower())(values)
        return answer

    def gather(self, calls: Sequence[Callable[[], Any]], executor: Executor | None = None) -> list[Any]:
        return [self._caught(call) for call in calls]

    def _caught(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (KafkaError, OSError) as error:
            return error

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partition = {
            "error_code": 0,
            "partition_index": 0,
            "leader_id": 1,
            "leader_epoch": 0,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        topics = [
            {"error_code": 0, "name": name, "topic_id": ID, "is_internal": False, "partitions": [partition]}
            for name in self.topics
        ]
        brokers = [{"node_id": 1, "host": f"h{self.word}", "port": 1, "rack": f"r{self.word}"}]
        return {"brokers": brokers, "cluster_id": f"c{self.word}", "controller_id": 1, "topics": topics}

    def list_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        end = len(self.records)
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": each["partition_index"],
                        "error_code": 0,
                        "offset": 0 if each["timestamp"] == -2 else end,
                        "timestamp": -1,
                    }
                    for each in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
        return {"topics": topics}

    def list_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"group_id": name, "protocol_type": "consumer", "group_state": f"Stable{self.word}", "group_type": kind}
            for name, kind in self.groups.items()
        ]
        return {"error_code": 0, "groups": rows}

    def offset_fetch(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "committed_offset": 0, "error_code": 0}]
        topics = [{"name": name, "partitions": partitions} for name in self.topics[:1]]
        return {
            "groups": [{"group_id": each["group_id"], "error_code": 0, "topics": topics} for each in values["groups"]]
        }

    def describe_share_group_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "start_offset": 0, "lag": 3, "error_code": 0}]
        topics = [{"topic_name": name, "partitions": partitions} for name in self.topics[:1]]
        return {
            "groups": [{"group_id": each["group_id"], "error_code": 0, "topics": topics} for each in values["groups"]]
        }

    def describe_share_partitions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        counts = {"acquired_records": 11, "redelivered_records": 12, "waiting_records": 13, "archived_records": 14}
        rows = [
            {"group_id": group, "topic": name, "partition": 0, "start_offset": 1, **counts}
            for group in values["groups"]
            for name in self.topics[:1]
        ]
        return {"error_code": 0, "node_id": 1, "partitions": rows}

    def describe_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return self._described(values["groups"], {"protocol_data": f"range{self.word}"}, {"member_assignment": b""})

    def consumer_group_describe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        assignment = {"topic_partitions": [{"topic_name": f"t{self.word}", "topic_id": ID, "partitions": [0]}]}
        more = {"assignor_name": f"uniform{self.word}", "group_epoch": 1}
        return self._described(values["group_ids"], more, {"assignment": assignment, "member_epoch": 1})

    share_group_describe = consumer_group_describe

    def streams_group_describe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        tasks = [{"subtopology_id": f"s{self.word}", "partitions": [0]}]
        return self._described(values["group_ids"], {"group_epoch": 1}, {"assignment": {"active_tasks": tasks}})

    def _described(self, names: Iterable[str], more: Mapping[str, Any], of_member: Mapping[str, Any]) -> dict[str, Any]:
        member = {
            "member_id": f"m{self.word}",
            "client_id": f"c{self.word}",
            "client_host": f"/h{self.word}",
            "instance_id": f"i{self.word}",
            **of_member,
        }
        rows = [
            {"group_id": name, "error_code": 0, "group_state": f"Stable{self.word}", "members": [member], **more}
            for name in names
        ]
        return {"groups": rows}

    def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {
            "name": f"n{self.word}",
            "value": f"v{self.word}",
            "read_only": False,
            "config_source": 1,
            "is_sensitive": False,
            "synonyms": [],
        }
        secret = {**row, "name": "ssl.key.password", "is_sensitive": True, "value": f"cAnArY{self.word}"}
        results = [
            {
                "error_code": 0,
                "resource_type": each["resource_type"],
                "resource_name": each["resource_name"],
                "configs": [row, secret],
            }
            for each in values["resources"]
        ]
        return {"results": results}

    def describe_log_dirs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"error_code": 0, "log_dir": f"/d{self.word}", "topics": [], "total_bytes": 10, "usable_bytes": 5}
        return {"error_code": 0, "results": [row]}

    def describe_producers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        producer = {
            "producer_id": 7,
            "producer_epoch": 1,
            "last_sequence": 3,
            "last_timestamp": NOW_MS,
            "current_txn_start_offset": 0,
            "coordinator_epoch": 0,
        }
        partition = {"partition_index": 0, "error_code": 0, "active_producers": [producer]}
        return {"topics": [{"name": each["name"], "partitions": [partition]} for each in values["topics"]]}

    def list_clients(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {
            "principal": f"User:p{self.word}",
            "client_id": f"l{self.word}",
            "software_name": f"s{self.word}",
            "software_version": f"v{self.word}",
            "host": f"h{self.word}",
            "idle_ms": 5,
            "producer_id": 7,
        }
        return {"error_code": 0, "node_id": 1, "clients": [row]}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partition = {"partition_index": 0, "replicas": [1, 2], "adding_replicas": [1], "removing_replicas": [2]}
        return {"error_code": 0, "topics": [{"name": name, "partitions": [partition]} for name in self.topics]}

    def list_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"transactional_id": f"x{self.word}", "producer_id": 7, "transaction_state": "Ongoing"}
        return {"error_code": 0, "transaction_states": [row]}

    def describe_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {
                "error_code": 0,
                "transactional_id": name,
                "transaction_state": f"Ongoing{self.word}",
                "producer_id": 7,
                "producer_epoch": 0,
                "transaction_timeout": 60_000,
                "transaction_start_time": NOW_MS,
                "topics": [{"topic": f"t{self.word}", "partitions": [0]}],
            }
            for name in values["transactional_ids"]
        ]
        return {"transaction_states": rows}

    def describe_acls(self, values: Mapping[str, Any]) -> dict[str, Any]:
        acl = {"principal": f"User:a{self.word}", "host": f"*{self.word}", "operation": 3, "permission_type": 3}
        resource = {"resource_type": 2, "resource_name": f"t{self.word}", "pattern_type": 3, "acls": [acl]}
        return {"error_code": 0, "resources": [resource]}

    def describe_user_scram_credentials(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"user": f"u{self.word}", "error_code": 0, "credential_infos": [{"mechanism": 1, "iterations": 4096}]}
        return {"error_code": 0, "results": [row]}

    def describe_client_quotas(self, values: Mapping[str, Any]) -> dict[str, Any]:
        entry = {
            "entity": [{"entity_type": f"user{self.word}", "entity_name": f"q{self.word}"}],
            "values": [{"key": f"k{self.word}", "value": 1.0}],
        }
        return {"error_code": 0, "entries": [entry]}

    def fetch(self, node_id: int, request: FetchRequest, into: bytearray | None = None) -> FetchResponse:
        topic = request.topics[0]
        begin = topic.partitions[0].fetch_offset
        data = build_batch(self.records[begin:], base_offset=begin) if self.records[begin:] else b""
        row = FetchedPartition(0, 0, len(self.records), len(self.records), 0, [], -1, data)
        return FetchResponse([FetchedTopic(topic.name, topic.topic_id, [row])])


class _Nobody(ThreadPoolExecutor):
    """Threads that are never started."""


_NOBODY: Executor = _Nobody(1)


class _AtOnce(ThreadPoolExecutor):
    """Reads ahead in the caller's thread, so that tests need not wait."""

    def submit(self, call: Any, /, *arguments: Any, **keywords: Any) -> Any:
        call(*arguments, **keywords)


def user(brokers: Brokers | None = None, name: str | None = None) -> User:
    return User(name, FakeBrokers() if brokers is None else brokers, Snapshots(_AtOnce(1)))
