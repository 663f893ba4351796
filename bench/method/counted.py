"""A node under Valgrind's callgrind, and work for it in bursts of one size, so that each count is repeatable."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.method.brokers import Ottla
from peers.kafka import free_port, wait_until_answering

WARM_BURSTS = 20
WINDOWS = 4
DISCARD_BYTES = 1 << 22


SLOW = {"ottla.log.slow.request.ms": "-1", "broker.session.timeout.ms": "3600000"}
"""Under Valgrind on a busy machine a request takes seconds: nothing is logged for it, and nobody is fenced."""


REQUESTS = "__pyx_pw_*CompiledConnection*buffer_updated"
"""The compiled function in which requests are received, handled and, where nothing has to be waited for, answered: as
Python calls it. What it calls has nearly the same name, and would end the count."""


class CountedOttla(Ottla):
    """A node under Valgrind's callgrind, which counts between `count(True)` and `count(False)`: everything, or one
    function of compiled code and what it calls. Timers and other threads then add nothing, so that a count repeats to
    a tenth of a percent."""

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        source: Path | None = None,
        *,
        function: str | None = None,
    ) -> None:
        super().__init__(directory, {**SLOW, **(settings or {})}, source)
        self._only = () if function is None else (f"--toggle-collect={function}",)

    def start(self) -> float:
        overrides = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        self.out = self.data.with_name(self.data.name + ".callgrind")
        self.process = subprocess.Popen(
            [
                "valgrind",
                "--tool=callgrind",
                "--instr-atstart=no",
                f"--callgrind-out-file={self.out}",
                *self._only,
                sys.executable,
                "-m",
                "ottla.cli.main",
                "server",
                "start",
                str(self.data),
                *overrides,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**self.environment, "PYTHONHASHSEED": "0"},
        )
        begin = time.perf_counter()
        wait_until_answering("127.0.0.1", self.port, 300, self.process)
        return time.perf_counter() - begin

    def listen_for_controllers(self) -> None:
        """Other brokers can register, at a listener that comes last."""
        address = f"127.0.0.1:{free_port()}"
        self.settings["listeners"] += f",CONTROLLER://{address}"
        self.settings |= {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"1@{address}"}

    def count(self, on: bool) -> None:
        self._control("-i", "on" if on else "off")

    def counted(self) -> int:
        """Instructions since the last call, in all threads."""
        before = set(self.out.parent.glob(self.out.name + "*"))
        self._control("-d")
        (dump,) = set(self.out.parent.glob(self.out.name + "*")) - before
        return totals(dump)

    @contextmanager
    def paused(self) -> Iterator[None]:
        os.kill(self.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def _control(self, *arguments: str) -> None:
        subprocess.run(["callgrind_control", *arguments, str(self.pid)], capture_output=True, check=True)


def totals(dump: Path) -> int:
    """The sum of a file of callgrind. Raises ValueError where it has none."""
    for line in dump.read_text().splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise ValueError(f"{dump.name} has no totals")


@dataclass
class Requests:
    """Requests in bursts: the next `in_flight` frames of each connection, all answered before the next burst."""

    frames: Sequence[Sequence[bytes]]
    """Frames of each connection, sent over and over: their number should be a multiple of `in_flight`."""
    in_flight: int
    answer_bytes_min: int = 0
    """A smaller answer is an error."""


class Burst(Protocol):
    """Work that is counted burst by burst."""

    units: int
    """By which the instructions of one are divided."""

    def burst(self) -> None: ...
    def close(self) -> None: ...


class _Client:
    def __init__(self, port: int, frames: Sequence[bytes], scratch: memoryview) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = frames
        self.next = 0
        self.scratch = scratch

    def ask(self, count: int) -> None:
        some = [self.frames[(self.next + number) % len(self.frames)] for number in range(count)]
        self.next += count
        self.socket.sendall(b"".join(some))

    def take(self, least: int) -> None:
        """Receive an answer and throw it away: the kernel does not even copy it. Raises RuntimeError if it is short."""
        left = int.from_bytes(self._exactly(4), "big")
        if left < least:
            raise RuntimeError(f"an answer of {left} bytes where {least} were due")
        while left:
            left -= self._require(self.socket.recv_into(self.scratch, min(left, DISCARD_BYTES), socket.MSG_TRUNC))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            self._require(len(part))
            data += part
        return data

    def _require(self, got: int) -> int:
        if got == 0:
            raise ConnectionError("the broker closed a connection")
        return got


class _Bursts:
    """`Requests` on connections to a node."""

    def __init__(self, node: CountedOttla, requests: Requests) -> None:
        scratch = memoryview(bytearray(DISCARD_BYTES))
        self._node = node
        self._requests = requests
        self._clients = [_Client(node.port, frames, scratch) for frames in requests.frames]
        self.units = requests.in_flight * len(self._clients)

    def burst(self) -> None:
        # How many of them the node finds ready in one turn decides what each costs: it finds them all.
        with self._node.paused() if len(self._clients) > 1 else nullcontext():
            for client in self._clients:
                client.ask(self._requests.in_flight)
        for client in self._clients:
            for _ in range(self._requests.in_flight):
                client.take(self._requests.answer_bytes_min)

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()


def count(node: CountedOttla, work: Requests | Burst, warm: int, counted: int) -> float:
    """User instructions per unit, of `counted` bursts after `warm` that are not counted.

    The least of some windows: clocks and the collection of garbage add to one now and then, and on a busy machine what
    is sent together comes in pieces.
    """
    bursts = _Bursts(node, work) if isinstance(work, Requests) else work
    try:
        for _ in range(warm):
            bursts.burst()
        node.count(True)
        node.counted()
        least = math.inf
        share = max(1, counted // WINDOWS)
        for _ in range(WINDOWS):
            for _ in range(share):
                bursts.burst()
            least = min(least, node.counted())
        node.count(False)
    finally:
        bursts.close()
    return least / (share * bursts.units)
