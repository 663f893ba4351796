"""`ottla tail` against a node: files that are rotated, truncated and deleted under load, agents and nodes killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.testing import Broker

ROOT = Path(__file__).parents[3]
DELIVERIES = ("at-least-once", "exactly-once")
END_S = 180


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Agent:
    """`ottla tail` in a process of its own."""

    def __init__(self, bootstrap: str, topic: str, work: Path, *arguments: str, delivery: str = DELIVERIES[0]) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "tail", *arguments, "--to", topic, "-b", bootstrap]
        command += ["--state", str(work / "state.json"), "--id", topic, "--delivery", delivery, "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def ended(self, stop: bool = True, code: int = 143) -> dict[str, Any]:
        if stop:
            self.process.terminate()
        out, err = self.process.communicate(timeout=END_S)
        assert self.process.returncode == (code if stop else 0), err.decode()
        summary: dict[str, Any] = json.loads(out)
        return summary


class Reader:
    """Values of a topic, committed ones only, as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.headers: list[dict[str, bytes]] = []
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def until(self, count: int, distinct: bool = True) -> list[bytes]:
        end_s = time.monotonic() + END_S
        while (len(set(self.values)) if distinct else len(self.values)) < count and time.monotonic() < end_s:
            self._read(0.2)
        return self.values

    def settle(self, quiet_s: float = 3.0) -> list[bytes]:
        """Until nothing comes any more."""
        while self._read(quiet_s):
            pass
        return self.values

    def _read(self, timeout_s: float) -> int:
        found: list[Any] = self._consumer.consume(5000, timeout_s)
        good = [each for each in found if each.error() is None]
        codes = {each.error().code() for each in found if each.error() is not None}
        # Codes below zero are librdkafka's own: of a node that is away.
        assert all(code == KafkaError.UNKNOWN_TOPIC_OR_PART or code < 0 for code in codes), codes
        self.values += [each.value() for each in good]
        self.headers += [dict(each.headers() or []) for each in good]
        return len(found)


def lines(first: int, last: int) -> list[bytes]:
    return [b"2026-11-25T08:00:00 line %07d " % number + b"x" * (number % 90) for number in range(first, last)]


