"""A cluster that answers the requests of commands, without a node: what the commands ask through `ottla.cli.wire`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.cli import wire
from ottla.cli.client import nobody_answers
from ottla.protocol.messages import ApiKey

BOOTSTRAP = "127.0.0.1:9001"


@dataclass
class FakeCluster:
    """Brokers 1 to 3 at ports 9001 to 9003; node 2 leads the quorum; every topic has its replicas in sync."""

    ids: list[int] = field(default_factory=lambda: [1, 2, 3])
    fenced: set[int] = field(default_factory=set)
    quorum_leader: int = 2
    voters: list[int] = field(default_factory=lambda: [1, 2, 3])
    partitions: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """Their replicas; the first one leads, if it runs."""
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    cluster_id: str = "cluster"
    directory: str = "/data"
    asked: list[ApiKey] = field(default_factory=list)
    answers: dict[ApiKey, Callable[[Mapping[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    """Answers to requests that a test wants answered in its own way."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{9000 + each}" for each in self.ids if each not in self.fenced)

    def ask(
        self, bootstrap: str, key: ApiKey, values: Mapping[str, Any], timeout_s: float = 0.0, secured: Any = None
    ) -> dict[str, Any]:
        for address in bootstrap.split(","):
            node = int(address.rpartition(":")[2]) % 1000  # its controller listens 10,000 above
            if node in self.ids and node not in self.fenced:
                self.asked.append(key)
                if key in self.answers:
                    return self.answers[key](values)
                answer: dict[str, Any] = getattr(self, f"_{key.name.lower()}")(node)
                return answer
        raise nobody_answers(f"{bootstrap}: Connection refused")

    def _place(self, node: int) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": 9000 + node, "rack": None}

    def _api_versions(self, node: int) -> dict[str, Any]:
        newest = {ApiKey.DESCRIBE_CLUSTER: 2, ApiKey.BROKER_REGISTRATION: 4}
        keys = [{"api_key": key, "min_version": 0, "max_version": newest[key]} for key in newest]
        features = [{"name": "kraft.version", "max_version_level": 1, "min_version_level": 1}]
        return {"error_code": 0, "api_keys": keys, "finalized_features": features}

    def _describe_cluster(self, node: int) -> dict[str, Any]:
        rows = [
            {
                "broker_id": each,
                "host": "127.0.0.1",
                "port": 9000 + each,
                "rack": None,
                "is_fenced": each in self.fenced,
            }
            for each in self.ids
        ]
        return {
            "error_code": 0,
            "error_message": None,
            "cluster_id": self.cluster_id,
            "controller_id": node,
            "brokers": rows,
        }

    def _metadata(self, node: int) -> dict[str, Any]:
        """Metadata lists brokers that are away too, and names any broker as the controller."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), replicas in sorted(self.partitions.items()):
            isr = [each for each in replicas if each not in self.fenced]
            row = {"partition_index": number, "replica_nodes": list(replicas), "isr_nodes": isr}
            topics.setdefault(topic, []).append({**row, "leader_id": isr[0] if isr else -1, "error_code": 0})
        rows = [{"node_id": each, "host": "127.0.0.1", "port": 9000 + each, "rack": None} for each in self.ids]
        found = [
            {"name": name, "error_code": 0, "is_internal": False, "partitions": each} for name, each in topics.items()
        ]
        return {"brokers": rows, "cluster_id": self.cluster_id, "controller_id": node, "topics": found}

    def _describe_quorum(self, node: int) -> dict[str, Any]:
        voters = [{"replica_id": each, "replica_directory_id": None, "log_end_offset": 5} for each in self.voters]
        row = {
            "error_code": 0,
            "error_message": None,
            "leader_id": self.quorum_leader,
            "leader_epoch": 1,
            "high_watermark": 5,
            "current_voters": voters,
            "observers": [],
        }
        places = [
            {"node_id": each, "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 19000 + each}]}
            for each in self.voters
        ]
        topics = [{"topic_name": "__cluster_metadata", "partitions": [row]}]
        return {"error_code": 0, "error_message": None, "topics": topics, "nodes": places}

    def _describe_log_dirs(self, node: int) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), replicas in self.partitions.items():
            if node in replicas:
                size = self.sizes.get((topic, number), 0)
                row = {"partition_index": number, "partition_size": size, "is_future_key": False}
                topics.setdefault(topic, []).append(row)
        found = [{"name": name, "partitions": each} for name, each in topics.items()]
        row = {"log_dir": self.directory, "error_code": 0, "topics": found, "total_bytes": 100, "usable_bytes": 50}
        return {"error_code": 0, "results": [row]}

    def _describe_configs(self, node: int) -> dict[str, Any]:
        return {"results": []}

    def _elect_leaders(self, node: int) -> dict[str, Any]:
        rows = [{"partition_id": number, "error_code": 0} for _, number in self.partitions]
        return {"error_code": 0, "replica_election_results": [{"topic": "t", "partition_result": rows}]}

    def _list_partition_reassignments(self, node: int) -> dict[str, Any]:
        return {"error_code": 0, "error_message": None, "topics": []}


def serve(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> FakeCluster:
    """From now on commands ask this cluster."""
    monkeypatch.setattr(wire, "ask", cluster.ask)
    return cluster
