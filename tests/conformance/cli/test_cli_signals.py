"""Ctrl-C, SIGTERM and SIGHUP at every stage of every command: imports, connecting, waiting, running, ending.

A stage is a place in the program or in the conversation with the broker, never a moment: the n-th event that Python
audits (an import, a file opened, a connection), or the n-th answer of the broker, which a proxy holds back.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import pty
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cli.commands import END_S, NEVER, Commands, ensure_decent, every_command, pool
from tests.conformance.cli.test_cli_hostile_values import VALID, furnish
from tests.node import NodeProcess

SEED = int(os.environ.get("OTTLA_TEST_SEED", "8"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EVERYTHING = os.environ.get("OTTLA_TEST_SIGNALS") == "all"
"""Every signal to every command while it starts, each time a process of its own; otherwise one that is drawn."""
ENDS_SO = {"server start", "group watch", "consume --follow"}
"""What a signal ends as it should: with 0; Ctrl-C ends a node that does not serve yet with 130."""

MAY_BE_DONE = {"tail": (0,)}
"""With nothing to send it ends without the answers that librdkafka asked for by itself."""

AT_AN_EVENT = """
import os, sys
from ottla.cli.main import main
wanted, number, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
about = os.environ.get("EVENTS_ABOUT", "")
count = 0
def hook(event, arguments):
    global count
    if event in ("import", "open", "socket.connect", "os.rename", "os.listdir", "os.scandir", "os.mkdir", "os.remove"):
        if about not in str(arguments[:1]):
            return
        count += 1
        if count == wanted:
            descriptor = os.open(mark, os.O_CREAT | os.O_WRONLY)
            os.close(descriptor)
            os.kill(os.getpid(), number)
sys.argv = ["ottla", *sys.argv[4:]]
sys.addaudithook(hook)
sys.exit(main())
"""
"""The interpreter's own start is before it, and not ours."""


def talks(name: str) -> bool:
    """By the signature: each worker asks at collection, and options with their help take half a second."""
    return "bootstrap" in inspect.signature(dict(every_command())[name].default_command).parameters


class Proxy:
    """Stands between clients and a node. Holds what the node says from its `held_from`-th answer on."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.node_port = 0
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._last, self._marker = threading.Event(), None
        self.reset(None)
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, held_from: int | None, *, dies: bool = False) -> None:
        """None lets all through; where it `dies`, connections are closed instead of held, and no more are taken.

        What an earlier command still had on its way is over then.
        """
        if self.node_port:
            self._last.clear()
            with socket.socket() as marker:
                marker.bind(("127.0.0.1", 0))
                self._marker = marker.getsockname()
                marker.connect(("127.0.0.1", self.port))
                assert self._last.wait(END_S)
        with self._lock:
            self.held_from, self.dies, self.answers = held_from, dies, 0
            self.reached = threading.Event()  # a thread of an earlier command sets the earlier one
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def _accept(self) -> None:
        while True:
            client, peer = self._listener.accept()
            if peer == self._marker:
                client.close()
                self._last.set()
                continue
            if self.dies and self.reached.is_set():
                client.close()
                continue
            if self.held_from == 0:
                self.reached.set()
            node = socket.create_connection(("127.0.0.1", self.node_port))
            with self._lock:
                self._sockets += [client, node]
                reached = self.reached
            threading.Thread(target=self._forward, args=(client, node), daemon=True).start()
            threading.Thread(target=self._answer, args=(node, client, reached), daemon=True).start()

    def _forward(self, client: socket.socket, node: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                node.sendall(data)
        for each in (client, node):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _answer(self, node: socket.socket, client: socket.socket, reached: threading.Event) -> None:
        with contextlib.suppress(OSError, struct.error):
            while True:
                head = node.recv(4, socket.MSG_WAITALL)
                body = node.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
                with self._lock:
                    if reached is not self.reached:  # an answer to an earlier command
                        break
                    self.answers += 1
                    hold = self.held_from is not None and self.answers > self.held_from
                    if hold:
                        reached.set()
                if hold and self.dies:
                    break
                if not hold:
                    client.sendall(head + body)
        for each in (client, node):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Before a node that sends its clients to the proxy."""
    found = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{found.port}"}
    with NodeProcess(tmp_path_factory.mktemp("behind") / "data", advertised) as node:
        found.node_port = node.port
        yield found


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, proxy: Proxy) -> Iterator[Commands]:
    for each in pool(tmp_path_factory.mktemp("signals")):
        furnish(each, f"127.0.0.1:{proxy.port}")
        yield each


