"""A real Apache Kafka on loopback: one node in combined mode, and the tools that ship with it.

`python -m peers.kafka install` fetches the jars by the coordinates in `pom.xml`; `KafkaPeer` formats a directory and
runs a broker with the JVM flags of Kafka's own start script, so that the peer is at its best. Of two releases, as
`release` says: 4.3, and 4.4 that has no MirrorMaker, no shell and no examples of Streams.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = {"4.3": "4.3.0", "4.4": "4.4.0"}
"""Release to the version of its jars."""
CACHE = ROOT / ".cache" / "kafka"
LIBS = CACHE / "libs"
"""The jars of 4.3."""


def cache(release: str = "4.3") -> Path:
    """Where the jars of a release are, in `libs`, and what is made of them."""
    return CACHE if release == "4.3" else CACHE.with_name(f"kafka-{release}")


def start_fast(release: str = "4.3") -> tuple[str, ...]:
    """JVM flags where the start is waited for and the speed is not what is looked at. The archive has parsed classes
    of the tools (Java's class data sharing): they start in half the time."""
    return "-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={cache(release) / 'tools.jsa'}", "-Xshare:auto"


START_FAST = start_fast()

_LOG4J = """rootLogger.level=WARN
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
"""

_JVM_FLAGS = [
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
]  # fmt: skip


def install(release: str = "4.3") -> None:
    """Fetch the jars once. Raises RuntimeError with what Maven said where it cannot."""
    if not (cache(release) / "libs").is_dir():
        _fetch(release)
    if not (cache(release) / "tools.jsa").exists():
        _archive_classes(release)


def _fetch(release: str) -> None:
    home = cache(release)
    home.mkdir(parents=True, exist_ok=True)
    part = home / f"libs.part{os.getpid()}"
    pom = Path(__file__).with_name("pom.xml")
    if shutil.which("mvn") is None:
        raise RuntimeError("Maven is missing: it fetches Apache Kafka's jars; install the package maven")
    maven = subprocess.run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            f"-Dkafka.version={RELEASES[release]}",
            "dependency:copy-dependencies",
            f"-DoutputDirectory={part}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # also keeps the escape codes that Maven ends with off the terminal
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if maven.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise RuntimeError(f"Maven could not fetch Apache Kafka's jars:\n{maven.stdout.strip()}")
    (home / "log4j2.properties").write_text(_LOG4J)
    if (home / "libs").is_dir():
        shutil.rmtree(part)
    else:
        part.rename(home / "libs")


def _archive_classes(release: str) -> None:
    """Let a tool look for a broker that is not there, and keep the classes that it loaded. No archive, no harm."""
    part = cache(release) / f"tools.part{os.getpid()}.jsa"
    impatient = cache(release) / "impatient.properties"
    impatient.write_text("request.timeout.ms=400\ndefault.api.timeout.ms=500\n")
    nobody = f"127.0.0.1:{free_port()}"
    command = java(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        nobody,
        "--list",
        "--command-config",
        str(impatient),
        release=release,
        flags=["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={part}"],
    )
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
    if part.exists():
        part.replace(cache(release) / "tools.jsa")


def java(
    class_name: str, *arguments: str, heap: str = "512m", flags: Sequence[str] = (), release: str = "4.3"
) -> list[str]:
    """The command line that runs a class from the jars."""
    home = cache(release)
    return [
        "java",
        *flags,
        *_JVM_FLAGS,
        f"-Xmx{heap}",
        f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
        "-cp",
        f"{home / 'libs'}/*",
        class_name,
        *arguments,
    ]


def tool(
    class_name: str,
    *arguments: str,
    input_text: str | None = None,
    timeout_s: float = 300,
    check: bool = True,
    release: str = "4.3",
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end and capture what it prints. Raises CalledProcessError or TimeoutExpired."""
    install(release)
    command = java(class_name, *arguments, flags=start_fast(release), release=release)
    return subprocess.run(
        command, input=input_text or "", text=True, capture_output=True, timeout=timeout_s, check=check
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def hold_port() -> socket.socket:
    """A socket that is bound and never listens: nobody else is given its port, and a node, whose socket too has
    SO_REUSEADDR, can listen on it."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def new_cluster_id() -> str:
    """As `kafka-storage random-uuid` makes one."""
    return base64.urlsafe_b64encode(b"O" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def voters_addresses(voters: str) -> str:
    """Of `controller.quorum.voters`: what `controller.quorum.bootstrap.servers` wants."""
    return ",".join(each.partition("@")[2] for each in voters.split(","))


class KafkaPeer:
    """A node's process as a context manager: `bootstrap` is its address, `data` its log directory. A node that is only
    a controller is reached at `controllers` alone, one that is only a broker finds its controllers there.

    Stopped, its files and its `properties` can be handed on to another broker, and taken back with `start`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        heap: str = "1g",
        settings: Mapping[str, str | None] | None = None,
        flags: Sequence[str] = (),
        roles: str = "broker,controller",
        node_id: int = 1,
        voters: str | None = None,
        cluster_id: str | None = None,
        classes: Path | None = None,
        release: str = "4.3",
    ) -> None:
        """`settings` are laid over those of a single node; None leaves one out. `flags` are for the JVM.

        `voters` are the controllers of a cluster of several, as in `controller.quorum.voters`; without, it is alone.
        `classes` has plug-ins.
        """
        self.release = release
        self.classes = classes
        self.directory = directory
        self.roles = roles
        self.node_id = node_id
        self.cluster_id = cluster_id or new_cluster_id()
        self.data = directory / "data"
        self.properties = directory / "server.properties"
        self.heap = heap
        self.flags = [*flags]
        held = hold_port(), hold_port()  # also while it is formatted, and while it is down
        for each in held:
            weakref.finalize(self, each.close)
        self.port, self.controller_port = (int(each.getsockname()[1]) for each in held)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.voters = voters or f"{node_id}@127.0.0.1:{self.controller_port}"
        self.controllers = voters_addresses(self.voters)
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None

    def write_properties(self) -> Path:
        """The settings file, as `format` and `start` write it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        own = {
            "broker": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller": f"CONTROLLER://127.0.0.1:{self.controller_port}",
        }
        lines = {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voters,
            "listeners": ",".join(own[role] for role in self.roles.split(",")),
            "advertised.listeners": own["broker"] if "broker" in self.roles else None,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",  # records of tests have fixed timestamps of long ago
            **self.settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items() if value is not None))
        return self.properties

    def format(self, *arguments: str) -> None:
        """Format the log directories, as an operator does before the first start, with these `arguments` too."""
        path = self.write_properties()
        tool(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self.cluster_id,
            "-c",
            str(path),
            *arguments,
            release=self.release,
        )

    def start(self, *, ready_s: float = 300) -> None:
        """Start on the formatted directory and wait until the port answers. Raises RuntimeError if it does not."""
        self.launch()
        self.wait_ready(ready_s)

    def launch(self) -> None:
        """Start on the formatted directory."""
        path = self.write_properties()
        install(self.release)
        command = java("kafka.Kafka", str(path), heap=self.heap, flags=self.flags, release=self.release)
        if self.classes is not None:
            command[command.index("-cp") + 1] += f":{self.classes}"
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self, ready_s: float = 300) -> None:
        """Wait until the port answers. Raises RuntimeError if it does not, and ends the process."""
        try:
            port = self.port if "broker" in self.roles else self.controller_port
            wait_until_answering("127.0.0.1", port, ready_s, self.process)
        except RuntimeError as error:
            self.kill()
            raise RuntimeError(f"{error}:\n{self.last_printed()}") from error
        except BaseException:
            self.kill()
            raise

    def last_printed(self, size: int = 3000) -> str:
        """The end of what the node has printed since it was made."""
        return (self.directory / "server.log").read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """A clean shutdown."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End it as a crash of the process does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def __enter__(self) -> KafkaPeer:
        self.format()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


_API_VERSIONS_V0 = bytes.fromhex("0000000c 0012 0000 00000001 0002 6f74".replace(" ", ""))


def wait_until_answering(host: str, port: int, limit_s: float, process: subprocess.Popen[bytes] | None = None) -> float:
    """Seconds until an ApiVersions request is answered. Raises RuntimeError after `limit_s` or at the process's end."""
    start = time.perf_counter()
    while time.perf_counter() - start < limit_s:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the broker ended with status {process.returncode}")
        try:
            with socket.create_connection((host, port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS_V0)
                if len(connection.recv(8)) == 8:
                    return time.perf_counter() - start
        except OSError:
            pass
        time.sleep(0.002)
    raise RuntimeError(f"nothing answers at {host}:{port} after {limit_s} s")
