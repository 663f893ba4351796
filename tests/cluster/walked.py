"""Nodes of Apache Kafka that shell commands stop and start, as an operator's do, and Ottla on their directories.

Each node has a directory with `stop.sh`, which ends whatever runs there, and `start-kafka.sh` and `start-ottla.sh`;
all of them may be repeated. The software finds the files of the other one there.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ottla.testing.process import reserve
from peers.kafka import KafkaPeer, java, new_cluster_id, start_fast, voters_addresses, wait_until_answering
from tests.certificates import Authority, ssl_settings

REPLICATED = {
    "default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3", "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2", "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "3",
}  # fmt: skip
JAAS = "org.apache.kafka.common.security.{}LoginModule required {};"
NODE = 'username="node" password="node-secret"'
USER, PASSWORD = "load", "load-secret"
SCRAM = "SCRAM-SHA-512=[name={},password={}]"
LOGINS = {
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.internal.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": JAAS.format("scram.Scram", NODE),
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": JAAS.format("plain.Plain", f'{NODE} user_node="node-secret"'),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:ANONYMOUS",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL,CONTROLLER:SASL_SSL",
}
"""Clients of the user `load` have what ACLs give them; those without a login, on loopback, may do everything."""

READY_S = 300
"""Limit of the first start of all nodes, on a machine that does other things too."""

_STOP = """cd {folder}
pid=$(cat pid 2>/dev/null) || exit 0
kill -TERM "$pid" 2>/dev/null || exit 0
while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
"""
_START = """cd {folder}
pid=$(cat pid 2>/dev/null) && kill -0 "$pid" 2>/dev/null && exit 0
setsid sh -c 'echo $$ >pid; exec "$@"' sh {command} >>{name}.log 2>&1 </dev/null &
"""


class WalkedCluster:
    """Nodes 1 to 3 with both roles, or brokers 1 to 3 and controllers 11 to 13. As a context manager it is started as
    Kafka, and whatever runs at its end is killed."""

    def __init__(
        self,
        directory: Path,
        *,
        release: str = "4.4",
        separate: bool = False,
        dynamic: bool = False,
        secured: bool = False,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory, self.release, self.dynamic, self.secured = directory, release, dynamic, secured
        brokers, controllers = [1, 2, 3], [11, 12, 13] if separate else [1, 2, 3]
        self.nodes = sorted({*brokers, *controllers})
        cluster_id = new_cluster_id()
        self.peers = {
            node: KafkaPeer(
                directory / f"node-{node}",
                heap="384m",
                settings={**REPLICATED, **(settings or {})},
                node_id=node,
                cluster_id=cluster_id,
                release=release,
                roles=",".join(r for r, of in (("broker", brokers), ("controller", controllers)) if node in of),
            )
            for node in self.nodes
        }
        voters = ",".join(f"{node}@127.0.0.1:{self.peers[node].controller_port}" for node in controllers)
        self._held = {node: reserve(0) for node in brokers} if secured else {}
        self.internal = {node: f"127.0.0.1:{held.getsockname()[1]}" for node, held in self._held.items()}
        authority = Authority()
        self.authority_file = directory / "authority.pem"
        for node, peer in self.peers.items():
            peer.voters, peer.controllers = voters, voters_addresses(voters)
            if dynamic:
                peer.settings["controller.quorum.voters"] = None
                peer.settings["controller.quorum.bootstrap.servers"] = peer.controllers
            if secured:
                directory.mkdir(exist_ok=True)
                self.authority_file.write_text(authority.pem)
                listeners = (
                    [f"PLAINTEXT://{peer.bootstrap}", f"INTERNAL://{self.internal[node]}"] if node in brokers else []
                )
                advertised = ",".join(listeners) or None
                if node in controllers:
                    listeners.append(f"CONTROLLER://127.0.0.1:{peer.controller_port}")
                peer.settings |= {
                    **LOGINS,
                    "listeners": ",".join(listeners),
                    "advertised.listeners": advertised,
                    **ssl_settings(directory / f"tls-{node}", authority, authority.issue(f"node-{node}")),
                }
        self.addresses = {node: self.peers[node].bootstrap for node in brokers}
        self.bootstrap = ",".join(self.addresses.values())

    def script(self, node: int | str, name: str) -> str:
        """A shell command; with `{node}` for a node it is a template."""
        return f"sh {shlex.quote(str(self.directory))}/node-{node}/{name}.sh"

    def client(self) -> dict[str, str]:
        """librdkafka's settings for the user of the load."""
        if not self.secured:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": ",".join(self.internal.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority_file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def java_client(self) -> dict[str, str]:
        """The same for Java."""
        if not self.secured:
            return {}
        login = JAAS.format("scram.Scram", f'username="{USER}" password="{PASSWORD}"')
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
        }

    def __enter__(self) -> WalkedCluster:
        for held in self._held.values():
            held.close()
        users = []
        if self.secured:
            users = ["--add-scram", SCRAM.format("node", "node-secret"), "--add-scram", SCRAM.format(USER, PASSWORD)]
        try:
            for number, (node, peer) in enumerate(self.peers.items()):
                peer.format(*users, *self._voters(number, node))
                self._write_scripts(node)
                self._run(self.script(node, "start-kafka"))
            for node in self.addresses:
                try:
                    wait_until_answering("127.0.0.1", self.peers[node].port, READY_S, None)
                except RuntimeError as error:
                    raise RuntimeError(f"{error}:\n{self.said(node, 'kafka')}") from None
        except BaseException:
            self.stop()
            raise
        return self

    def _voters(self, number: int, node: int) -> Sequence[str]:
        if not self.dynamic:
            return ()
        controllers = [each for each in self.nodes if "controller" in self.peers[each].roles]
        if node not in controllers:
            return ("--no-initial-controllers",)
        ids = {each: f"{each:021d}A" for each in controllers}
        named = [f"{each}@127.0.0.1:{self.peers[each].controller_port}:{ids[each]}" for each in controllers]
        return ("--initial-controllers", ",".join(named))

    def _write_scripts(self, node: int) -> None:
        peer = self.peers[node]
        folder = shlex.quote(str(peer.directory))
        flags = start_fast(self.release)
        kafka = java("kafka.Kafka", str(peer.properties), heap=peer.heap, flags=flags, release=self.release)
        ottla = [sys.executable, "-m", "ottla.cli.main", "server", "start", "--config", str(peer.properties)]
        (peer.directory / "stop.sh").write_text(_STOP.format(folder=folder))
        for name, command in (("kafka", kafka), ("ottla", ottla)):
            text = _START.format(folder=folder, name=name, command=shlex.join(command))
            (peer.directory / f"start-{name}.sh").write_text(text)

    @staticmethod
    def _run(command: str) -> None:
        subprocess.run(["sh", "-c", command], check=True, timeout=300, stdin=subprocess.DEVNULL)

    def said(self, node: int, name: str) -> str:
        """The end of what the software has printed there."""
        path = self.peers[node].directory / f"{name}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def pids(self) -> dict[int, int]:
        found = {}
        for node, peer in self.peers.items():
            with contextlib.suppress(OSError, ValueError):
                found[node] = int((peer.directory / "pid").read_text())
        return found

    def stop(self) -> None:
        """Kill all."""
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids().values():
            while _runs(pid):
                time.sleep(0.02)

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    return False
