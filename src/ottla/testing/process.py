"""The process of a `Broker`, and what has to be given back with it: directory, port, file of what it printed.

The two processes are joined by a socket pair. Over it goes what the node is to be, a line of JSON; back comes where it
listens, or why it does not start. Without another word it is the sign of life: when this end is shut, or this process
is gone however abruptly, the node stops and removes its temporary directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ANSWER_SECONDS_MAX = 30.0
"""How long a start may take. It takes a fifth of a second; the rest is for machines that do much else."""
STOP_SECONDS_MAX = 15.0
OUTPUT_BYTES_MAX = 16 << 10
"""How much of the end of what a node printed goes into an exception."""

_CHILD = str(Path(__file__).with_name("child.py"))


class BrokerError(RuntimeError):
    """The node did not start, died, or refused; the text ends with what it printed."""


class Process:
    """One node, over all its restarts. Only the process that made it may use it: forks leave it alone."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topics: Sequence[Mapping[str, Any]],
        keep: Path | None,
        port: int,
        cluster_id: str | None = None,
    ) -> None:
        """`cluster_id` is that of a node of several. Raises BrokerError if the port is taken."""
        self.owner = os.getpid()
        self.expected_end = False
        """Whether the end of the process was asked for."""
        self._settings = settings
        self._topics = topics
        self._cluster_id = cluster_id
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._answers: IO[bytes] | None = None
        self._reserved = None if "listeners" in settings else reserve(port)
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # The node makes it, and so can remove it whatever happens here.
        self._temporary = None if keep else os.path.join(tempfile.gettempdir(), f"ottla-{os.urandom(8).hex()}")
        self.data = keep or Path(str(self._temporary), "data")
        if "log.dirs" not in settings and "," in str(self.data):
            self.finish()
            what = "a data directory with a comma in its path is two directories for Kafka's log.dirs"
            raise BrokerError(f"{what}: {self.data}; give another with keep= or TMPDIR")

    def start(self) -> str:
        """Run the process; returns the address once it serves. Raises BrokerError."""
        self.launch()
        return self.ready()

    def launch(self) -> None:
        """Run the process, which `ready` waits for. Raises BrokerError."""
        self._close_control()
        here, there = socket.socketpair()
        self._control, self._answers = here, here.makefile("rb")
        here.settimeout(ANSWER_SECONDS_MAX)
        with there:
            # A session of its own: Ctrl-C is for the tests, which stop the node in their own time.
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", _CHILD],
                    stdin=there.fileno(),
                    stdout=self._output,
                    stderr=self._output,
                    start_new_session=True,
                )
            except OSError as error:  # an interpreter that is embedded in another program is not there to be run
                what = f"cannot run Python as {sys.executable!r} (sys.executable): {error.strerror}"
                raise BrokerError(what) from error
        self.expected_end = True
        self._tell(
            {
                "path": [os.path.abspath(entry) for entry in sys.path],
                "parent": os.getpid(),
                "settings": {"log.dirs": str(self.data), **self._settings, **self._listeners()},
                "topics": self._topics,
                "temporary": self._temporary,
                "cluster_id": self._cluster_id,
            }
        )

    def ready(self) -> str:
        """The address of a process that was launched, once it serves. Raises BrokerError."""
        answer = self._answer()
        if "error" in answer:
            self.wait()
            raise BrokerError(with_output(answer["error"], self.read_output()))
        self.expected_end = False
        return str(answer["bootstrap"])

    def _listeners(self) -> dict[str, str]:
        if self._reserved is None:
            return {}
        return {"listeners": f"PLAINTEXT://127.0.0.1:{self._reserved.getsockname()[1]}"}

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One line there, one line back. Raises BrokerError if the process dies or takes too long."""
        self._tell(request)
        return self._answer()

    def _tell(self, request: Mapping[str, Any]) -> None:
        assert self._control is not None
        with contextlib.suppress(ConnectionError):  # the answer says so
            self._control.sendall(json.dumps(request).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        assert self._answers is not None
        try:
            line = self._answers.readline()
        except TimeoutError:
            self.kill()
            what = f"the node did not answer in {ANSWER_SECONDS_MAX:g} s"
            raise BrokerError(with_output(what, self.read_output())) from None
        except ConnectionError:
            line = b""
        if not line:
            raise BrokerError(with_output(f"the node died ({ending(self.wait())})", self.read_output()))
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def status(self) -> int | None:
        """None while the process runs. One that has hung up is at its end, which is waited for."""
        if self._process is None:
            return None
        status = self._process.poll()
        return self.wait() if status is None and self._hung_up() else status

    def _hung_up(self) -> bool:
        if self._control is None:
            return False
        readable = select.poll()
        readable.register(self._control, select.POLLIN)
        try:
            return bool(readable.poll(0)) and not self._control.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def wait(self) -> int:
        """The exit status, of a process that was told to end or is about to."""
        assert self._process is not None and self._control is not None and self._answers is not None
        self._control.settimeout(STOP_SECONDS_MAX)
        try:
            self._answers.read()  # until the other end is closed: waiting for a process with a time limit would poll
        except TimeoutError:
            self._process.kill()
        except OSError:
            pass
        return self._process.wait()

    def end(self) -> None:
        """Stop cleanly if it runs, and keep everything for the next start."""
        if self._process is not None and self._process.poll() is None:
            self.expected_end = True
            self._process.terminate()
            self.wait()

    def kill(self) -> None:
        assert self._process is not None
        self.expected_end = True
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def dismiss(self) -> None:
        """Have the node stop for good; `finish` waits for that. Does nothing in a fork of the process that made it."""
        if self.owner == os.getpid() and self._control is not None and self._process is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._control.shutdown(socket.SHUT_WR)  # the end for the node, even if forks have the socket open

    def finish(self) -> None:
        """Stop, and give everything back. Does nothing in a fork of the process that made it."""
        if self.owner != os.getpid():
            return
        self.dismiss()
        if self._control is not None and self._process is not None:
            self.wait()
        self._close_control()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        self._output.close()
        if self._reserved is not None:
            self._reserved.close()

    def _close_control(self) -> None:
        for each in (self._answers, self._control):
            if each is not None:
                each.close()
        self._answers = self._control = None

    def read_output(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        start = max(0, size - OUTPUT_BYTES_MAX)
        return os.pread(self._output.fileno(), OUTPUT_BYTES_MAX, start).decode(errors="replace")


def reserve(port: int) -> socket.socket:
    """A socket that is bound and never listens: nobody else is given its port, but the node can listen on it, whose
    socket too has SO_REUSEADDR. It is held over restarts. Raises BrokerError."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port))
    except OSError as error:
        held.close()
        raise BrokerError(f"port {port} cannot be used: {os.strerror(error.errno or 0).lower()}") from None
    return held


def ending(status: int | None) -> str:
    """An exit status in words."""
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def with_output(what: str, output: str) -> str:
    return f"{what}; it printed:\n{output.rstrip()}" if output.strip() else what
