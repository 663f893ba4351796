"""A real Apache ZooKeeper 3.9.5 on loopback, alone or as an ensemble.

    with ZooKeeperPeer(directory) as peer:                 # peer.connect is "127.0.0.1:PORT"
    with ZooKeeperEnsemble(directory, 3) as ensemble:      # ensemble.connect names all, ensemble.leader() the leader

`python -m peers.zookeeper install` fetches the jars by the coordinates in `pom.xml`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers.kafka import ROOT, hold_port

CACHE = ROOT / ".cache" / "zookeeper"
LIBS = CACHE / "libs"

TICK_MS = 400
"""ZooKeeper's tick: a session ends after two of them at the earliest and twenty at the latest."""

SETTINGS = {
    "tickTime": str(TICK_MS),
    "initLimit": "20",
    "syncLimit": "10",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "forceSync": "no",  # these ensembles outlive killed processes, not a power loss
}

_JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-Djava.awt.headless=true")


def install() -> None:
    """Fetch the jars once. Raises RuntimeError with what Maven said where it cannot."""
    if LIBS.is_dir():
        return
    if shutil.which("mvn") is None:
        raise RuntimeError("Maven is missing: it fetches ZooKeeper's jars; install the package maven")
    CACHE.mkdir(parents=True, exist_ok=True)
    part = CACHE / f"libs.part{os.getpid()}"
    pom = Path(__file__).with_name("pom.xml")
    maven = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if maven.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise RuntimeError(f"Maven could not fetch ZooKeeper's jars:\n{maven.stdout.strip()}")
    try:
        part.rename(LIBS)
    except OSError:  # another process was faster
        shutil.rmtree(part)


class ZooKeeperPeer:
    """A server's process as a context manager. `connect` is its address. Stopped or killed, it starts again on its
    directory."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        number: int = 1,
    ) -> None:
        """`settings` are laid over `SETTINGS`, as in `zoo.cfg`; `flags` are for the JVM."""
        self.directory = directory
        self.number = number
        self.settings = {**SETTINGS, **(settings or {})}
        self.flags = flags
        held = hold_port(), hold_port(), hold_port()
        for each in held:
            weakref.finalize(self, each.close)
        self.port, self.quorum_port, self.election_port = (int(each.getsockname()[1]) for each in held)
        self.connect = f"127.0.0.1:{self.port}"
        self.members = ""
        """Lines of `zoo.cfg` that name the members of an ensemble; empty for a server that is alone."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def member(self) -> str:
        return f"server.{self.number}=127.0.0.1:{self.quorum_port}:{self.election_port}\n"

    def launch(self) -> None:
        """Start the process."""
        install()
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        lines = {"dataDir": str(data), "clientPort": str(self.port), "clientPortAddress": "127.0.0.1", **self.settings}
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()) + self.members)
        command = [
            "java",
            *_JVM_FLAGS,
            *self.flags,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            f"{LIBS}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(config),
        ]
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, *, ready_s: float = 60) -> None:
        """Start and wait until it serves. Raises RuntimeError if it does not."""
        self.launch()
        self.wait_ready(ready_s)

    def wait_ready(self, ready_s: float = 60) -> None:
        """Wait until it serves clients. Raises RuntimeError if it does not, and ends the process."""
        deadline = time.monotonic() + ready_s
        while not self.mode():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper does not serve at {self.connect}:\n{self.last_printed()}")
            time.sleep(0.02)

    def mode(self) -> str:
        """`standalone`, `leader`, `follower`; empty while it does not serve."""
        for line in self.four_letters("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def four_letters(self, word: str) -> str:
        """The answer to a four-letter word, such as `srvr`, `mntr`, `cons`; empty where nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                answer = b""
                while piece := connection.recv(65536):
                    answer += piece
                return answer.decode(errors="replace")
        except OSError:
            return ""

    def last_printed(self, size: int = 3000) -> str:
        """The end of what the server has printed since it was made."""
        return (self.directory / "server.log").read_text(errors="replace")[-size:]

    def stop(self) -> None:
        """A clean shutdown."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
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

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> ZooKeeperPeer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class ZooKeeperEnsemble:
    """Servers 1 to `count`; `peers` has each."""

    def __init__(self, directory: Path, count: int = 3, *, settings: Mapping[str, str] | None = None) -> None:
        self.peers = {
            number: ZooKeeperPeer(directory / f"zookeeper-{number}", settings=settings, number=number)
            for number in range(1, count + 1)
        }
        members = "".join(peer.member for peer in self.peers.values())
        for peer in self.peers.values():
            peer.members = members
        self.connect = ",".join(peer.connect for peer in self.peers.values())

    def start(self) -> ZooKeeperEnsemble:
        """Returns when every server serves. Raises RuntimeError."""
        try:
            for peer in self.peers.values():
                peer.launch()
            for peer in self.peers.values():
                peer.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def leader(self) -> int | None:
        """Number of the server that leads now."""
        return next((number for number, peer in self.peers.items() if peer.process and peer.mode() == "leader"), None)

    def wait_leader(self, ready_s: float = 60) -> int:
        """Wait for a leader. Raises RuntimeError where none comes."""
        deadline = time.monotonic() + ready_s
        while (found := self.leader()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the ensemble has no leader after {ready_s} s")
            time.sleep(0.02)
        return found

    def stop(self) -> None:
        for peer in self.peers.values():
            peer.kill()

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
