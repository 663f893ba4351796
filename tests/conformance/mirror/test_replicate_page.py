"""The commands of docs/replicate.md, as a reader types them: two clusters, a mirror on Spark, there and back.

What only this finds: a command that the page has and the command line has not, or in another order than it can be used.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.pipelines.mirror import SETTINGS
from tests.conformance.mirror.mirrored import first, values
from tests.deploy.snippets import ROOT, snippets
from tests.node import NodeProcess
from tests.offsets import commit

PAGE = "docs/replicate.md"
TOPICS = ("orders", "payments")
PATIENCE_S = 240


def test_settings_of_the_page_are_those_of_the_pipeline() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    named = re.findall(r"--set\s+([a-z_]+)=", text)
    assert len(named) > 8
    assert not set(named) - {each.name for each in SETTINGS}


class Reader:
    """A user of both clusters. A and B of the page are their addresses here."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.a, self.b = (NodeProcess(directory / name) for name in "ab")
        self.steps = iter(snippets(PAGE))

    def command(self, line: str) -> list[str]:
        for name, node in (("A:9092", self.a), ("B:9092", self.b)):
            line = re.sub(rf"(?<![\w.]){name}", node.bootstrap, line)
        program, *words = shlex.split(line)
        assert program == "ottla", line
        return [sys.executable, "-m", "ottla.cli.main", *words]

    def begin(self) -> subprocess.Popen[bytes]:
        """The next block, which goes on."""
        name, text = next(self.steps)
        assert name == "mirror"
        with open(self.directory / "mirror.log", "wb") as log:
            return subprocess.Popen(
                self.command(text), cwd=self.directory, env=self.a.environment(), stdout=log, stderr=log
            )

    def run(self) -> str:
        """What the next block prints."""
        name, text = next(self.steps)
        assert not name
        said = ""
        for line in text.splitlines():
            done = subprocess.run(
                self.command(line),
                cwd=self.directory,
                env=self.a.environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            said += done.stdout
        return said

    def until_copied(self, mirror: subprocess.Popen[bytes], count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(values(self.b.bootstrap, TOPICS[0]) if self._is_there() else ()) < count:
            assert mirror.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.2)

    def _is_there(self) -> bool:
        return TOPICS[0] in AdminClient({"bootstrap.servers": self.b.bootstrap}).list_topics(timeout=30).topics

    def said(self) -> str:
        return (self.directory / "mirror.log").read_text()[-3000:]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    with reader.a, reader.b:
        yield reader


def _write(bootstrap: str, *what: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in TOPICS:
        for value in what:
            producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(60) == 0


@pytest.mark.nightly(
    "tests/conformance/mirror/test_mirror.py",
    "tests/conformance/mirror/test_replicate_page.py::test_settings_of_the_page_are_those_of_the_pipeline",
)
def test_a_reader_copies_fails_over_and_comes_back(reader: Reader) -> None:
    admin = AdminClient({"bootstrap.servers": reader.a.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        future.result(60)
    _write(reader.a.bootstrap, "1", "2", "3")
    commit(reader.a.bootstrap, "readers", {("orders", 0): 1})
    planned = reader.run()
    assert all(name in planned for name in TOPICS)
    mirror = reader.begin()
    try:
        reader.until_copied(mirror, 3)
        status = reader.run()
        assert all(name in status for name in TOPICS) and "SOURCE" in status
        cuts = reader.run()
        assert all(name in cuts for name in TOPICS)
        assert mirror.wait(PATIENCE_S) is not None
    finally:
        mirror.send_signal(signal.SIGKILL)
        mirror.wait()
    _write(reader.a.bootstrap, "never mirrored")
    _write(reader.b.bootstrap, "4", "5")
    reader.run()
    assert "never mirrored" in (reader.directory / "lost.jsonl").read_text()
    _write(reader.b.bootstrap, "6")
    reader.run()
    assert next(reader.steps, None) is None, "every block was run"
    assert values(reader.a.bootstrap, "orders") == [b"1", b"2", b"3", b"never mirrored", b"4", b"5", b"6"]
    assert first(reader.a.bootstrap, "readers", "orders") == b"2"
