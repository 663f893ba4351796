"""The life of a cluster of real processes: brokers and the controller stop, are killed, and come back."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.admin import brokers, create, leaders, quorum, until
from tests.cluster.processes import CONTROLLER_ID, QUICK, ottla_broker, ottla_controller
from tests.node import NodeProcess


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[NodeProcess]:
    with ottla_controller(tmp_path / "controller", QUICK) as started:
        yield started


@pytest.fixture
def broker(tmp_path: Path, controller: NodeProcess) -> Iterator[NodeProcess]:
    with ottla_broker(tmp_path / "broker", controller.bootstrap, QUICK) as started:
        yield started


@pytest.fixture
def other(tmp_path: Path, controller: NodeProcess) -> Iterator[NodeProcess]:
    """A second broker, which sees what becomes of the first."""
    with ottla_broker(tmp_path / "other", controller.bootstrap, QUICK, node_id=2) as started:
        yield started


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    """Returns when all are acknowledged. Every partition gets about as many."""
    failed: list[object] = []
    settings = {"acks": "all", "message.timeout.ms": 60_000, "sticky.partitioning.linger.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []


def consume(bootstrap: str, topic: str) -> list[str]:
    """All values, of all partitions. Without a group, whose topic could not be made while the controller is away."""
    done = subprocess.run(
        ["kcat", "-b", bootstrap, "-C", "-t", topic, "-e", "-q"], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def created_on(broker: NodeProcess, node_id: int) -> str:
    """A new topic that this broker leads."""
    for number in range(100):
        name = f"on-{node_id}-{number}"
        assert create(broker.bootstrap, name) == 0
        if leaders(broker.bootstrap, name)[0][0] == node_id:
            return name
    raise AssertionError("a hundred topics, and all are on the other broker")


def epoch_of(broker: NodeProcess) -> int:
    """The broker epoch that the last clean stop left in the log directory (KIP-966)."""
    text = (broker.data / ".kafka_cleanshutdown").read_text()
    return int(text.partition('"brokerEpoch":')[2].strip(" }"))


def test_a_broker_stops_and_comes_back_at_once(controller: NodeProcess, broker: NodeProcess) -> None:
    """A controlled shutdown: the next process need not wait for the session to end, and has a later epoch."""
    assert create(broker.bootstrap, "t", 3) == 0
    produce(broker.bootstrap, "t", ["a", "b", "c"])
    before = leaders(broker.bootstrap, "t")
    broker.stop()
    first = epoch_of(broker)
    broker.settings["broker.session.timeout.ms"] = controller.settings["broker.session.timeout.ms"]
    broker.start()
    assert brokers(broker.bootstrap) == {1: False}
    after = leaders(broker.bootstrap, "t")
    assert all(leader == 1 and later > sooner for (_, sooner), (leader, later) in zip(before, after, strict=True))
    assert sorted(consume(broker.bootstrap, "t")) == ["a", "b", "c"]
    broker.stop()
    assert epoch_of(broker) > first
    broker.start()


def test_a_killed_broker_is_fenced_and_comes_back(broker: NodeProcess, other: NodeProcess) -> None:
    """It is another process with the id of one whose session has not ended: it is let in when that has."""
    assert create(broker.bootstrap, "t") == 0
    until(lambda: brokers(other.bootstrap), {1: False, 2: False}.__eq__)
    on_broker = created_on(broker, 1)
    produce(broker.bootstrap, on_broker, ["a"])
    broker.kill()
    until(lambda: brokers(other.bootstrap), {1: True, 2: False}.__eq__)
    broker.start()
    until(lambda: brokers(other.bootstrap), {1: False, 2: False}.__eq__)
    produce(broker.bootstrap, on_broker, ["b"])
    assert consume(broker.bootstrap, on_broker) == ["a", "b"]
    broker.kill()
    broker.start()  # at once, while its session still runs
    assert brokers(broker.bootstrap)[1] is False
    assert consume(broker.bootstrap, on_broker) == ["a", "b"]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_killed_broker_is_fenced_without_waiting_for_its_session(tmp_path: Path, is_new: bool) -> None:
    """Its system closes its connections and refuses new ones: also to a controller that was not there before."""
    patient = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "3600000"}
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(ottla_controller(tmp_path / "controller", patient))
        one, two = (
            stack.enter_context(ottla_broker(tmp_path / f"broker{each}", controller.bootstrap, patient, node_id=each))
            for each in (1, 2)
        )
        until(lambda: brokers(two.bootstrap), {1: False, 2: False}.__eq__)
        if is_new:
            controller.kill()
        one.kill()
        if is_new:
            controller.start()
        until(lambda: brokers(two.bootstrap), {1: True, 2: False}.__eq__)
        one.start()
        assert brokers(one.bootstrap)[1] is False


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_the_controller_goes_and_comes_back(controller: NodeProcess, broker: NodeProcess, ending: str) -> None:
    """Without it records are still served; with it again, the broker goes on in the new epoch and is never fenced."""
    assert create(broker.bootstrap, "t") == 0
    produce(broker.bootstrap, "t", ["a"])
    before = quorum(broker.bootstrap)
    assert before["leader_id"] == CONTROLLER_ID
    assert [each["replica_id"] for each in before["observers"]] == [1]
    getattr(controller, ending)()
    produce(broker.bootstrap, "t", ["b"])
    assert consume(broker.bootstrap, "t") == ["a", "b"]
    controller.start()
    assert create(broker.bootstrap, "u") == 0
    after = quorum(broker.bootstrap)
    assert after["leader_epoch"] > before["leader_epoch"]
    assert after["high_watermark"] > before["high_watermark"]
    assert brokers(broker.bootstrap) == {1: False}
    produce(broker.bootstrap, "u", ["c"])
    assert consume(broker.bootstrap, "t") == ["a", "b"]


def test_a_change_waits_for_the_controller(controller: NodeProcess, broker: NodeProcess) -> None:
    """A request that finds no controller is held back, and answered when there is one again."""
    controller.stop()
    creating = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap, "-P", "-t", "late", "-X", "message.timeout.ms=60000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert creating.stdin is not None
    creating.stdin.write("x\n")
    creating.stdin.close()
    controller.start()
    assert creating.wait(60) == 0, creating.stdout
    assert consume(broker.bootstrap, "late") == ["x"]


def test_all_start_in_any_order(tmp_path: Path) -> None:
    """A broker that is first waits for its controller, be it new or known."""
    controller = ottla_controller(tmp_path / "controller", QUICK)
    broker = ottla_broker(tmp_path / "broker", controller.bootstrap, QUICK)
    for number in range(2):
        starting = subprocess.Popen(
            broker.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=broker.environment(),
        )
        try:
            controller.start()
            until(lambda: answers(broker.bootstrap), bool)
            assert create(broker.bootstrap, f"t{number}") == 0
        finally:
            starting.terminate()
            starting.wait(60)
            controller.stop()


def answers(address: str) -> bool:
    try:
        return brokers(address) == {1: False}
    except OSError:
        return False


def test_another_clusters_controller_is_refused(tmp_path: Path, controller: NodeProcess, broker: NodeProcess) -> None:
    broker.stop()
    with ottla_controller(tmp_path / "stranger", QUICK) as stranger:
        broker.settings["controller.quorum.bootstrap.servers"] = stranger.bootstrap
        broker.settings["initial.broker.registration.timeout.ms"] = "1000"
        with pytest.raises(RuntimeError, match=r"inconsistent_cluster_id.*refuses fetches of the metadata log"):
            broker.start()
        broker.process = None


@pytest.mark.parametrize("clean", [True, False])
def test_a_broker_that_lost_its_copy_of_the_metadata_takes_it_again(
    controller: NodeProcess, broker: NodeProcess, clean: bool
) -> None:
    produce(broker.bootstrap, "kept", ["a", "b"])
    if clean:
        broker.stop()
    else:
        broker.kill()
    shutil.rmtree(broker.data / "__cluster_metadata-0")
    broker.start()
    until(lambda: brokers(broker.bootstrap), {1: False}.__eq__)
    assert consume(broker.bootstrap, "kept") == ["a", "b"]
