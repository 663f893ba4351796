"""How long a cluster of many partitions has no controller that decides, when the active one of three is killed.

Three processes that are only controllers begin with one snapshot, in Kafka's format, of a cluster that was never there:
its brokers are registered and unfenced, and never heard of. Fail-over ends with the first topic that is created.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench.method.clusters import pss_mb
from bench.method.compare import OURS, THEIRS, short
from bench.method.load import Client
from bench.method.three_nodes import wait_until
from bench.tables import Run, Section, table
from bench.workloads.controller import SIZES
from bench.workloads.controller import cluster as cluster_of
from ottla.drivers.metadata.directories import METADATA_DIRECTORY
from ottla.drivers.metadata.formatting import format_directories
from ottla.filesystem import OsFileSystem
from ottla.metadata.features import metadata_version
from ottla.metadata.image import MetadataImage
from ottla.metadata.writer import encode, image_records
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.quorum.snapshot import SnapshotId, write_snapshot
from peers.kafka import KafkaPeer, hold_port, new_cluster_id, voters_addresses

NODES = (1, 2, 3)
ROUNDS = {OURS: 7, THEIRS: 5}
HEAP = "2g"
EPOCH = 1
SETTINGS = {"broker.session.timeout.ms": str(24 * 3_600_000)}
"""Settings under which no broker is fenced meanwhile: another table has the cost of fencing."""
QUORUM = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}


def snapshot(image: MetadataImage) -> tuple[str, bytes]:
    """The name and the content of a snapshot with this image, of a quorum whose voters are in the settings."""
    level = metadata_version(image.features)
    values = [encode(record, level) for record in image_records(image)]
    data = b"".join(write_snapshot(values, epoch=EPOCH, last_timestamp=0, now=0))
    return SnapshotId(len(values) + 1, EPOCH).filename, data


class Controllers:
    """Three controllers on a new directory, formatted, not started."""

    ports: Mapping[int, int]

    def launch(self, node: int) -> None:
        raise NotImplementedError

    def process(self, node: int) -> subprocess.Popen[bytes] | None:
        raise NotImplementedError

    def kill(self, node: int) -> None:
        process = self.process(node)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for node in NODES:
            if self.process(node) is not None:
                self.kill(node)


class OttlaControllers(Controllers):
    def __init__(self, directory: Path, name: str, data: bytes) -> None:
        self._directory = directory
        self._held = {node: hold_port() for node in NODES}
        self.ports = {node: int(each.getsockname()[1]) for node, each in self._held.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        cluster_id = new_cluster_id()
        for node in NODES:
            path = str(directory / str(node))
            format_directories(OsFileSystem(), (path,), path, node, cluster_id, Random(node), 0)
            _place(directory / str(node), name, data)

    def launch(self, node: int) -> None:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self.ports.items())
        settings = {
            "process.roles": "controller",
            "node.id": node,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://127.0.0.1:{self.ports[node]}",
            "controller.quorum.voters": voters,
            **SETTINGS,
        }
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with open(self._directory / f"{node}.out", "ab") as output:
            self._processes[node] = subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", "server", "start", str(self._directory / str(node)), *sets],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )

    def process(self, node: int) -> subprocess.Popen[bytes] | None:
        return self._processes.get(node)

    def stop(self) -> None:
        super().stop()
        for each in self._held.values():
            each.close()


class KafkaControllers(Controllers):
    def __init__(self, directory: Path, name: str, data: bytes) -> None:
        cluster_id = new_cluster_id()
        self._peers = {
            node: KafkaPeer(
                directory / str(node),
                heap=HEAP,
                roles="controller",
                node_id=node,
                cluster_id=cluster_id,
                settings=SETTINGS,
            )
            for node in NODES
        }
        self.ports = {node: peer.controller_port for node, peer in self._peers.items()}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.ports.items())
        for peer in self._peers.values():
            peer.voters, peer.controllers = voters, voters_addresses(voters)
            peer.format()
            _place(peer.data, name, data)

    def launch(self, node: int) -> None:
        self._peers[node].launch()

    def process(self, node: int) -> subprocess.Popen[bytes] | None:
        return self._peers[node].process


def _place(directory: Path, name: str, data: bytes) -> None:
    metadata = directory / METADATA_DIRECTORY
    metadata.mkdir(exist_ok=True)
    (metadata / name).write_bytes(data)


_NAMES = (f"made-{number}" for number in itertools.count())


def decide(ports: Sequence[int]) -> int:
    """The port of the controller that created a topic; the others are asked until one does."""
    found: list[int] = []
    name = next(_NAMES)
    topic = {"name": name, "num_partitions": 1, "replication_factor": 3, "assignments": (), "configs": ()}

    def created() -> bool:
        for port in ports:
            with contextlib.suppress(OSError), contextlib.closing(Client(port)) as client:
                values = {"topics": [topic], "timeout": 60_000, "validate_only": False}
                code = client.call(ApiKey.CREATE_TOPICS, 7, values)["topics"][0]["error_code"]
                if code == 0:
                    found.append(port)
                    return True
        return False

    wait_until(created)
    return found[0]


def _all_follow(port: int) -> bool:
    """Whether every voter has all that the leader at `port` has."""
    with contextlib.closing(Client(port)) as client:
        partition: dict[str, Any] = client.call(ApiKey.DESCRIBE_QUORUM, 0, QUORUM)["topics"][0]["partitions"][0]
    ends = {each["log_end_offset"] for each in partition["current_voters"]}
    return len(partition["current_voters"]) == len(NODES) and ends == {partition["high_watermark"]}


def fail_over(side: Controllers) -> float:
    """Seconds from the kill of the active controller to the next decision. Ends when the killed one is back."""
    ports = dict(side.ports)
    active = next(node for node, port in ports.items() if port == decide(list(ports.values())))
    wait_until(lambda: _all_follow(ports[active]))
    others = [port for node, port in ports.items() if node != active]
    side.kill(active)
    begin = time.perf_counter()
    port = decide(others)
    took = time.perf_counter() - begin
    side.launch(active)
    wait_until(lambda: _all_follow(port))
    return took


def measured(side: Controllers, rounds: int, warm_up_s: float = 0.0) -> dict[str, Any]:
    begin = time.perf_counter()
    for node in NODES:
        side.launch(node)
    decide(list(side.ports.values()))
    start_s = time.perf_counter() - begin
    while time.perf_counter() - begin - start_s < warm_up_s:
        decide(list(side.ports.values()))
    times = [fail_over(side) for _ in range(rounds)]
    active = decide(list(side.ports.values()))
    pids = [process.pid for node, port in side.ports.items() if port == active and (process := side.process(node))]
    return {
        "start s": round(start_s, 2),
        "fail-over s": f"{short(statistics.median(times))} ({short(min(times))} to {short(max(times))})",
        "memory of the active MB": round(pss_mb(pids)),
        "rounds": rounds,
    }


@table("controller-failover", "three controllers, the active one killed, at 1,000 to 100,000 partitions")
def controller_failover(run: Run) -> Iterator[Section]:
    run.cool()
    rows = []
    for partitions, count in [each for each in SIZES if run.wants(f"{each[0]:,} partitions")]:
        name, data = snapshot(cluster_of(partitions, count))
        for kind, make in ((OURS, OttlaControllers), (THEIRS, KafkaControllers)):
            if kind not in run.sides:
                continue
            directory = run.base / f"controllers-{kind}-{partitions}"
            directory.mkdir()
            side: Controllers = make(directory, name, data)
            try:
                row = measured(side, min(ROUNDS[kind], 2 * run.rounds), run.first_warm_up_s)
            finally:
                side.stop()
                shutil.rmtree(directory, ignore_errors=True)
            rows.append({"partitions": partitions, "brokers": count, "side": kind, **row})
    note = (
        "A start is that of all three at once, from the snapshot, until a topic is created; a fail-over ends so, too."
    )
    yield Section("The active controller of three is killed", rows, note, "controller-failover")