def append(path: Path, *some: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(each + b"\n" for each in some))


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_follows_through_rename_truncation_and_deletion(node: Broker, tmp_path: Path, delivery: str) -> None:
    topic, log = f"rotated-{delivery}", tmp_path / "app.log"
    append(log, *lines(0, 1000))
    agent = Agent(node.bootstrap, topic, tmp_path, str(log), delivery=delivery)
    reader = Reader(node.bootstrap, topic)
    reader.until(1000)
    for number in range(3):  # rotations that come faster than the agent looks
        log.rename(tmp_path / f"app.log.{3 - number}")
        append(tmp_path / f"app.log.{3 - number}", *lines(1000 + number * 1000, 1500 + number * 1000))
        append(log, *lines(1500 + number * 1000, 2000 + number * 1000))
    reader.until(4000)
    (tmp_path / "app.log.9").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    append(log, *lines(4000, 5000))
    reader.until(5000)
    log.unlink()
    append(log, *lines(5000, 6000))
    reader.until(6000)
    assert Counter(reader.settle()) == Counter(lines(0, 6000))
    assert agent.ended()["records"] == 6000
    assert {each["file"] for each in reader.headers} == {os.fsencode(log)}


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_agent_and_node_are_killed(tmp_path: Path, delivery: str) -> None:
    """One log lies behind a link and is renamed, as a container's is; the other is copied and truncated."""
    rng, topic, total = random.Random(13), "killed", 60_000
    wanted = lines(0, total)
    for name in ("pods", "containers"):
        (tmp_path / name).mkdir()
    link, pod, log = tmp_path / "containers" / "x.log", tmp_path / "pods" / "0.log", tmp_path / "app.log"
    link.symlink_to("../pods/0.log")

    def rotate(number: int) -> None:
        pod.rename(f"{pod}.20261127-{number:06d}")
        copies = [Path(f"{log}.{age}") for age in range(1, number + 1)]
        for old, new in zip(reversed(copies[:-1]), reversed(copies), strict=False):
            old.rename(new)
        copies[0].write_bytes(log.read_bytes())
        os.truncate(log, 0)

    def write() -> None:
        for first in range(0, total, 500):
            append(pod if first % 1000 else log, *wanted[first : first + 500])
            if first % 15_000 == 14_500:
                rotate(first // 15_000 + 1)
            time.sleep(0.08)

    with Broker(keep=tmp_path / "node") as broker:
        writer = threading.Thread(target=write)
        writer.start()
        reader = Reader(broker.bootstrap, topic)
        for kill in range(5):
            agent = Agent(broker.bootstrap, topic, tmp_path, str(log), str(link), delivery=delivery)
            # One that has stored no position yet does not know later what it had begun with.
            reader.until(len(set(reader.values)) + 1)
            time.sleep(rng.uniform(1.0, 2.5))
            if kill == 2:
                broker.kill()
                time.sleep(1)
                broker.restart()
                time.sleep(2)
            agent.kill()
        writer.join()
        agent = Agent(broker.bootstrap, topic, tmp_path, str(log), str(link), delivery=delivery)
        reader.until(total)
        found = Counter(reader.settle(5))
        agent.ended()
    assert set(found) == set(wanted), f"{len(set(wanted) - set(found))} lost"
    if delivery == "exactly-once":
        assert found.total() == total


def test_once_unfinished_huge_and_multiline(node: Broker, tmp_path: Path) -> None:
    log = tmp_path / "java.log"
    trace = b"2026-11-25 ERROR Boom\n\tat a.b(C.java:1)\n\tat d.e(F.java:2)\nCaused by: x"
    log.write_bytes(trace + b"\n2026-11-25 INFO \xff\xfe fine\n2026-11-25 " + b"h" * 250 + b"\n2026-11-25 INFO end")
    arguments = ("--once", "--multiline-start", r"^\d{4}-", "--max-line-bytes", "100", "--flush-after", "0.2")
    summary = Agent(node.bootstrap, "java", tmp_path, str(log), *arguments).ended(stop=False)
    reader = Reader(node.bootstrap, "java")
    values = reader.until(6)
    assert values[:2] == [trace, b"2026-11-25 INFO \xff\xfe fine"]
    assert b"".join(values[2:5]) == b"2026-11-25 " + b"h" * 250
    assert values[5] == b"2026-11-25 INFO end"
    assert [each.get("partial") for each in reader.headers] == [None, None, b"true", b"true", None, None]
    assert summary["records"] == 6
    assert Agent(node.bootstrap, "java", tmp_path, str(log), "--once").ended(stop=False)["records"] == 0


def test_standard_input_to_its_end(node: Broker, tmp_path: Path) -> None:
    agent = Agent(node.bootstrap, "stdin", tmp_path, "-", "--format", "json", "--host", "h1")
    out, err = agent.process.communicate(b"one\ntwo\nthree", timeout=END_S)
    assert json.loads(out)["records"] == 3, err
    found = [json.loads(each) for each in Reader(node.bootstrap, "stdin").until(3)]
    assert [(each["host"], each["offset"], each["line"]) for each in found] == [
        ("h1", 0, "one"),
        ("h1", 4, "two"),
        ("h1", 8, "three"),
    ]


def test_idle_costs_next_to_nothing(node: Broker, tmp_path: Path) -> None:
    append(tmp_path / "a.log", *lines(0, 10))
    agent = Agent(node.bootstrap, "idle", tmp_path, str(tmp_path / "*.log"))
    Reader(node.bootstrap, "idle").until(10)
    before = _cpu_s(agent.process.pid)
    time.sleep(5)
    assert _cpu_s(agent.process.pid) - before < 0.25
    assert agent.ended()["records"] == 10


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
