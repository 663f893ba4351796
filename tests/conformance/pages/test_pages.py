"""The commands of README.md, docs/start.md and docs/production/backup.md, as a reader types them, in order."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing.process import reserve
from tests.conformance.pages.test_cluster_page import Reader

ROOT = Path(__file__).resolve().parents[3]
STEP = re.compile(
    r"^<!-- (?P<how>run|terminal|stop)(?:: (?P<name>\w+))? -->$(?:\n```(?P<language>\w*)\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
SERVES = re.compile(r"^ottla: listening on ", re.M)
BROKER, HTTP = "127.0.0.1:9092", "127.0.0.1:9404"
"""The addresses of the pages; other tests run beside these, so each is replaced by a free one."""


class NodeReader(Reader):
    """A reader with several terminals, each of which runs a node at the same address, one after the other."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.held = [reserve(0), reserve(0)]
        broker, http = (f"127.0.0.1:{each.getsockname()[1]}" for each in self.held)
        self.addresses = {BROKER: broker, HTTP: http}
        self.environ["OTTLA_BOOTSTRAP"] = broker

    def here(self, text: str) -> str:
        for written, used in self.addresses.items():
            text = text.replace(written, used)
        return text

    def terminal(self, name: str, command: str) -> None:
        command = self.here(command.strip())
        if "--config" not in command:  # the file says where
            command += f" --listen {self.addresses[BROKER]}"
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.directory,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.terminals[name] = process
        assert process.stdout is not None
        said = ""
        while not SERVES.search(said) and (line := process.stdout.readline()):
            said += line
        assert SERVES.search(said), f"{command}\n{said}"

    def python(self, text: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", self.here(text)],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    def close(self) -> None:
        super().close()
        for each in self.held:
            each.close()


@pytest.mark.parametrize(
    ("page", "steps_min"), [("docs/start.md", 8), ("docs/production/backup.md", 9)], ids=lambda value: str(value)
)
def test_the_commands_of_a_page(page: str, steps_min: int, tmp_path: Path) -> None:
    reader = NodeReader(tmp_path)
    steps = list(STEP.finditer((ROOT / page).read_text(encoding="utf-8")))
    try:
        for step in steps:
            if step["how"] == "terminal":
                reader.terminal(step["name"], step["text"])
            elif step["how"] == "stop":
                reader.stop(step["name"])
            elif step["language"] == "python":
                assert "hello from Python" in reader.python(step["text"])
            else:
                reader.run(reader.here(step["text"]))
        assert not reader.terminals
    finally:
        reader.close()
    assert len(steps) >= steps_min


def test_the_three_lines_of_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    install, lines = re.findall(r"^```\n(.*?)^```", readme, re.M | re.S)[:2]
    start = install.splitlines()[-1]
    reader = NodeReader(tmp_path)
    try:
        reader.terminal("node", start)
        *before, last = lines.splitlines()
        reader.run("\n".join(before))
        done = subprocess.run(
            ["bash", "-c", last], cwd=tmp_path, env=reader.environ, capture_output=True, text=True, timeout=120
        )
        assert done.stdout == "hello, log\n", done.stderr
        reader.terminals["node"].send_signal(signal.SIGINT)
        reader.stop("node")
    finally:
        reader.close()
