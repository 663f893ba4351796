"""A mirror whose records tasks of Spark copy: here, and on workers that are killed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.mirror.mirror import Mirror, Route
from ottla.testing import Broker
from tests.conformance.mirror.mirrored import rows
from tests.spark.pipelines.pipeline_process import Command, has_read, is_done, set_
from tests.spark.pipelines.pipelines import wait_for
from tests.spark.standalone import StandaloneCluster
from tests.spark.topics import Record, Topics

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("OTTLA_TEST_SEED", "3"))


@pytest.fixture
def other() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


def produce(topics: Topics, topic: str, first: int, last: int, partitions: int) -> None:
    topics.produce(topic, [Record(b"%d" % number, number % partitions) for number in range(first, last)])


def test_one_step_and_following(spark: Any, topics: Topics, bootstrap: str, other: str, topic: str) -> None:
    topics.create(topic, 3)
    produce(topics, topic, 0, 1000, 3)
    route = Route("a", bootstrap, "b", other, topic)
    Mirror(route, spark).step()
    assert rows(other, topic) == rows(bootstrap, topic) and len(rows(other, topic)) == 1000

    mirror = Mirror(route, spark)
    mirror.follow()
    produce(topics, topic, 1000, 2000, 3)
    wait_for(lambda: len(rows(other, topic)) == 2000)
    topics.grow(topic, 4)
    produce(topics, topic, 2000, 3000, 4)
    mirror.follow()  # ends one shift, and begins another with the new partition
    wait_for(lambda: len(rows(other, topic)) == 3000)
    assert rows(other, topic) == rows(bootstrap, topic)
    wait_for(lambda: [mirror.follow(), sum(each["numInputRows"] for each in mirror.progress.recentProgress)][1] == 2000)
    assert spark.sparkContext.statusTracker().getActiveJobsIds()
    mirror.stop()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.usefixtures("spark")
def test_what_copies_is_killed_on_a_cluster_of_workers(
    standalone: StandaloneCluster, tmp_path: Path, other: str
) -> None:
    dice = random.Random(SEED)
    with Broker(topics={"t": 4}) as source:
        topics = Topics(source.bootstrap)
        produce(topics, "t", 0, 1000, 4)
        command = Command(
            "mirror",
            tmp_path,
            "-b",
            other,
            "--master",
            standalone.url,
            *set_({"from": source.bootstrap}),
            "--spark",
            "spark.executor.memory=512m",
            "--spark",
            "spark.driver.host=127.0.0.1",
            "--spark",
            f"spark.executorEnv.PYTHONPATH={ROOT / 'src'}{os.pathsep}{ROOT}",
        )
        command.until(lambda status: has_read(1000)(status) and is_done(status))
        for round_ in range(1, 4):
            produce(topics, "t", round_ * 1000, round_ * 1000 + 1000, 4)
            os.kill(dice.choice(standalone.wait_executors(2)), signal.SIGKILL)
        command.until(lambda status: has_read(4000)(status) and is_done(status))
        wait_for(lambda: len(rows(other, "t")) == 4000)
        assert rows(other, "t") == rows(source.bootstrap, "t")
        assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
