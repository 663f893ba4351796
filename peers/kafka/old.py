"""Releases of Apache Kafka that keep their cluster in ZooKeeper, on loopback: what `ottla migrate zookeeper` imports.

`python -m peers.kafka install` fetches them too, by the coordinates in `old.xml`. `OldBroker` runs one broker;
`old_tool` one of the release's own tools.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import struct
import subprocess
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from peers.kafka import CACHE, hold_port, wait_until_answering

OLD_RELEASES = {"3.9": "3.9.2", "2.8": "2.8.2"}
"""Release to the version of its jars."""

_LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_FLAGS = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


def old_home(release: str) -> Path:
    return CACHE.with_name(f"kafka-{release}")


def install_old(release: str) -> None:
    """Fetch the jars once; who comes meanwhile waits. Raises RuntimeError with what Maven said where it cannot."""
    home = old_home(release)
    home.mkdir(parents=True, exist_ok=True)
    log4j = home / "log4j.properties"
    if not log4j.exists():
        log4j.write_text(_LOG4J)
    if (home / "libs").is_dir():
        return
    if shutil.which("mvn") is None:
        raise RuntimeError("Maven is missing: it fetches Apache Kafka's jars; install the package maven")
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of threads, too: each has opened the file itself
        if not (home / "libs").is_dir():
            _fetch(home, release)


def _fetch(home: Path, release: str) -> None:
    part = home / "libs.part"
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(Path(__file__).with_name("old.xml")),
        f"-Dkafka.version={OLD_RELEASES[release]}",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={part}",
    ]
    maven = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if maven.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise RuntimeError(f"Maven could not fetch Apache Kafka's jars:\n{maven.stdout.strip()}")
    part.rename(home / "libs")


def old_java(release: str, class_name: str, *arguments: str, heap: str = "256m") -> list[str]:
    home = old_home(release)
    return [
        "java",
        *_FLAGS,
        f"-Xmx{heap}",
        f"-Dlog4j.configuration=file:{home / 'log4j.properties'}",
        "-cp",
        f"{home / 'libs'}/*",
        class_name,
        *arguments,
    ]


def old_tool(release: str, class_name: str, *arguments: str, check: bool = True, input_text: str = "") -> str:
    """What one of the release's tools prints. Raises CalledProcessError or TimeoutExpired."""
    install_old(release)
    command = old_java(release, class_name, *arguments)
    done = subprocess.run(command, input=input_text, text=True, capture_output=True, timeout=120, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{class_name} {' '.join(arguments)}: {done.stdout}\n{done.stderr}")
    return done.stdout


class OldBroker:
    """A broker with ZooKeeper. Stopped, it starts again on its directory; others may use the directory meanwhile."""

    def __init__(
        self,
        directory: Path,
        broker_id: int,
        zookeeper: str,
        release: str = "3.9",
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        """`settings` are laid over those of a broker in the clear; None leaves one out."""
        self.directory = directory
        self.broker_id = broker_id
        self.zookeeper = zookeeper
        self.release = release
        self.data = directory / "data"
        self.properties = directory / "zookeeper.properties"
        held = hold_port()
        weakref.finalize(self, held.close)
        self.port = int(held.getsockname()[1])
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None

    def write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
            **self.settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items() if value is not None))
        return self.properties

    def start(self) -> None:
        """Start, and do not wait: several may start at once."""
        install_old(self.release)
        command = old_java(self.release, "kafka.Kafka", str(self.write_properties()))
        with open(self.directory / "broker.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self, limit_s: float = 120) -> None:
        """Raises RuntimeError, with what the broker printed."""
        try:
            wait_until_answering("127.0.0.1", self.port, limit_s, self.process)
        except RuntimeError as error:
            self.kill()
            raise RuntimeError(f"{error}:\n{self.last_printed()}") from error

    def wait_controller(self, limit_s: float = 120) -> None:
        """Return once the broker has heard which one is the controller: mostly a tenth of a second after it answers,
        sometimes five. librdkafka's admin client, told of none, does not ask again for half a minute. Raises
        RuntimeError."""
        deadline = time.perf_counter() + limit_s
        while self._controller() < 0:
            if time.perf_counter() > deadline:
                raise RuntimeError(f"no controller after {limit_s} s:\n{self.last_printed()}")
            time.sleep(0.01)

    def _controller(self) -> int:
        """The id of the controller in the broker's answer to Metadata 1 (no topics), -1 for none."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0))
            _, _, brokers = struct.unpack(">iii", answer.read(12))
            for _ in range(brokers):
                _, length = struct.unpack(">ih", answer.read(6))
                answer.read(length + 4)
                (rack,) = struct.unpack(">h", answer.read(2))
                answer.read(max(rack, 0))
            return int(struct.unpack(">i", answer.read(4))[0])

    def last_printed(self, size: int = 3000) -> str:
        """The end of what it printed; nothing if it never started."""
        log = self.directory / "broker.log"
        return log.read_text(errors="replace")[-size:] if log.exists() else ""

    def terminate(self) -> None:
        """Ask for a clean shutdown, and do not wait: the last of several to go has nobody to hand over to."""
        if self.process is not None:
            self.process.terminate()

    def stop(self) -> None:
        """A clean shutdown."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
