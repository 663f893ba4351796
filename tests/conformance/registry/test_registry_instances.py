"""Several instances with one that writes: elected, killed, cut off; the registry beside a node."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from ottla.registry import records, store
from ottla.registry.records import Key
from ottla.registry.state import State
from ottla.testing import Broker, Registry

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(group_initial_rebalance_delay_ms=0) as started:
        yield started


class Process:
    """A command that serves a registry, in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = ""

    def wait_url(self) -> str:
        """Where it serves, from what it prints."""
        output: IO[str] | None = self.process.stdout
        assert output is not None
        printed = []
        for line in output:
            printed.append(line)
            if found := re.search(r"schema registry at (http://\S+?)(,|$)", line):
                self.url = found[1]
                threading.Thread(target=output.read, daemon=True).start()
                return self.url
        raise AssertionError("".join(printed))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)


@contextmanager
def started(*processes: Process) -> Iterator[list[Process]]:
    try:
        for each in processes:
            each.wait_url()
        yield list(processes)
    finally:
        for each in processes:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()


def instances(broker: Broker, count: int, name: str) -> list[Process]:
    common = ["-b", broker.bootstrap, "--listen", "127.0.0.1:0", "--topic", name, "--group", name]
    return [Process("registry", *common) for _ in range(count)]


def schema(name: str) -> dict[str, str]:
    return {"schema": json.dumps({"type": "enum", "name": name, "symbols": ["A"]})}


def register(url: str, name: str) -> httpx.Response:
    return httpx.post(f"{url}/subjects/{name}/versions", json=schema(name), timeout=LIMIT_S)


def eventually(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_all_instances_take_changes_and_give_ids_once(broker: Broker) -> None:
    with started(*instances(broker, 3, "three")) as found:
        answers: dict[str, httpx.Response] = {}

        def write(url: str, number: int) -> None:
            for n in range(10):
                name = f"S{number}_{n}"
                answers[name] = register(url, name)

        threads = [threading.Thread(target=write, args=(each.url, n)) for n, each in enumerate(found)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers.values()} == {200}
        assert sorted(answer.json()["id"] for answer in answers.values()) == list(range(1, 31))
        for each in found:  # whoever has answered has what it changed; the others follow
            eventually(lambda each=each: httpx.get(f"{each.url}/subjects").json() == sorted(answers))
        conflict = [httpx.delete(f"{each.url}/subjects/none").json()["error_code"] for each in found]
        assert conflict == [40401] * 3, "errors of the leader are passed on"


def test_an_instance_sees_what_it_has_passed_on(broker: Broker) -> None:
    with started(*instances(broker, 2, "read-back")) as found:
        for number in range(10):
            for each in found:
                name = f"S{number}_{found.index(each)}"
                assert register(each.url, name).status_code == 200
                assert httpx.get(f"{each.url}/subjects/{name}/versions").json() == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_leader_ends_and_another_is_elected(broker: Broker, number: int) -> None:
    with started(*instances(broker, 3, f"ended-{number}")) as found:
        written = ["first"]
        assert register(found[0].url, "first").status_code == 200
        for leader in found[:2]:  # whichever leads: one after the other ends until one is left
            code = leader.end(number)
            assert code == (0 if number == signal.SIGTERM else -number)
            left = found[found.index(leader) + 1 :]
            for each in left:
                name = f"after_{found.index(leader)}_{found.index(each)}"
                eventually(lambda each=each, name=name: register(each.url, name).status_code == 200)
                written.append(name)
        last = found[-1].url
        ids = [httpx.post(f"{last}/subjects/{name}", json=schema(name)).json()["id"] for name in written]
        assert sorted(ids) == list(range(1, len(written) + 1))


def test_who_lost_the_right_to_write_writes_nothing(broker: Broker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    topics = [store.Topic(settings, "fenced", State()) for _ in range(2)]
    try:
        for each in topics:
            each.open()
        old, new = store.Writer(topics[0]), store.Writer(topics[1])
        key = Key(records.CONFIG, "s")
        with pytest.raises(store.Fenced):
            old.write({key: b'{"compatibilityLevel":"NONE"}'})
        new.write({key: b'{"compatibilityLevel":"FULL"}'})
        for each in topics:
            each.wait_to_end()
            assert each.state.configs["s"] == {"compatibilityLevel": "FULL"}
    finally:
        for each in topics:
            each.close()


def test_two_that_ask_nobody_take_turns(broker: Broker) -> None:
    with Registry(broker.bootstrap, topic="turns") as one, Registry(broker.bootstrap, topic="turns") as other:
        ids = []
        for number in range(6):
            url = (one, other)[number % 2].url
            ids.append(register(url, f"S{number}").json()["id"])
        assert ids == [1, 2, 3, 4, 5, 6]


def test_a_broker_that_restarts(broker: Broker, tmp_path: Path) -> None:
    with (
        Broker(keep=tmp_path / "data", group_initial_rebalance_delay_ms=0) as mine,
        Registry(mine.bootstrap) as registry,
    ):
        assert register(registry.url, "before").json()["id"] == 1
        mine.kill()
        assert httpx.get(f"{registry.url}/schemas/ids/1").status_code == 200, "reads go on"
        mine.restart()
        eventually(lambda: register(registry.url, "after").status_code == 200)
        found = [httpx.post(f"{registry.url}/subjects/{each}", json=schema(each)) for each in ("before", "after")]
        assert [answer.status_code for answer in found] == [200, 200]


def test_a_topic_that_is_another(broker: Broker) -> None:
    broker.create_topic("many-partitions", 3, cleanup_policy="compact")
    broker.create_topic("not-compacted", 1)
    for name, said in (("many-partitions", "must have one partition"), ("not-compacted", "must be compacted")):
        command = [sys.executable, "-m", "ottla.cli.main", "registry", "-b", broker.bootstrap, "--topic", name]
        ended = subprocess.run([*command, "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=LIMIT_S)
        assert ended.returncode == 1
        assert said in ended.stderr


def test_the_registry_of_a_node(tmp_path: Path) -> None:
    node = Process(
        "server",
        "start",
        str(tmp_path / "data"),
        "--listen",
        "127.0.0.1:0",
        "--registry",
        "127.0.0.1:0",
        "--set",
        "group.initial.rebalance.delay.ms=0",
    )
    with started(node):
        assert register(node.url, "S").json()["id"] == 1
        assert node.end() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(node.url)


def test_the_registry_of_a_node_that_is_killed(tmp_path: Path) -> None:
    node = Process("server", "start", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    with started(node):
        os.kill(node.process.pid, signal.SIGKILL)

        def is_gone() -> bool:
            try:
                httpx.get(node.url, timeout=1)
            except httpx.TransportError:
                return True
            return False

        eventually(is_gone)
