"""The commands of docs/production/cluster.md, as a reader types them in several terminals, from top to bottom."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import NodeProcess

ROOT = Path(__file__).resolve().parents[3]
STEP = re.compile(
    r"^<!-- (?P<how>run|terminal|stop)(?:: (?P<name>\w+))? -->$(?:\n```\n(?P<text>.*?)^```$)?", re.M | re.S
)
SERVES = re.compile(r"^(bootstrap: (?P<bootstrap>\S+)|ottla: node \d+ has joined.*)$", re.M)


class Reader:
    """A user with several terminals. `run`, `terminal` and `stop` are the steps of the page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.terminals: dict[str, subprocess.Popen[str]] = {}
        commands = directory / "bin"
        commands.mkdir()
        (commands / "ottla").write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
        (commands / "ottla").chmod(0o755)
        self.environ = NodeProcess(directory / "unused").environment()
        self.environ["PATH"] = f"{commands}:{self.environ['PATH']}"

    def run(self, text: str) -> None:
        for command in text.splitlines():
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.directory,
                env=self.environ,
                capture_output=True,
                text=True,
                timeout=300,
            )
            print(f"$ {command}\n{done.stdout[-3000:]}{done.stderr}")
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if "uniq -c" in command:
                assert done.stdout.strip() == "0", "the page says that nothing is missing"

    def terminal(self, name: str, command: str) -> None:
        """On free ports where the page has its own: other tests run beside this one."""
        command = command.strip()
        port = " --port 0" if " cluster up " in command else ""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}{port}"],
            cwd=self.directory,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.terminals[name] = process
        assert process.stdout is not None
        said, serves = "", None
        while serves is None and (line := process.stdout.readline()):  # it says first what it does
            said, serves = said + line, SERVES.match(line)
        assert serves, f"{command}\n{said}"
        if serves["bootstrap"]:
            self.environ["OTTLA_BOOTSTRAP"] = serves["bootstrap"]

    def stop(self, name: str) -> None:
        process = self.terminals.pop(name)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        print(f"{name}: {out}")
        assert process.returncode == 0, out

    def close(self) -> None:
        """End what is still running, in reverse order of start."""
        for process in reversed(self.terminals.values()):
            process.terminate()
            process.communicate(timeout=300)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.close()


def test_the_commands_of_the_page(reader: Reader) -> None:
    page = (ROOT / "docs" / "production" / "cluster.md").read_text(encoding="utf-8")
    steps = list(STEP.finditer(page))
    for step in steps:
        if step["how"] == "run":
            reader.run(step["text"])
        elif step["how"] == "terminal":
            reader.terminal(step["name"], step["text"])
        else:
            reader.stop(step["name"])
    assert not reader.terminals
    assert len(steps) > 15
