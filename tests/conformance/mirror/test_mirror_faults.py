"""A mirror whose parts are killed, cut off, or meddled with: every record once, or a clear refusal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.mirror.control_topic import MirrorError
from ottla.mirror.mirror import Mirror, Route
from ottla.testing import Broker
from tests.conformance.mirror.mirrored import first, values
from tests.offsets import commit
from tests.spark.topics import Topics

SEED = int(os.environ.get("OTTLA_TEST_SEED", "11"))
PATIENCE_S = 90.0
FOLLOW = """
import sys, time
from ottla.mirror.mirror import Mirror, Route
mirror = Mirror(Route("a", sys.argv[1], "b", sys.argv[2], "t"), every_s=0.005)
while True:
    mirror.follow()
    time.sleep(0.05)
"""


@pytest.fixture
def pair() -> Iterator[tuple[Broker, Broker]]:
    with Broker(topics={"t": 2}, group_initial_rebalance_delay_ms=0) as source, Broker() as destination:
        yield source, destination


def mirror_of(pair: tuple[Broker, Broker]) -> Mirror:
    return Mirror(Route("a", pair[0].bootstrap, "b", pair[1].bootstrap, "t"), every_s=0.005)


def fill(bootstrap: str, first: int, last: int, codec: str = "none") -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": 50, "log_level": 0}
    producer = Producer({**settings, "compression.type": codec, "enable.idempotence": True})
    for number in range(first, last):
        producer.produce("t", b"%d" % number, b"key", partition=number % 2)
        producer.poll(0)
    assert producer.flush(60) == 0


class Following:
    """Follows in a thread, again after each error; the errors are kept."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.errors: list[Exception] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Following:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.mirror.stop()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            try:
                self.mirror.follow()
            except MirrorError as error:
                self.errors.append(error)
                return
            except Exception as error:
                self.errors.append(error)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def count(bootstrap: str) -> int:
    try:
        return len(values(bootstrap, "t"))
    except Exception:  # not made yet, or its node is away
        return -1