@pytest.mark.parametrize("name", VALID)
def test_imports(name: str, tmp_path: Path, commands: Commands) -> None:
    """And the first steps after them, in a process of its own. Nobody listens at the address."""
    dice = random.Random(f"{SEED} {name}")
    fired = 0
    places = list(zip(SIGNALS, (1, dice.randrange(2, 40), dice.randrange(40, 250)), strict=True))
    wanted = places if EVERYTHING else [(dice.choice(SIGNALS), dice.choice(places)[1])]
    for number, place in wanted:
        mark = tmp_path / f"fired-{number}"
        argv = [*name.split(), *VALID[name]]
        process = subprocess.Popen(
            [sys.executable, "-c", AT_AN_EVENT, str(place), str(number), str(mark), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=commands.directory,
            env={**os.environ, "OTTLA_BOOTSTRAP": "127.0.0.1:1"},
        )
        try:
            out, err = process.communicate(timeout=END_S * 2)
        finally:
            process.kill()
        what = f"seed {SEED}, event {place}, signal {number}: {argv}\n-> {process.returncode}\n{out[-500:]}\n{err}"
        assert not NEVER.search(err), what
        if mark.exists():
            fired += 1
            stops = name in ("server start", "dev") and number != signal.SIGINT
            assert process.returncode == (0 if stops else 128 + number), what
        else:
            assert process.returncode in (0, 1, 3), what
            assert place >= 40, what
    assert fired >= (2 if EVERYTHING else 0)


SERVES = {"registry", "console"}
"""Until a signal, whether or not it has asked anything."""
ASKED = [name for name in VALID if talks(name) and name not in SERVES]
VARIANTS = {"consume": [[], ["--follow"], ["--group", "g2"], ["--group", "g3", "--follow"]]}
FOLLOWS = {"group watch": ["g"]}
"""Instead of the valid call, which ends by itself."""


@pytest.mark.parametrize("name", ASKED)
def test_while_a_broker_does_not_answer(name: str, commands: Commands, proxy: Proxy) -> None:
    """From the first answer on, and from a later one: held for ever, and a broker that dies in the middle."""
    dice = random.Random(f"{SEED} held {name}")
    env = {"OTTLA_BOOTSTRAP": f"127.0.0.1:{proxy.port}"}
    for variant in VARIANTS.get(name, [[]]):
        argv = [*name.split(), *FOLLOWS.get(name, VALID[name]), *variant]
        goes_on = "--follow" in variant or name in FOLLOWS
        for held_from in sorted({0, *dice.sample(range(1, 8), 2)}):
            number = dice.choice(SIGNALS)
            proxy.reset(held_from)
            running = commands.start(*argv, env=env)
            while not (reached := proxy.reached.wait(0.02)) and not commands.ended_within(0.0):
                pass
            if not reached:
                ended = commands.wait(running)
                ensure_decent(ended)
                continue
            os.kill(running.pid, number)
            ended = commands.wait(running, asked=number)
            what = f"seed {SEED}, from answer {held_from}, signal {number}, {ended}"
            assert not NEVER.search(ended.err), what
            # What was told before it came may be refused after all: a group that cannot be left, say.
            assert ended.code in ({0, 3} if goes_on else {128 + number, 3, *MAY_BE_DONE.get(name, ())}), what
    proxy.reset(dice.randrange(1, 4), dies=True)
    ended = commands.run(*argv, env=env, patience_s=0.5)
    ensure_decent(ended, told=ended.asked is None)
    proxy.reset(None)


@pytest.mark.parametrize(
    ("name", "held_from"), [("registry", 0), ("registry", 3), ("registry", None), ("console", 0), ("console", None)]
)
def test_a_server_ends(name: str, held_from: int | None, commands: Commands, proxy: Proxy) -> None:
    """While the broker does not answer from the start on, or stops to, or at its end."""
    for number in SIGNALS:
        proxy.reset(held_from)
        running = commands.start(name, *VALID[name], env={"OTTLA_BOOTSTRAP": f"127.0.0.1:{proxy.port}"})
        if held_from is None:
            assert commands.serves(running)
        else:
            assert proxy.reached.wait(30)
        os.kill(running.pid, number)
        ended = commands.wait(running, asked=number)
        assert ended.code in (0, 128 + number), (SEED, held_from, number, ended)
        assert not NEVER.search(ended.err), ended
    proxy.reset(None)


def test_a_broker_that_talks_nonsense(commands: Commands) -> None:
    """Frames of random bytes, lengths that cannot be, HTTP, nothing at all."""
    dice = random.Random(f"{SEED} nonsense")
    said = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", -5), struct.pack(">i", 0)]
    said += [struct.pack(">ii", 4 + size, 1) + dice.randbytes(size) for size in (0, 6, 200)]
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                    with client:
                        if client.recv(1 << 16):
                            client.sendall(what)
                except OSError:
                    if listener.fileno() < 0:
                        return

        what = b""
        threading.Thread(target=answer, daemon=True).start()
        env = {"OTTLA_BOOTSTRAP": f"127.0.0.1:{listener.getsockname()[1]}"}
        for what in said:  # noqa: B007
            for argv in (["consume", "t"], ["produce", "t", "x"], ["config", "get", "--topic", "t"]):
                ended = commands.run(*argv, env=env)
                ensure_decent(ended, told=ended.asked is None)
                assert ended.code in ({130} if ended.asked else {1, 3}), ended
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("number", SIGNALS)
def test_while_it_runs(number: int, commands: Commands, proxy: Proxy) -> None:
    """Following, watching, waiting for input, and for a reader that does not read."""
    proxy.reset(None)
    env = {"OTTLA_BOOTSTRAP": f"127.0.0.1:{proxy.port}"}
    for argv in (["consume", "t", "--follow"], ["consume", "t", "--follow", "--group", "g4"], ["group", "watch", "g"]):
        running = commands.start(*argv, env=env)
        while not running.printed():
            assert not commands.ended_within(0.02)
        os.kill(running.pid, number)
        ended = commands.wait(running, asked=number)
        assert (ended.code, ended.err) == (0, ""), ended

    read, write = os.pipe()
    running = commands.start("produce", "t", stdin=read, env=env)
    os.write(write, b"typed\n")
    follower = 0
    while follower < 1:
        ended = commands_output(proxy, b"typed")
        follower += ended
    os.kill(running.pid, number)
    ended = commands.wait(running, asked=number)
    os.close(read)
    os.close(write)
    assert ended.code == 128 + number, ended
    assert ended.out.startswith(b"1 record to t"), ended

    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    lines = commands.directory / "many"
    lines.write_text("".join(f"a line that has the number {n}\n" for n in range(3000)))
    assert commands.wait(commands.start("topic", "create", "many", "--if-not-exists", env=env)).code == 0
    assert commands.wait(commands.start("produce", "many", "--file", str(lines), env=env)).code == 0
    running = commands.start("consume", "many", stdout=write, env=env)
    while select.select([], [write], [], 0)[1]:
        assert not commands.ended_within(0.02)
    os.kill(running.pid, number)
    ended = commands.wait(running, asked=number)
    os.close(read)
    os.close(write)
    assert (ended.code, ended.err) == (128 + number, ""), ended


def commands_output(proxy: Proxy, wanted: bytes) -> int:
    """How often a value is in the topic."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "consume", "t", "--values-only", "-b", f"127.0.0.1:{proxy.port}"],
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines().count(wanted)


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, *argv: str, cwd: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._slave = slave
        self.before = termios.tcgetattr(slave)
        self.shown = b""

        def take() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=take,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm"},
        )

    def read_until(self, wanted: bytes) -> None:
        while wanted not in self.shown:
            assert self._more(), self.shown

    def _more(self) -> bool:
        if not select.select([self._master], [], [], END_S)[0]:
            return False
        self.shown += os.read(self._master, 1 << 16)
        return True

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def end(self) -> int:
        code = self.process.wait(END_S)
        while select.select([self._master], [], [], 0)[0]:
            self._more()
        return code

    def is_restored(self) -> bool:
        screen = self.shown.rfind(b"\x1b[?1049h") <= self.shown.rfind(b"\x1b[?1049l")
        cursor = self.shown.rfind(b"\x1b[?25l") <= self.shown.rfind(b"\x1b[?25h")
        return screen and cursor and self.before == termios.tcgetattr(self._slave)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.mark.parametrize("number", [None, *SIGNALS])
def test_the_terminal_is_as_it_was(number: int | None, commands: Commands, proxy: Proxy) -> None:
    proxy.reset(None)
    terminal = Terminal("group", "watch", "g", "-b", f"127.0.0.1:{proxy.port}", cwd=commands.directory)
    try:
        terminal.read_until(b"\x1b[?1049h")
        assert not terminal.is_restored()
        terminal.read_until(b"LAG")
        if number is None:
            terminal.press_ctrl_c()
        else:
            terminal.process.send_signal(number)
        assert terminal.end() == 0, terminal.shown
        assert terminal.is_restored(), terminal.shown
        assert b"Traceback" not in terminal.shown
    finally:
        terminal.close()


def test_the_terminal_is_restored_even_when_the_end_is_not_waited_for(commands: Commands, proxy: Proxy) -> None:
    """The broker holds its answers, so that the group's consumer cannot close; Ctrl-C until it ends."""
    proxy.reset(None)
    terminal = Terminal(
        "group", "watch", "g", "--interval", "0.05", "-b", f"127.0.0.1:{proxy.port}", cwd=commands.directory
    )
    try:
        terminal.read_until(b"LAG")
        proxy.reset(0)
        while terminal.process.poll() is None:
            terminal.press_ctrl_c()
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(0.5)
        assert terminal.end() in (0, 3, 130), terminal.shown
        assert terminal.is_restored(), terminal.shown
    finally:
        proxy.reset(None)
        terminal.close()


def test_a_node_that_starts_recovers_and_stops(tmp_path: Path, commands: Commands) -> None:
    """After a kill; whenever it is told to stop, it ends with 0, at Ctrl-C during its start with 130. The next start
    has every record.
    """
    node = NodeProcess(tmp_path / "data", {"log.retention.ms": "-1"})
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{n:0100}\n" for n in range(2000)))
    node.start()
    env = {"OTTLA_BOOTSTRAP": node.bootstrap}
    assert commands.wait(commands.start("topic", "create", "r", "--partitions", "20", env=env)).code == 0
    assert commands.wait(commands.start("produce", "r", "--file", str(lines), env=env)).code == 0
    node.kill()
    dice = random.Random(f"{SEED} node")
    fired = 0
    places = sorted({1, *dice.sample(range(2, 900), 7)})
    for number, place in zip(SIGNALS * 3, places, strict=False):
        data = tmp_path / f"data-{place}"
        shutil.copytree(node.data, data)
        mark = tmp_path / f"fired-{place}"
        argv = ["server", "start", str(data), "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [sys.executable, "-c", AT_AN_EVENT, str(place), str(number), str(mark), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            serves = bool(process.stdout.readline())
            if serves:
                for each in (number, number):  # twice: the second changes nothing
                    process.send_signal(each)
            out, err = process.communicate(timeout=END_S * 2)
        finally:
            process.kill()
        wanted = 130 if number == signal.SIGINT and not serves else 0
        assert process.returncode == wanted, f"seed {SEED}, event {place}, signal {number}\n{out}\n{err}"
        assert not NEVER.search(err), err
        fired += mark.exists()
        shutil.rmtree(data)
    assert fired >= len(places) // 2
    with NodeProcess(node.data) as again:
        ended = commands.wait(commands.start("consume", "r", env={"OTTLA_BOOTSTRAP": again.bootstrap}))
    assert sorted(ended.out.splitlines()) == sorted(lines.read_bytes().splitlines())


def test_a_repair_that_is_interrupted(tmp_path: Path, commands: Commands) -> None:
    """Killed or told to end at any place, the next one comes to the same files."""
    with NodeProcess(tmp_path / "data") as node:
        env = {"OTTLA_BOOTSTRAP": node.bootstrap}
        for _ in range(5):
            written = commands.start("produce", "r", "one", "two", "x" * 5000, "--create", env=env)
            assert commands.wait(written).code == 0
    log = node.data / "r-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4] = b"\xff\0\xff\0"
    log.write_bytes(data)

    def repaired(name: str) -> dict[str, bytes]:
        ended = commands.run("log", "repair", str(tmp_path / name), "--apply")
        assert ended.code == 0, ended
        files = (path for path in (tmp_path / name).rglob("*") if path.is_file() and "index" not in path.name)
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in files}

    shutil.copytree(node.data, tmp_path / "whole")
    wanted = repaired("whole")
    assert any(name.endswith(".cut") for name in wanted)
    dice = random.Random(f"{SEED} repair")
    fired = 0
    for place in sorted(dice.sample(range(1, 30), 10)):
        number = dice.choice((signal.SIGKILL, *SIGNALS))
        directory, mark = tmp_path / f"d{place}", tmp_path / f"fired-{place}"
        shutil.copytree(node.data, directory)
        command = [AT_AN_EVENT, str(place), str(number), str(mark), "log", "repair", str(directory), "--apply"]
        done = subprocess.run(
            [sys.executable, "-c", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "EVENTS_ABOUT": str(directory / "r-0")},
        )
        assert not NEVER.search(done.stderr), done
        fired += mark.exists()
        assert repaired(directory.name) == wanted, f"seed {SEED}, event {place}, signal {number}"
    assert fired >= 4


def test_two_nodes_on_one_directory(commands: Commands, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        ended = commands.run("server", "start", str(node.data), "--listen", "127.0.0.1:0")
        ensure_decent(ended)
        assert ended.code == 1 and str(node.data) in ended.err, ended
        ended = commands.run("server", "start", str(tmp_path / "other"), "--listen", node.bootstrap)
        ensure_decent(ended)
        assert ended.code == 1 and node.bootstrap in ended.err, ended
