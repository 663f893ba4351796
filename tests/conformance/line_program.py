"""A program asked line by line: one of Kafka's own classes in a JVM (`clients/tools/*Lines.java`), or a client."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence

import pytest

from peers.kafka import install, java
from peers.kafka.old import OLD_RELEASES, install_old, old_java
from tests.conformance.clients import build

MARK = "answer "
LIMIT_S = 300


class Program:
    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, line: str) -> tuple[str, list[str]]:
        """The answer, and what was written meanwhile."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        limit = threading.Timer(LIMIT_S, self.process.kill)
        limit.start()
        try:
            while not (said := self.process.stdout.readline()).startswith(MARK):  # its log is on the same stream
                assert said, f"the program ended at: {line}"
        finally:
            limit.cancel()
        answer, _, written = said.removeprefix(MARK).rstrip("\n").partition("|")
        return answer, written.split()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def java_program(class_name: str, release: str = "4.3") -> list[str]:
    """The command line of one of `clients/tools`, or of those of another release. Skips the test where there is no
    compiler for Java."""
    folder = build.tools_of(release)
    reason = build.missing(folder)
    if reason is not None:
        pytest.skip(reason)
    if release in OLD_RELEASES:
        install_old(release)
        command = old_java(release, class_name)
    else:
        install(release)
        command = java(class_name, release=release)
    command[command.index("-cp") + 1] += f":{build.build(folder)}"
    return command


class Lines(Program):
    def __init__(self, class_name: str, release: str = "4.3") -> None:
        """Skips the test where there is no compiler for Java."""
        super().__init__(java_program(class_name, release))
