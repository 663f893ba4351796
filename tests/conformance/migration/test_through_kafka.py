"""docs/migration/through-kafka.md with real brokers of 3.9.2: from ZooKeeper by Kafka to KRaft (KIP-866), then Ottla.

`ottla check` writes and reads meanwhile. What no cheaper test finds: what Kafka 3.9 with KRaft answers to the check and
the walk, and whether Ottla starts on the directories of a cluster that once was in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient

from ottla.network import SystemNetwork
from ottla.znodes.cluster import CLUSTER_ID, MIGRATION, decode_cluster_id
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import NoNodeError
from peers.kafka.old import OldBroker, old_tool
from peers.zookeeper import ZooKeeperPeer
from tests.conformance.cli.test_check import Check
from tests.conformance.migration.test_real_import import wait_written

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "migration" / "through-kafka.md").read_text(encoding="utf-8")
PROPERTIES = re.findall(r"^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
CHECK = re.findall(r"^<!-- run -->\n```sh\n(ottla .*?)\n```", PAGE, re.MULTILINE)
CONTROLLER = 3001
REPLICATED = {
    "offsets.topic.replication.factor": "2", "transaction.state.log.replication.factor": "2",
    "inter.broker.protocol.version": "3.9", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}  # fmt: skip
STOP = """pid=$(cat {folder}/pid) || exit 0
kill -TERM "$pid" 2>/dev/null || exit 0
while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
"""
START = """pid=$(cat {folder}/pid) && kill -0 "$pid" 2>/dev/null && exit 0
setsid sh -c 'echo $$ >{folder}/pid; exec {python} -m ottla.cli.main server start --config {config} \
--set ottla.allow.open.listeners=true' >{folder}/ottla.log 2>&1 </dev/null &
"""


class Bridge:
    """Two brokers and a controller."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperPeer(directory / "zookeeper")
        self.connect = f"{self.zookeeper.connect}/kafka"
        self.controller = OldBroker(directory / str(CONTROLLER), CONTROLLER, self.connect)
        self.brokers = [OldBroker(directory / str(n), n, self.connect, settings=REPLICATED) for n in (1, 2)]
        self.bootstrap = ",".join(each.bootstrap for each in self.brokers)
        self.ended = threading.Event()
        self.reaper = threading.Thread(target=self._reap, daemon=True)

    @property
    def all(self) -> list[OldBroker]:
        return [*self.brokers, self.controller]

    def _reap(self) -> None:
        """Processes that a shell command stops are children of this one."""
        while not self.ended.wait(0.1):
            for each in self.all:
                if (process := each.process) is not None:
                    process.poll()

    def of_page(self, number: int) -> dict[str, str | None]:
        """Settings of the page, at the addresses of this cluster."""
        text = PROPERTIES[number].replace("zk1:2181,zk2:2181/kafka", self.connect)
        text = re.sub(r"3001@\S+", f"{CONTROLLER}@127.0.0.1:{self.controller.port}", text)
        text = text.replace("c1:9093", f"127.0.0.1:{self.controller.port}")
        return dict(line.split("=", 1) for line in text.split())  # type: ignore[misc]

    def znode(self, path: str) -> bytes | None:
        async def get() -> bytes | None:
            async with ZooKeeper(SystemNetwork(), self.connect, random=Random(1)) as client:
                try:
                    return (await client.get(path)).data
                except NoNodeError:
                    return None

        return asyncio.run(get())

    def run(self, node: OldBroker) -> None:
        node.start()
        node.wait_ready()
        assert node.process is not None
        (node.directory / "pid").write_text(str(node.process.pid))

    def restart(self, node: OldBroker, settings: dict[str, str | None]) -> None:
        node.stop()
        node.settings = {**node.settings, **settings}
        self.run(node)
        wait_in_sync(self.bootstrap)

    def ottla(self, command: str, rc: int = 0) -> str:
        words = command.replace("kafka-1:9092,kafka-2:9092", self.bootstrap).split(maxsplit=1)[1]
        done = subprocess.run(
            ["sh", "-c", f"exec {sys.executable} -m ottla.cli.main {words}"],
            cwd=self.directory,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=900,
            check=False,
        )
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout

    def __enter__(self) -> Bridge:
        self.zookeeper.start()
        self.reaper.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended.set()
        self.reaper.join()
        for each in self.all:
            pid = each.directory / "pid"
            each.kill()
            if pid.exists():  # maybe Ottla's by now
                subprocess.run(["kill", "-KILL", pid.read_text().strip()], stderr=subprocess.DEVNULL, check=False)
        self.zookeeper.kill()


def wait_in_sync(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=30)
        rows = [each for topic in found.topics.values() for each in topic.partitions.values()]
        if len(found.brokers) == 2 and rows and all(len(each.isrs) == len(each.replicas) for each in rows):
            return
        time.sleep(0.2)
    raise AssertionError("not in sync within three minutes")


@pytest.mark.nightly(
    "tests/unit/cli/migrate/test_walking.py",
    "tests/unit/cli/migrate/test_findings.py",
    "tests/conformance/drop_in/test_drop_in.py",
)
def test_from_zookeeper_through_kafka_to_ottla(tmp_path: Path) -> None:
    with Bridge(tmp_path) as cluster:
        for broker in cluster.brokers:
            cluster.run(broker)
        check = Check(cluster.bootstrap, "--seconds", "3000", "--rate", "100", "-r", "2", "--topic", "checked")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wait_written(check, admin)
        # 2. Controllers
        cluster_id = decode_cluster_id(cluster.znode(CLUSTER_ID) or b"")
        none = dict.fromkeys(("broker.id", "zookeeper.connect", *REPLICATED))
        cluster.controller.settings = {**none, **cluster.of_page(0)}
        properties = cluster.controller.write_properties()
        old_tool("3.9", "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties))
        cluster.run(cluster.controller)
        # 3. Brokers that know the controllers
        for broker in cluster.brokers:
            cluster.restart(broker, cluster.of_page(1))
        deadline = time.monotonic() + 120
        while json.loads(cluster.znode(MIGRATION) or b"{}").get("kraft_metadata_offset", -1) <= 0:
            assert time.monotonic() < deadline, "Kafka does not migrate"
            time.sleep(0.5)
        wait_written(check, admin)
        # 4. Brokers with KRaft
        for broker in cluster.brokers:
            cluster.restart(
                broker,
                {
                    "broker.id": None,
                    "node.id": str(broker.broker_id),
                    "zookeeper.connect": None,
                    "zookeeper.metadata.migration.enable": None,
                    "inter.broker.protocol.version": None,
                    "process.roles": "broker",
                    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                },
            )
        # 5. Controllers without ZooKeeper
        cluster.restart(cluster.controller, {"zookeeper.connect": None, "zookeeper.metadata.migration.enable": None})
        # 6. Ottla
        wait_written(check, admin)
        (command,) = CHECK
        assert "plan for" in cluster.ottla(command)
        for node in cluster.all:
            where = {"folder": node.directory, "python": sys.executable, "config": node.properties}
            (node.directory / "stop.sh").write_text(STOP.format(**where))
            (node.directory / "start.sh").write_text(START.format(**where))
        hooks = f"--stop 'sh {tmp_path}/{{node}}/stop.sh' --start 'sh {tmp_path}/{{node}}/start.sh'"
        said = cluster.ottla(f"ottla migrate walk --bootstrap {cluster.bootstrap} {hooks}")
        assert "all 3 nodes are ottla" in said
        wait_written(check, admin)
        check.process.send_signal(signal.SIGINT)
        _, report = check.result()
        assert report["sound"], report
