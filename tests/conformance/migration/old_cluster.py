"""A cluster with ZooKeeper whose directories Ottla takes over and gives back, with the same addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.testing.process import reserve
from peers.kafka.old import OldBroker
from peers.zookeeper import ZooKeeperPeer
from tests.node import NodeProcess

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migration" / "zookeeper.md"
COMMANDS = re.findall(
    r"^ *<!-- run -->\n *```sh\n *(ottla .*?)\n *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)
INITIAL = "--initial-controllers"

COMMON = {
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
}


class OldCluster:
    """`count` brokers of a release, and the nodes of Ottla that take their directories over."""

    def __init__(
        self, directory: Path, release: str, count: int, *, chroot: str = "/a/kafka", dynamic: bool = False
    ) -> None:
        """`dynamic`: Ottla's controllers may change while they run (KIP-853), from the import on."""
        self.zookeeper = ZooKeeperPeer(directory / "zookeeper")
        self.connect = f"{self.zookeeper.connect}{chroot}"
        self.release = release
        numbers = range(1, count + 1)
        self.held = [reserve(0) for _ in range(2 * count)]
        ports = [int(each.getsockname()[1]) for each in self.held]
        self.sasl, self.controllers = ports[:count], ports[count:]
        replicas = {
            name: str(count)
            for name in ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
        }
        self.brokers = [OldBroker(directory / f"n{n}", n, self.connect, release) for n in numbers]
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in zip(numbers, self.controllers, strict=True))
        self.first_voters = voters if dynamic else None
        quorum = {"controller.quorum.voters": voters}
        if dynamic:
            servers = ",".join(f"127.0.0.1:{port}" for port in self.controllers)
            quorum = {"controller.quorum.bootstrap.servers": servers}
        self.nodes: list[NodeProcess] = []
        self.configs: list[Path] = []
        key = "delegation.token.master.key" if release == "2.8" else "delegation.token.secret.key"
        for broker, sasl, controller in zip(self.brokers, self.sasl, self.controllers, strict=True):
            clients = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{sasl}"
            broker.settings = {
                **COMMON,
                **replicas,
                "listeners": clients,
                key: "token secret",
                "password.encoder.secret": "a secret",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "inter.broker.protocol.version": "2.7" if release == "2.8" else None,
            }
            config = directory / f"node-{broker.broker_id}.properties"
            settings = {
                **COMMON,
                **replicas,
                "process.roles": "broker,controller",
                "node.id": str(broker.broker_id),
                **quorum,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": clients,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "delegation.token.secret.key": "token secret",
                "log.dirs": str(broker.data),
            }
            directory.mkdir(parents=True, exist_ok=True)
            config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            self.configs.append(config)
            self.nodes.append(NodeProcess(directory / f"out-{broker.broker_id}", config=config, port=broker.port))
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait_ready()
            broker.wait_controller()

    def stop(self) -> None:
        """All at once, in order."""
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.stop()

    def start_ottla(self) -> None:
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.wait_ready()

    def stop_ottla(self) -> None:
        for node in self.nodes:
            assert node.process is not None
            node.process.terminate()
        for node in self.nodes:
            node.stop()

    def migrate(self, *arguments: str, configs: Sequence[Path] | None = None, rc: int = 0) -> str:
        """What the command of the page prints on its standard output, with a `--config` for each node of this host."""
        files = [part for path in (self.configs if configs is None else configs) for part in ("--config", str(path))]
        command = [*self._page_command(arguments[0])]
        arguments = arguments[1:]
        return self._run([*command, *arguments, *files], rc)

    def ottla(self, text: str) -> str:
        """What a command prints that asks the cluster."""
        return self._run([sys.executable, "-m", "ottla.cli.main", *text.split(), "-b", self.bootstrap], 0)

    def _run(self, command: Sequence[str], rc: int) -> str:
        environment = self.nodes[0].environment()
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout + (done.stderr if rc else "")

    def _page_command(self, mode: str) -> list[str]:
        """The one of docs/migration/zookeeper.md, for this ensemble; the page's own `--config` is left out."""
        dynamic = self.first_voters is not None and mode == "--execute"
        found = [text.split() for text in COMMANDS]
        (words,) = [each for each in found if mode in each and (INITIAL in each) == dynamic]
        assert words.pop(0) == "ottla"
        if dynamic:
            words[words.index(INITIAL) + 1] = str(self.first_voters)
        words[words.index("--connect") + 1] = self.connect
        if "--config" in words:
            at = words.index("--config")
            del words[at : at + 2]
        return [sys.executable, "-m", "ottla.cli.main", *words]

    def __enter__(self) -> OldCluster:
        self.zookeeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for broker in self.brokers:
            broker.kill()
            if kind is not None:
                print(f"broker {broker.broker_id} said:\n{broker.last_printed()}", file=sys.stderr)
        if kind is not None:
            print(f"ZooKeeper said:\n{self.zookeeper.last_printed()}", file=sys.stderr)
        for node in self.nodes:
            if node.process is not None:
                node.kill()
        self.zookeeper.kill()
