"""Kafka Connect, distributed: two workers share the connectors of files, keep their state in topics, and hand over; and
a source that writes each record once (KIP-618)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from peers.kafka import LIBS, START_FAST, free_port, install, java
from tests.conformance.clients import build
from tests.conformance.transactions.test_exactly_once import read_committed

FILE = "org.apache.kafka.connect.file.FileStream"
LIMIT_S = 300


class Worker:
    """A worker process and its REST address."""

    def __init__(self, bootstrap: str, group: str, folder: Path, number: int, **more: str) -> None:
        install()
        self.rest = f"http://127.0.0.1:{free_port()}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"connect-{group}",
            "listeners": self.rest,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": f"{group}-configs",
            "offset.storage.topic": f"{group}-offsets",
            "status.storage.topic": f"{group}-status",
            "offset.storage.partitions": "3",
            **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        path = folder / f"worker-{number}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        connectors = next(build.build("java").glob("libs/connect-file-*.jar"))
        command = java("org.apache.kafka.connect.cli.ConnectDistributed", str(path), heap="256m", flags=START_FAST)
        command[command.index("-cp") + 1] = f"{LIBS}/*:{connectors}"
        self.log = folder / f"worker-{number}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """None where it does not answer yet, or is rebalancing."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.rest}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read() or b"true")
        except (urllib.error.URLError, ConnectionError):
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return None

    def stored(self, connector: str, name: str) -> int | None:
        """The one offset of a connector."""
        found = (self.ask(f"/connectors/{connector}/offsets") or {}).get("offsets")
        return int(found[0]["offset"][name]) if found else None

    def workers(self) -> int:
        """How many have a task or a connector."""
        status = self.ask("/connectors?expand=status") or {}
        parts = [part for each in status.values() for part in (each["status"]["connector"], *each["status"]["tasks"])]
        if not parts or any(part["state"] != "RUNNING" for part in parts) or len(parts) != 4:
            return 0
        return len({part["worker_id"] for part in parts})


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


@pytest.fixture
def workers(bootstrap: str, topic: str, tmp_path: Path) -> Iterator[list[Worker]]:
    if reason := build.missing("java"):
        pytest.skip(reason)
    started = [Worker(bootstrap, topic, tmp_path, number) for number in range(2)]
    yield started
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.matrix
@pytest.mark.client(
    "Kafka Connect",
    "two distributed workers: a file into a topic and from there into a file",
    "one worker is killed: the other takes over and goes on at the stored offsets (exactly-once off)",
)
def test_connect_copies_a_file_through_a_topic(workers: list[Worker], topic: str, tmp_path: Path) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"line {n}\n" for n in range(500)))
    first, second = workers
    connectors = {
        "source": {"connector.class": f"{FILE}SourceConnector", "tasks.max": "1", "file": str(source), "topic": topic},
        "sink": {"connector.class": f"{FILE}SinkConnector", "tasks.max": "1", "file": str(sink), "topics": topic},
    }
    for each in workers:
        until(lambda each=each: each.ask("/"), "a worker does not answer")
    for name, config in connectors.items():
        until(lambda name=name, config=config: first.ask(f"/connectors/{name}/config", config, "PUT"), f"no {name}")
    until(lambda: first.workers() == 2, "the workers do not share the connectors")

    def lines() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    until(lambda: len(lines()) >= 500, "not all lines came")
    assert lines() == [f"line {n}" for n in range(500)]
    until(lambda: first.stored("source", "position") == source.stat().st_size, "the source's offset is not stored")
    until(lambda: first.stored("sink", "kafka_offset") == 500, "the sink's offset is not stored")
    first.process.kill()
    first.process.wait()
    with open(source, "a") as more:
        more.write("".join(f"line {n}\n" for n in range(500, 600)))
    until(lambda: second.workers() == 1, "nobody took over")
    until(lambda: len(lines()) >= 600, "the new lines did not come")
    assert lines() == [f"line {n}" for n in range(600)]


class Growing:
    """A file to which a thread appends a line every few milliseconds."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        path.touch()
        self._thread.start()

    def _write(self) -> None:
        with open(self._path, "a") as file:
            while not self._end.wait(0.005):
                file.write(f"{self.count}\n")
                file.flush()
                self.count += 1

    def end(self) -> int:
        """How many lines there are."""
        self._end.set()
        self._thread.join()
        return self.count


@pytest.mark.matrix
@pytest.mark.client(
    "Kafka Connect",
    "an exactly-once source: workers and the node are killed -9 while it writes, each line is there once",
)
def test_an_exactly_once_source(tmp_path: Path) -> None:
    if reason := build.missing("java"):
        pytest.skip(reason)
    source, lines = tmp_path / "in.txt", Growing(tmp_path / "in.txt")
    config = {
        "connector.class": f"{FILE}SourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "exactly.once.support": "required",
    }
    with Broker(topics={"lines": 1}) as broker, ExitStack() as running:

        def worker(number: int) -> Worker:
            started = Worker(broker.bootstrap, "once", tmp_path, number, exactly_once_source_support="enabled")
            running.callback(started.process.wait)
            running.callback(started.process.kill)
            until(lambda: started.ask("/"), "a worker does not answer")
            return started

        def goes_on() -> None:
            begin = len(read_committed(broker.bootstrap, "lines"))
            until(lambda: len(read_committed(broker.bootstrap, "lines")) > begin + 50, "nothing is written")

        workers = {each.rest.removeprefix("http://"): each for each in (worker(0), worker(1))}
        any_of_them = next(iter(workers.values()))
        until(lambda: any_of_them.ask("/connectors/source/config", config, "PUT"), "no connector")
        goes_on()
        tasks = until(lambda: (any_of_them.ask("/connectors/source/status") or {}).get("tasks"), "no task")
        workers.pop(tasks[0]["worker_id"]).process.kill()
        goes_on()
        broker.kill()
        broker.restart()
        goes_on()
        workers.popitem()[1].process.kill()
        worker(2)
        goes_on()
        count = lines.end()
        until(lambda: len(read_committed(broker.bootstrap, "lines")) >= count, "not all lines came")
        assert [int(each) for each in read_committed(broker.bootstrap, "lines")] == [*range(count)]