def test_killed_again_and_again_while_records_come(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    dice = random.Random(SEED)
    producing = threading.Thread(
        target=lambda: [fill(source, at, at + 500, dice.choice(["none", "lz4"])) for at in range(0, 20_000, 500)]
    )
    producing.start()
    kills = 0
    while producing.is_alive() or kills < 6:
        process = subprocess.Popen([sys.executable, "-c", FOLLOW, source, destination], stderr=subprocess.PIPE)
        time.sleep(dice.uniform(0.5, 2.5))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr and process.stderr.read()
        kills += 1
    producing.join()
    mirror_of(pair).step()
    assert values(destination, "t") == values(source, "t"), SEED
    assert sorted(map(int, filter(None, values(destination, "t")))) == list(range(20_000))
    group = {("t", 0): 7_777}
    commit(source, "g", group)
    mirror_of(pair).step()
    assert first(destination, "g", "t") == first(source, "g", "t")


@pytest.mark.parametrize("which", [0, 1])
def test_a_node_that_is_killed_and_comes_back(pair: tuple[Broker, Broker], which: int) -> None:
    source, destination = pair
    fill(source.bootstrap, 0, 1000)
    with Following(mirror_of(pair)) as following:
        wait_for(lambda: count(destination.bootstrap) == 1000)
        for round_ in range(1, 4):
            filling = threading.Thread(target=fill, args=(source.bootstrap, round_ * 1000, round_ * 1000 + 1000))
            filling.start()
            time.sleep(0.1 * round_)
            pair[which].kill()
            pair[which].restart()
            filling.join()
        wait_for(lambda: count(destination.bootstrap) == 4000)
        assert not [error for error in following.errors if isinstance(error, MirrorError)]
    assert values(destination.bootstrap, "t") == values(source.bootstrap, "t")


def test_a_second_mirror_takes_over_and_the_first_one_ends(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 1000)
    with Following(mirror_of(pair)) as one:
        wait_for(lambda: count(destination) == 1000)
        filling = threading.Thread(target=fill, args=(source, 1000, 11_000))
        filling.start()
        with Following(mirror_of(pair)) as other:
            wait_for(lambda: bool(one.errors))
            filling.join()
            wait_for(lambda: count(destination) == 11_000)
        assert not other.errors
    (error,) = one.errors
    assert "another process mirrors a to here now" in str(error)
    assert values(destination, "t") == values(source, "t")


def test_a_mirror_that_stood_still_while_another_went_on(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 1000)
    process = subprocess.Popen([sys.executable, "-c", FOLLOW, source, destination], stderr=subprocess.PIPE)
    wait_for(lambda: count(destination) == 1000)
    fill(source, 1000, 1100)
    process.send_signal(signal.SIGSTOP)
    fill(source, 1100, 2000)
    mirror_of(pair).step()
    process.send_signal(signal.SIGCONT)
    fill(source, 2000, 2100)
    assert process.wait(60) == 1
    assert process.stderr is not None and b"another process mirrors a to here now" in process.stderr.read()
    mirror_of(pair).step()
    assert values(destination, "t") == values(source, "t")


def test_a_failover_stops_the_mirror_and_nothing_comes_after_it(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 1000)
    with Following(mirror_of(pair)) as following:
        wait_for(lambda: count(destination) == 1000)
        filling = threading.Thread(target=fill, args=(source, 1000, 5000))
        filling.start()
        cuts = mirror_of(pair).failover(reach_source=False)
        had = count(destination)
        filling.join()
        wait_for(lambda: bool(following.errors))
    mirror = mirror_of(pair)
    mirror.step()
    assert count(destination) == had and mirror.destination.ends(cuts, committed=False) == cuts


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_a_record_of_somebody_else_is_noticed(pair: tuple[Broker, Broker], while_it_runs: bool) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 100)
    with Following(mirror_of(pair)) as following:
        wait_for(lambda: count(destination) == 100)
        if while_it_runs:
            fill(destination, 0, 1)
            fill(source, 100, 200)
            wait_for(lambda: bool(following.errors))
    if not while_it_runs:
        fill(destination, 0, 1)
        with pytest.raises(MirrorError, match=r"t-0 has records of another producer from offset \d+ on"):
            fill(source, 100, 200)
            mirror_of(pair).step()
    else:
        assert "t-0 has records of another producer" in str(following.errors[0])
    # Partition 1 may have gone on; the other has what it had.
    assert len([value for value in values(destination, "t") if int(value or 0) % 2 == 0]) == 51


def test_what_was_deleted_before_it_was_copied_is_gone(
    pair: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture
) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 100)
    mirror_of(pair).step()
    fill(source, 100, 200)
    admin = AdminClient({"bootstrap.servers": source})
    for future in admin.delete_records([TopicPartition("t", 0, 70)]).values():
        future.result(30)
    mirror_of(pair).step()
    assert "t-0 at a now begins at 70: offsets from 50 on were deleted" in caplog.text
    seen = [int(value or 0) for value in values(destination, "t")]
    assert sorted(seen) == [*range(100), *(n for n in range(100, 200) if n % 2 or n >= 140)]


def test_a_topic_that_was_made_again_is_refused_until_its_mirror_is_deleted(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 100)
    with Following(mirror_of(pair)) as following:
        wait_for(lambda: count(destination) == 100)
        topics = Topics(source)
        topics.delete("t")
        topics.create("t", 2)
        fill(source, 0, 300)
        wait_for(lambda: bool(following.errors))
    assert "t at a was deleted and recreated: delete its mirror t at b" in str(following.errors[-1])
    assert count(destination) == 100
    with pytest.raises(MirrorError, match="recreated"):
        mirror_of(pair).step()
    Topics(destination).delete("t")
    mirror_of(pair).step()
    assert values(destination, "t") == values(source, "t") and count(destination) == 300


def test_a_mirror_that_was_deleted_is_recreated(pair: tuple[Broker, Broker]) -> None:
    source, destination = (broker.bootstrap for broker in pair)
    fill(source, 0, 100)
    with Following(mirror_of(pair)):
        wait_for(lambda: count(destination) == 100)
        Topics(destination).delete("t")
        fill(source, 100, 200)
        wait_for(lambda: count(destination) == 200)
    assert values(destination, "t") == values(source, "t")
