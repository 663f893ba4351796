"""`python -m tests.crash.run --rounds N`: kill a loaded node N times and check it.

A round: start, load for a moment, SIGKILL at a random instant, sometimes again while it recovers. After every few
rounds and at the end everything is read back. Exits with 1 on the first broken promise; the data
directory then stays for a look.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from ottla.protocol.messages import ApiKey
from tests.crash.client import Connection, Disconnected
from tests.crash.history import PartitionHistory
from tests.crash.others import Committer, TopicChurn
from tests.crash.producers import IdempotentProducer
from tests.node import NodeProcess

TOPIC = "crash"
PARTITIONS = 3
PRODUCERS = 5
SETTINGS = {
    "log.segment.bytes": str(1024 * 1024),
    "offsets.topic.num.partitions": "3",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
}
"""Small segments, so that kills fall on rolls; frequent checkpoints, so that recovery points matter."""


class CrashTest:
    """The load, the node and what is known of both, over all rounds."""

    def __init__(self, directory: Path, seed: int, settings: dict[str, str] | None = None) -> None:
        self.random = Random(seed)
        self.node = NodeProcess(directory, {**SETTINGS, **(settings or {})})
        self.producers = [
            IdempotentProducer(number, TOPIC, number % PARTITIONS, Random(seed + number)) for number in range(PRODUCERS)
        ]
        self.churn = TopicChurn()
        self.committer = Committer(TOPIC)
        self.histories = [PartitionHistory(TOPIC, partition) for partition in range(PARTITIONS)]
        self.kills = 0

    async def run(self, rounds: int, *, check_every: int = 20) -> None:
        await asyncio.to_thread(self.node.start)
        try:
            await self._create_topic()
            workers = [*self.producers, self.churn, self.committer]
            tasks = [asyncio.create_task(worker.run(self.node.port)) for worker in workers]
            try:
                for number in range(1, rounds + 1):
                    await self._round(tasks)
                    if number % check_every == 0:
                        await self.check()
                for worker in workers:
                    worker.stopping = True
                async with asyncio.timeout(300):
                    await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            await self.check()
        finally:
            if self.node.process is not None:
                self.node.kill()

    async def _create_topic(self) -> None:
        topic = {
            "name": TOPIC,
            "num_partitions": PARTITIONS,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        connection = await Connection.open(self.node.port)
        values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        response = await connection.call(ApiKey.CREATE_TOPICS, 7, values)
        connection.close()
        assert int(response.topics[0].error_code) == 0, response.topics[0].error_message

    async def _round(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        longer = self.random.random() < 0.15  # long enough for background fsyncs and checkpoints
        await self._sleep(self.random.uniform(1, 2.5) if longer else self.random.uniform(0.02, 0.4), tasks)
        self._kill()
        if self.random.random() < 0.2:
            start = asyncio.create_task(asyncio.to_thread(self._start_or_not))
            await asyncio.sleep(self.random.uniform(0.05, 0.6))
            self._kill()
            await start
        await asyncio.to_thread(self.node.start)

    def _start_or_not(self) -> None:
        try:
            self.node.start()
        except (RuntimeError, AssertionError, AttributeError):
            pass  # it was killed while it started

    def _kill(self) -> None:
        if self.node.process is not None:
            self.node.kill()
            self.kills += 1

    @staticmethod
    async def _sleep(seconds: float, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Sleep, unless a worker has found something wrong."""
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def check(self) -> None:
        """Read on to the end and compare with what was acknowledged before the reading began."""
        acknowledged = [dict(producer.acknowledged) for producer in self.producers]
        for history in self.histories:
            await history.read_on(self.node.port)
        for producer, known in zip(self.producers, acknowledged, strict=True):
            self.histories[producer.partition].check(producer, known)
        if self.committer.stopping:
            await self.churn.check(self.node.port)
            await self.committer.check(self.node.port)

    def summary(self) -> str:
        acknowledged = sum(len(producer.acknowledged) for producer in self.producers)
        topics = len(self.churn.present) + len(self.churn.absent)
        return (
            f"{self.kills} kills, {acknowledged} records acknowledged, {topics} topics created or deleted, "
            f"{self.committer.committed + 1} commits"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="put the data directory here and leave it")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the node")
    arguments = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="ottla-crash-"))
    directory.mkdir(parents=True, exist_ok=True)
    test = CrashTest(directory / "data", arguments.seed, settings)
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    began = time.monotonic()
    try:
        asyncio.run(test.run(arguments.rounds))
    except (AssertionError, Disconnected, RuntimeError, TimeoutError) as error:
        print(f"FAILED after {test.summary()}: {type(error).__name__} {error}", file=sys.stderr)
        return 1
    if arguments.keep is None:
        shutil.rmtree(directory)
    print(f"ok: {test.summary()}, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
