"""`ottla pipeline run mirror` between two nodes, killed midway; then the hand-over and the way back as commands."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla import arrow
from ottla.errors import KafkaError
from ottla.testing import Broker
from tests.offsets import commit
from tests.spark.pipelines.pipeline_process import Command, has_read, is_done, ottla, set_
from tests.spark.pipelines.pipelines import wait_for

COUNT = 4000
KILLS = 4
SEED = os.environ.get("OTTLA_TEST_SEED", "8")
COLUMNS = ["partition", "key", "value", "timestamp"]


@pytest.fixture
def clusters() -> Iterator[tuple[str, str]]:
    with Broker(topics={"orders": 2}) as source, Broker() as destination:
        yield source.bootstrap, destination.bootstrap


def fill(bootstrap: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    for number in range(first, last):
        producer.produce("orders", f"order {number}", str(number), partition=number % 2)
    assert producer.flush(60) == 0


def records(bootstrap: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = arrow.read("orders", bootstrap, columns=COLUMNS).read_all().to_pylist()
    except KafkaError:  # not made yet
        return []
    return found


def next_record(bootstrap: str) -> bytes:
    """Where the group goes on in partition 0."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "shop", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign(consumer.committed([TopicPartition("orders", 0)], 30))
    message = consumer.poll(30)
    assert message is not None and message.error() is None
    consumer.close()
    return bytes(message.value() or b"")


def committed(bootstrap: str) -> int | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop"})
    (at,) = consumer.committed([TopicPartition("orders", 0)], 30)
    consumer.close()
    return at.offset if at.offset >= 0 else None


def done_in_spite_of_kills(*arguments: str) -> Any:
    """What a command prints in the end, which is killed at moments of all of its parts, as far as it lives so long."""
    dice = random.Random(SEED)
    for _ in range(KILLS):
        running = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, error = running.communicate(timeout=dice.uniform(0.2, 1.5))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            continue
        assert running.returncode == 0, (SEED, error)
        return json.loads(out)
    return ottla(*arguments)


@pytest.mark.nightly(
    "tests/spark/test_mirror.py::test_what_copies_is_killed_on_a_cluster_of_workers",
    "tests/conformance/mirror/test_mirror_faults.py::test_killed_again_and_again_while_records_come",
    "tests/conformance/mirror/test_mirror.py::test_a_group_that_moves_over_and_back_goes_on_at_the_exact_record",
)
@pytest.mark.usefixtures("spark")
def test_killed_handed_over_and_back(clusters: tuple[str, str], tmp_path: Path, monkeypatch: Any) -> None:
    source, destination = clusters
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    fill(source, 0, COUNT // 2)
    settings = {"from": source, "source": "a", "destination": "b", "topics": "orders", "groups": "shop"}
    arguments = ["-b", destination, "--master", "local[2]", *set_(settings)]
    command = Command("mirror", tmp_path, *arguments)
    command.until(has_read(100))
    assert command.end(signal.SIGKILL) == -signal.SIGKILL
    fill(source, COUNT // 2, COUNT - 1000)
    commit(source, "shop", {("orders", 0): 1234})

    # It goes on with one query while records come, shows how far it is, and takes groups along.
    command = Command("mirror", tmp_path, *arguments)
    command.until(is_done)
    fill(source, COUNT - 1000, COUNT)
    command.until(lambda status: is_done(status) and status["queries"][0]["rows"] >= 1000)
    wait_for(lambda: bool(committed(destination)))
    assert command.end(signal.SIGINT) == 130
    assert records(destination) == records(source) and len(records(source)) == COUNT
    assert next_record(destination) == next_record(source) == b"order 2468"
    command = Command("mirror", tmp_path, *arguments, "--once")
    command.until(lambda status: bool(status["state"] == "done"))
    assert command.ended() == 0
    assert records(destination) == records(source)

    common = ["--from", source, "-b", destination, "--name", "b", "--topics", "orders", "--groups", "shop"]
    lags = ottla("mirror", "status", "a", *common[:8])
    assert [(row["role"], row["lag_records"]) for row in lags] == [("mirror", 0)] * 2
    failover = ["mirror", "failover", "a", *common]
    cuts = done_in_spite_of_kills(*failover)
    assert ottla(*failover) == cuts
    fill(destination, COUNT, COUNT + 10)
    cut = next(row["begins"] for row in cuts if row["partition"] == 0)
    commit(destination, "shop", {("orders", 0): cut + 2})
    assert next_record(destination) == f"order {COUNT + 4}".encode()

    failback = ["mirror", "failback", "a", *common, "--finish"]
    back = done_in_spite_of_kills(*failback)
    assert (back["unmirrored"], back["finished"]) == (0, True)
    assert next_record(source) == f"order {COUNT + 4}".encode()
    values = [each["value"] for each in records(source)]
    assert sorted(values) == sorted(f"order {number}".encode() for number in range(COUNT + 10))
