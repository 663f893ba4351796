"""Kafka's command-line tools, many in one JVM: a tool call takes a tenth of a second instead of one.

Without a Java compiler each call starts a JVM of its own, with the same results.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from dataclasses import dataclass
from typing import IO

from peers.kafka import install, java, start_fast, tool
from tests.conformance.clients import build
from tests.oracle import RELEASE

TOOLS = "org.apache.kafka.tools"
LIMIT_S = 300


@dataclass(frozen=True)
class Printed:
    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        return self.out.splitlines()


class Shell:
    """`run` calls a tool; `close` ends the JVM."""

    def __init__(self, release: str = RELEASE) -> None:
        """The tools of a release; without one those of the Apache Kafka that the tests compare with."""
        self.release = release
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, name: str, *arguments: str, text: str = "", check: bool = True) -> Printed:
        """Call a tool by its class, below org.apache.kafka.tools unless the name says otherwise, and return what it
        printed. Raises AssertionError where it fails and `check` is set."""
        full = name if name.startswith(("org.", "kafka.")) else f"{TOOLS}.{name}"
        if shutil.which("javac") is None:
            done = tool(full, *arguments, input_text=text, check=False, release=self.release)
            printed = Printed(done.returncode, done.stdout, done.stderr)
        else:
            printed = self._ask(full, text, *arguments)
        if check:
            assert printed.status == 0, f"{name} {' '.join(arguments)}\n{printed.out}\n{printed.err}"
        return printed

    def _start(self) -> subprocess.Popen[bytes]:
        install(self.release)
        command = java("Shell", flags=start_fast(self.release), release=self.release)
        command[command.index("-cp") + 1] += f":{build.build(build.tools_of(self.release))}"
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def _ask(self, *words: str) -> Printed:
        if self.process is None or self.process.poll() is not None:
            self.process = self._start()
        process = self.process
        assert process.stdin and process.stdout
        parts = [word.encode() for word in words]
        process.stdin.write(struct.pack(">i", len(parts)) + b"".join(struct.pack(">i", len(p)) + p for p in parts))
        process.stdin.flush()
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            status = _int(process.stdout)
            return Printed(status, _text(process.stdout), _text(process.stdout))
        except EOFError:
            self.process = None
            raise RuntimeError(f"the JVM ended in {' '.join(words[:1] + words[2:])}") from None
        finally:
            limit.cancel()

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait(300)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _int(stream: IO[bytes]) -> int:
    return int(struct.unpack(">i", _exactly(stream, 4))[0])


def _text(stream: IO[bytes]) -> str:
    return _exactly(stream, _int(stream)).decode()
