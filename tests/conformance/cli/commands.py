"""Runs commands of the command line by the thousand: a process that has loaded all of it forks for each.

A fork differs from a process of its own in what was loaded before, which `test_cli_signals.py` looks at by itself.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CODES = {0, 1, 2, 3, 129, 130, 143}
"""The exit codes listed in `docs/reference/cli.md`."""
PATIENCE_S = 3.0
"""After which a command that goes on is asked to end: it follows, watches or serves."""
SERVES = re.compile(
    rb"^(ottla: listening on|ottla: schema registry at|ottla: console at|bootstrap:|\{\x22bootstrap\x22:) ",
    re.MULTILINE,
)
"""What a command prints that goes on until it is asked to end."""
LOOKS = 50
LOADED_LONG = (
    "duckdb", "httpx", "pyarrow.compute",
    "ottla.sql.topics", "ottla.pipelines.runner", "ottla.registry.server", "ottla.schemas.client",
    "ottla.simulation",
    "encodings.idna", "tomllib", "ottla.config.describe", "ottla.server.http.server", "ottla.testing.broker",
    "uvloop", "uvicorn.protocols.http.h11_impl", "ottla.registry.app", "ottla.registry.http_server",
    "ottla.console.app", "ottla.console.server",
    "cyclopts.help", "docstring_parser", "rich.markdown", "rich.panel", "rich.rule", "rich._emoji_codes",
    "httpcore", "certifi", "cryptography.x509", "ottla.pipelines.activity", "ottla.tail.agent", "ottla.cli.streams",
    "ottla.cli.sql.formats", "ottla.cli.sql.output", "ottla.sql.names", "ottla.cli.share.redrive",
    "ottla.cli.spark.archive", "ottla.cli.pipeline.view", "ottla.cli.pipeline.feed", "ottla.cli.pipeline.options",
    "ottla.cli.pipeline.new_tests", "ottla.mirror.mirror", "ottla.mirror.failback", "ottla.client.producer",
    "ottla.drivers.metadata.formatting", "ottla.protocol.internal.transaction_records",
)  # fmt: skip
"""Extras and what stands on them: it takes longer to load than most commands to run."""
END_S = 30.0
"""For a command to end that was asked to; its own limit is a third of that."""
NEVER = re.compile(r"Traceback|Exception ignored|internal error|in this program|SystemError|%\d\|")
"""Text that no user should see, such as librdkafka's own log lines."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended. A negative `code` is the signal that killed it."""

    argv: tuple[str, ...]
    code: int
    out: bytes
    err: str
    asked: int | None = None
    """The signal that asked it to end."""

    def __str__(self) -> str:
        return f"{' '.join(map(ascii, self.argv))[:600]}\n-> {self.code}\n{self.out[-600:]!r}\n{self.err[-2000:]}"


@dataclass
class Running:
    """A command under way, for `Commands.wait`."""

    argv: tuple[str, ...]
    pid: int
    out: IO[bytes]
    err: IO[bytes]

    def printed(self) -> bytes:
        """So far, to standard output where that is a file."""
        return os.pread(self.out.fileno(), 1 << 20, 0)


class Commands:
    """One at a time. As a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mine, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.cli.commands", str(theirs.fileno()), str(directory)],
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).resolve().parents[3],
            env={name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")},
        )
        theirs.close()
        self._mine.settimeout(END_S * 2)
        self._answers = self._mine.makefile("rb", buffering=0)
        self._answers.readline()

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *exc: object) -> None:
        self._mine.shutdown(socket.SHUT_RDWR)  # a failure's traceback may keep it open
        self._answers.close()
        self._mine.close()
        self._process.wait(END_S)

    def start(
        self,
        *argv: str,
        stdin: int | None = -1,
        stdout: int | None = -1,
        stderr: int | None = -1,
        env: Mapping[str, str] | None = None,
        file_bytes_max: int | None = None,
    ) -> Running:
        """Descriptors are lent: -1 is an empty input or a file, None a closed one."""
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        with open(os.devnull, "rb") as empty:
            places = [empty.fileno() if stdin == -1 else stdin]
            places += [out.fileno() if stdout == -1 else stdout, err.fileno() if stderr == -1 else stderr]
            given = [each for each in places if each is not None]
            order = {
                "argv": argv,
                "env": dict(env or {}),
                "open": [each is not None for each in places],
                "limit": file_bytes_max,
            }
            text = json.dumps(order).encode()
            self._mine.sendall(len(text).to_bytes(4, "big"))
            socket.send_fds(self._mine, [text], given)
            # What did not fit into the first message follows.
        pid = json.loads(self._answers.readline())["pid"]
        return Running(argv, pid, out, err)

    def wait(self, running: Running, *, asked: int | None = None, limit_s: float = END_S) -> Ended:
        """Raises AssertionError where it does not end."""
        self._mine.settimeout(limit_s)
        try:
            status = json.loads(self._answers.readline())["status"]
        except OSError:
            os.kill(running.pid, signal.SIGKILL)
            self._mine.settimeout(END_S)
            self._answers = self._mine.makefile("rb", buffering=0)  # one that has timed out reads nothing more
            self._answers.readline()
            raise AssertionError(f"does not end (signal {asked}): {running.argv}") from None
        finally:
            self._mine.settimeout(END_S * 2)
        code = os.waitstatus_to_exitcode(status)
        with running.out, running.err:
            running.err.seek(0)
            err = running.err.read().decode("utf-8", "surrogateescape")
            return Ended(running.argv, code, running.printed(), err, asked)

    def run(self, *argv: str, patience_s: float = PATIENCE_S, **how: Any) -> Ended:
        """Start, and after some patience ask for the end; a node is asked as soon as it serves."""
        running = self.start(*argv, **how)
        for _ in range(LOOKS):
            if self.ended_within(patience_s / LOOKS):
                return self.wait(running)
            if SERVES.search(running.printed()):
                break
        os.kill(running.pid, signal.SIGINT)
        return self.wait(running, asked=signal.SIGINT)

    def serves(self, running: Running) -> bool:
        """Wait until it says that it serves; False where it ends before, or says nothing for long."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline and not self.ended_within(0.02):
            if SERVES.search(running.printed()):
                return True
        return False

    def ended_within(self, limit_s: float) -> bool:
        import select

        return bool(select.select([self._mine], [], [], limit_s)[0])


