"""Clusters of three as the sides of a comparison: `ottla cluster up 3`, and three JVMs of Apache Kafka."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.method.compare import OURS
from bench.method.load import Client
from ottla.protocol.messages import ApiKey
from peers.kafka.cluster import KafkaCluster

NODES = 3
LIMIT_S = 300.0
HEAP = "1g"
"""Heap of a node, as Kafka's start script sets it."""


class Nodes:
    """A cluster on a new directory: `launch` returns at once, `wait_ready` when each node serves."""

    directory: Path
    """Directory of all nodes."""
    ports: Sequence[int]
    """Ports of nodes 1 to 3."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the nodes, and of the process that supervises them."""
        raise NotImplementedError

    def launch(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """End all and delete their data."""
        raise NotImplementedError

    def wait_ready(self) -> None:
        """Raises RuntimeError."""
        wait_until(lambda: len(brokers(self.ports[0])) == NODES)


class OttlaNodes(Nodes):
    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self._command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "cluster",
            "up",
            str(NODES),
            str(directory),
            "--port",
            "0",
            *sets,
        ]
        self._process: subprocess.Popen[str] | None = None

    def launch(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first.startswith("bootstrap: "):
            raise RuntimeError(f"the cluster does not start: {first}")
        self.ports = [int(each.rpartition(":")[2]) for each in first.split()[1].split(",")]

    @property
    def pids(self) -> list[int]:
        assert self._process is not None
        nodes = [int((self.directory / f"node-{each}" / "pid").read_text()) for each in range(1, NODES + 1)]
        return [*nodes, self._process.pid]

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=LIMIT_S)
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)


class KafkaNodes(Nodes):
    """Formatted before it is launched, which takes a JVM for each node."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self._cluster = KafkaCluster(directory, NODES, heap=HEAP, settings=settings)
        self.ports = [peer.port for peer in self._cluster.peers.values()]
        for peer in self._cluster.peers.values():
            peer.format()

    def launch(self) -> None:
        for peer in self._cluster.peers.values():
            peer.launch()

    @property
    def pids(self) -> list[int]:
        return [peer.process.pid for peer in self._cluster.peers.values() if peer.process is not None]

    def stop(self) -> None:
        self._cluster.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def nodes(side: str, base: Path, settings: Mapping[str, str]) -> Nodes:
    """The nodes of a side on a new directory, not launched."""
    directory = base / f"{side}-three-{time.monotonic_ns()}"
    directory.mkdir(parents=True)
    return OttlaNodes(directory, settings) if side == OURS else KafkaNodes(directory, settings)


class WarmClusters:
    """A cluster of each side, all running at once; only the one that is measured gets load."""

    def __init__(self, sides: Sequence[str], base: Path, settings: Mapping[str, str]) -> None:
        self.loaded_s: dict[str, float] = dict.fromkeys(sides, 0.0)
        self.clusters: dict[str, Nodes] = {}
        try:
            for side in sides:
                self.clusters[side] = nodes(side, base, settings)
                self.clusters[side].launch()
                self.clusters[side].wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for each in self.clusters.values():
            each.stop()
        self.clusters.clear()


def wait_until(is_so: Any) -> None:
    """Raises RuntimeError after `LIMIT_S`; what the cluster refuses meanwhile is asked again."""
    deadline = time.perf_counter() + LIMIT_S
    while True:
        try:
            if is_so():
                return
        except (OSError, RuntimeError):
            pass
        if time.perf_counter() > deadline:
            raise RuntimeError(f"the cluster is not what it should be after {LIMIT_S:g} s")
        time.sleep(0.002)


def brokers(port: int) -> dict[int, int]:
    """The ports of the brokers that a node knows, by id."""
    client = Client(port)
    try:
        answer = client.call(ApiKey.METADATA, 8, {"topics": (), "allow_auto_topic_creation": False})
    finally:
        client.close()
    return {each["node_id"]: each["port"] for each in answer["brokers"]}


class Topic:
    """A topic whose replicas are where they are said to be, the first of them leading."""

    def __init__(
        self, cluster: Nodes, name: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Returns when all lead and are in sync. Raises RuntimeError."""
        self.name = name
        self.assignments = assignments
        self._client = Client(cluster.ports[0])
        self.ports = [cluster.ports[replicas[0] - 1] for replicas in assignments]
        """Port of the leader of each partition."""
        rows = [{"partition_index": number, "broker_ids": each} for number, each in enumerate(assignments)]
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": rows,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        answer = self._client.call(
            ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 60_000, "validate_only": False}
        )
        if code := answer["topics"][0]["error_code"]:
            raise RuntimeError(f"create {name}: {code!r}")
        wait_until(self._leads)
        wait_until(lambda: self.in_sync() == [len(each) for each in assignments])

    def _leads(self) -> bool:
        """Whether every leader answers as leader."""
        for number, port in enumerate(self.ports):
            client = Client(port)
            try:
                wanted = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}]
                values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": self.name, "partitions": wanted}]}
                answer = client.call(ApiKey.LIST_OFFSETS, 7, values)
            finally:
                client.close()
            if answer["topics"][0]["partitions"][0]["error_code"]:
                return False
        return True

    def in_sync(self) -> list[int]:
        """Number of in-sync replicas of each partition."""
        values = {"topics": [{"name": self.name}], "allow_auto_topic_creation": False}
        found = self._client.call(ApiKey.METADATA, 8, values)["topics"][0]["partitions"]
        return [len(each["isr_nodes"]) for each in sorted(found, key=lambda each: int(each["partition_index"]))]

    def keep_all(self) -> None:
        """Have it keep its records from now on."""
        self._client.keep_all(self.name)

    def reassign(self, replicas: Sequence[int]) -> None:
        """All partitions to these brokers. Returns when the controller has said yes."""
        rows = [{"partition_index": number, "replicas": replicas} for number in range(len(self.assignments))]
        values = {"timeout": 60_000, "topics": [{"name": self.name, "partitions": rows}]}
        answer = self._client.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, values)
        codes = [each["error_code"] for topic in answer["responses"] for each in topic["partitions"]]
        if answer["error_code"] or any(codes):
            raise RuntimeError(f"reassign {self.name}: {json.dumps(answer, default=str)}")

    def delete(self) -> None:
        self._client.delete_topic(self.name)
        self._client.close()
