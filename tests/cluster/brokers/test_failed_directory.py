"""Three real brokers with two log directories each: one directory is gone under load, and later is replaced.

Where the controller cannot be told, the broker stops (`log.dir.failure.timeout.ms`, KIP-858).
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.protocol.messages import ApiKey
from tests.cluster.admin import ask, brokers, create, leaders, until
from tests.cluster.brokers.test_life import consume, produce
from tests.cluster.brokers.test_replication import SETTINGS, wait_in_sync
from tests.cluster.processes import BROKERS, QUICK, addresses, brokers_of, ottla_controller, three_brokers
from tests.node import NodeProcess

TOPIC = "t"
SMALL = {"log.segment.bytes": "1048576"}
"""A file that is open outlives its directory: the failure shows when the next segment is made."""


TIMEOUT_S = 3
"""Longer than a report takes on a busy machine, shorter than a broker's session here."""


def settings_of(_: int, data: Path) -> dict[str, str]:
    return {**SETTINGS, **SMALL, "log.dirs": f"{data}/a,{data}/b", "log.dir.failure.timeout.ms": str(TIMEOUT_S * 1000)}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[dict[int, NodeProcess]]:
    with three_brokers(tmp_path, settings_of) as nodes:
        yield nodes


def offline(node: NodeProcess) -> list[str]:
    """The directories that a broker says are offline."""
    answer = ask(node.bootstrap, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return [Path(each["log_dir"]).name for each in answer["results"] if each["error_code"]]


def fails(directory: Path) -> None:
    """Nothing can be made in it any more."""
    directory.rename(directory.with_name("gone"))
    directory.write_text("a disk that is no more")


def replace(data: Path, name: str) -> None:
    """Give a stopped broker an empty directory for the one that failed."""
    directory = data / name
    directory.unlink()
    shutil.rmtree(data / "gone")
    directory.mkdir()
    lines = (data / "a" / "meta.properties").read_text().splitlines(keepends=True)
    (directory / "meta.properties").write_text("".join(each for each in lines if not each.startswith("directory.id")))


def test_a_directory_is_gone_and_replaced(three: dict[int, NodeProcess]) -> None:
    assert create(three[1].bootstrap, TOPIC, 6, factor=3) == 0
    values = [f"first-{number}" for number in range(600)]
    produce(addresses(three), TOPIC, values)
    led = {number for number, (leader, _) in enumerate(leaders(three[1].bootstrap, TOPIC)) if leader == 2}
    lost = {int(path.name.rpartition("-")[2]) for path in (three[2].data / "b").glob(f"{TOPIC}-*")}
    kept = {int(path.name.rpartition("-")[2]) for path in (three[2].data / "a").glob(f"{TOPIC}-*")}
    assert lost and kept and led
    fails(three[2].data / "b")
    more = [f"second-{number}".ljust(6000, ".") for number in range(2000)]
    produce(addresses(three), TOPIC, more)
    until(lambda: offline(three[2]), lambda found: found == ["b"])
    until(
        lambda: leaders(three[1].bootstrap, TOPIC),
        lambda found: all(leader in (1, 3) for number, (leader, _) in enumerate(found) if number in lost),
    )
    assert brokers(three[1].bootstrap)[2] is False, "the other directory goes on"
    last = [f"third-{number}" for number in range(600)]
    produce(addresses(three), TOPIC, last)
    assert set(consume(addresses(three), TOPIC)) == {*values, *more, *last}, (
        "one may be there twice: it was tried again"
    )
    three[2].stop()
    replace(three[2].data, "b")
    three[2].start()
    wait_in_sync(three, TOPIC, *BROKERS)
    assert offline(three[2]) == []
    for node_id in (1, 3):  # what came back has everything
        three[node_id].stop()
    assert set(consume(three[2].bootstrap, TOPIC)) == {*values, *more, *last}


def test_a_broker_that_cannot_report_a_failed_directory_stops(tmp_path: Path) -> None:
    """Its controller does not answer, and comes back later: others lead then, and what was acknowledged is there."""
    controller = ottla_controller(tmp_path / "controller", QUICK)
    with controller, brokers_of(controller, tmp_path, settings_of) as three:
        assert create(three[1].bootstrap, TOPIC, 6, factor=3) == 0
        values = [f"first-{number}" for number in range(600)]
        produce(addresses(three), TOPIC, values)
        victim = three[2]
        assert list((victim.data / "b").glob(f"{TOPIC}-*"))
        assert controller.process is not None and victim.process is not None
        controller.process.send_signal(signal.SIGSTOP)
        try:
            fails(victim.data / "b")
            # Not acknowledged by those who cannot write it, and nobody can leave the in-sync replicas now.
            producer = Producer({"bootstrap.servers": addresses(three), "acks": 1, "linger.ms": 0})
            for number in range(2000):
                producer.produce(TOPIC, f"second-{number}".ljust(6000, "."), partition=number % 6)
                producer.poll(0)
            until(lambda: offline(victim), lambda found: found == ["b"])
            failed_s = time.monotonic()
            assert victim.process.wait(60) == 1
            assert time.monotonic() - failed_s > TIMEOUT_S / 2
        finally:
            controller.process.send_signal(signal.SIGCONT)
        victim.process = None
        said = victim.output.read_text()
        assert f"the controller could not be told in {TIMEOUT_S * 1000} ms that log directory" in said
        assert all(three[node_id].process.poll() is None for node_id in (1, 3)), "they had nothing to report"  # type: ignore[union-attr]
        until(
            lambda: leaders(three[1].bootstrap, TOPIC),
            lambda found: all(leader in (1, 3) for leader, _ in found),
        )
        producer.flush(60)
        last = [f"third-{number}" for number in range(600)]
        produce(",".join(three[node_id].bootstrap for node_id in (1, 3)), TOPIC, last)
        replace(victim.data, "b")
        victim.start()
        wait_in_sync(three, TOPIC, *BROKERS)
        for node_id in (1, 3):
            three[node_id].stop()
        assert set(consume(victim.bootstrap, TOPIC)) >= {*values, *last}
