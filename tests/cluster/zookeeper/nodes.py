"""Ottla's nodes on a real ensemble, each a process with a file of settings as a broker of Kafka 2.x has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peers.kafka import hold_port
from peers.zookeeper import ZooKeeperEnsemble

SESSION_TIMEOUT_MS = 4000
PATIENCE_S = 90.0
OTTLA = (sys.executable, "-m", "ottla.cli.main")


class NodesInZooKeeper:
    """Nodes 1 to `count` with an ensemble of their own; a context manager."""

    def __init__(self, directory: Path, count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.ensemble = ZooKeeperEnsemble(directory / "ensemble", settings={"tickTime": "1000"})
        self.connect = f"{self.ensemble.connect}/kafka"
        self.held = {number: (hold_port(), hold_port()) for number in range(1, count + 1)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for number in self.held:
            lines = {
                "broker.id": str(number),
                "zookeeper.connect": self.connect,
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                "zookeeper.connection.timeout.ms": "60000",  # the machine has other things to do
                "listeners": f"PLAINTEXT://{self.address(number)}",
                "log.dirs": str(directory / f"data-{number}"),
                "ottla.http.listener": f"127.0.0.1:{self._port(number, 1)}",
                "offsets.topic.replication.factor": "3",
                "offsets.topic.num.partitions": "5",
                "transaction.state.log.replication.factor": "3",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                **(settings or {}),
            }
            text = "".join(f"{name}={value}\n" for name, value in lines.items())
            self._file(number).parent.mkdir(parents=True, exist_ok=True)
            self._file(number).write_text(text)

    def _port(self, number: int, which: int) -> int:
        return int(self.held[number][which].getsockname()[1])

    def _file(self, number: int) -> Path:
        return self.directory / f"node-{number}.properties"

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._port(number, 0)}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.held))

    def __enter__(self) -> NodesInZooKeeper:
        self.ensemble.start()
        try:
            for number in self.held:
                self.start(number)
            self.await_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.ensemble.stop()

    def start(self, number: int) -> None:
        with open(self.directory / f"node-{number}.log", "ab") as log:
            self.processes[number] = subprocess.Popen(
                [*OTTLA, "server", "start", "--config", str(self._file(number))], stdout=log, stderr=log
            )

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def printed(self) -> str:
        """The end of what each node has printed."""
        return "\n".join((self.directory / f"node-{number}.log").read_text()[-3000:] for number in self.held)

    def ottla(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*OTTLA, *words, "-b", self.bootstrap], capture_output=True, text=True, check=False)

    def described(self) -> str:
        return self.ottla("cluster", "describe").stdout

    def controller(self) -> int:
        """The node that is the controller, once there is one."""
        found = self.await_that(lambda: re.search(r"led by node (\d+)", self.described()), "a controller")
        return int(found[1])

    def await_that(self, look: Callable[[], Any], what: str) -> Any:
        """What `look` gives, as soon as that is something."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE_S} s: {self.described()}\n{self.printed()}"
            time.sleep(0.1)
        return found

    def await_whole(self) -> None:
        """Until all brokers run and all replicas are in sync."""
        whole = f"{len(self.held)} brokers"
        self.await_that(
            lambda: (text := self.described()) and whole in text and " 0 offline, 0 under-replicated" in text,
            "whole cluster",
        )

    def health(self, number: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port(number, 1)}/health", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