def ensure_decent(ended: Ended, *, told: bool = True) -> None:
    """Check an end: a documented exit code, a sentence if it failed (`told`), no traceback."""
    assert ended.code in CODES, ended
    assert not NEVER.search(ended.err), ended
    assert not NEVER.search(ended.out.decode("utf-8", "replace")) or b"Traceback" in b" ".join(
        each.encode("utf-8", "surrogateescape") for each in ended.argv
    ), ended
    for line in ended.err.splitlines():
        assert all(char.isprintable() for char in line), ended
    if ended.code in (1, 2, 3) and told:
        ensure_explained(ended)


def ensure_explained(ended: Ended) -> None:
    """One sentence and what to do, an object a line for programs."""
    lines = ended.err.split("\n")
    assert lines.pop() == "" and lines, ended
    before = ended.argv[: ended.argv.index("--")] if "--" in ended.argv else ended.argv
    if "--json" in before:
        for line in lines:
            assert set(json.loads(line)) == {"error", "hint", "exit_code"}, ended
        return
    assert lines[0].startswith("ottla: "), ended
    assert len(lines[0]) > len("ottla: ") + 3, ended
    assert all(line.startswith(("  ", "ottla: ")) for line in lines), ended


@functools.cache
def every_command() -> list[tuple[str, Any]]:
    """(`topic create`, its App) for all that can be typed."""
    from tools.cli_page import commands

    return [(name.removeprefix("ottla "), app) for name, app in commands()]


def arguments_of(app: Any) -> list[Any]:
    return [each for each in app.assemble_argument_collection(parse_docstring=True) if each.show]


def is_flag(argument: Any) -> bool:
    return argument.hint is bool


# The other side: what forks.


def _serve(control: socket.socket, directory: str) -> None:
    from ottla.cli.main import main

    _load_everything()
    gc.freeze()  # a command's collector would touch, and so copy, all that was loaded
    os.chdir(directory)
    control.sendall(b"{}\n")
    while True:
        head = control.recv(4, socket.MSG_WAITALL)
        if not head:
            return
        data, descriptors, _, _ = socket.recv_fds(control, int.from_bytes(head, "big"), 3)
        while len(data) < int.from_bytes(head, "big"):
            data += control.recv(int.from_bytes(head, "big") - len(data))
        pid = os.fork()
        if not pid:
            _command(main, json.loads(data), descriptors, control)
        for each in descriptors:
            os.close(each)
        control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        control.sendall(json.dumps({"status": os.waitpid(pid, 0)[1]}).encode() + b"\n")


def _load_everything() -> None:
    from ottla.cli.app import application

    application()
    import confluent_kafka.admin  # noqa: F401

    import ottla.cli.server.start
    import ottla.server.main  # noqa: F401

    for name in LOADED_LONG:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        from ottla.console.pages import Renderer

        Renderer(has_login=False, has_registry=False)  # compiles the console's templates: half a second of each start


def _command(main: Callable[[], int], order: Mapping[str, Any], descriptors: Sequence[int], control: Any) -> None:
    code = 70
    try:
        spare = [os.dup2(each, 50 + number) for number, each in enumerate(descriptors)]
        os.closerange(3, 50)
        os.closerange(53, 100)
        for number, is_open in enumerate(order["open"]):
            if is_open:
                os.dup2(spare[0], number)
                os.close(spare.pop(0))
            else:
                os.close(number)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(order["env"])
        if order["limit"] is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
        sys.argv = ["ottla", *order["argv"]]
        code = main()
        sys.stdout.flush()
    except BaseException:
        with contextlib.suppress(Exception):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def pool(directory: Path) -> Iterator[Commands]:
    """For a fixture."""
    with Commands(directory) as commands:
        yield commands


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
