"""Rounds of kill -9 while a job copies a topic exactly once: `python -m tests.spark.kills --rounds 20 --seed 1`.

Who dies is drawn: the driver, a Python worker, an executor, or a node of three. When: once the sink has had as many
records as were drawn. A driver that ended is started again. At the end a reader of committed records has to find each
record once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import arrow
from ottla.client.cluster import LATEST, Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.transactions import list_transactions
from ottla.model import TopicPartition
from ottla.spark.sink_log import PREFIX
from tests.cluster.processes import QUICK, ottla_quorum, start_together
from tests.node import NodeProcess
from tests.spark.copy_job import SINK, SOURCE
from tests.spark.standalone import StandaloneCluster

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3
STARTS_MAX = 8
"""Starts in one round: Spark stops a query at its first failure, and each kill causes at most one."""
PATIENCE_S = 240.0
_REPLICATED = {
    **QUICK, "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3", "min.insync.replicas": "2", "default.replication.factor": "3",
}  # fmt: skip
VICTIMS = ("driver", "worker", "node")
WITH_EXECUTORS = (*VICTIMS, "executor")


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of each."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = (parent, (path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def below(root: int) -> dict[int, str]:
    """Command lines of a process and all below it."""
    known = processes()
    found = {root}
    while more := {pid for pid, (parent, _) in known.items() if parent in found} - found:
        found |= more
    return {pid: known[pid][1] for pid in found if pid in known}


class Job:
    """A driver, started as often as needed."""

    def __init__(self, arguments: Sequence[str], work: Path) -> None:
        self.arguments, self.log = arguments, work / "driver.log"
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.copy_job", *self.arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_driver(self) -> None:
        """Its JVM and the Python process beside it at once, as a machine that is gone."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        assert self.process is not None
        workers = [pid for pid, line in below(self.process.pid).items() if "pyspark.daemon" in line]
        return _kill(workers, rng)

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_S)


def _kill(pids: Sequence[int], rng: random.Random) -> bool:
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(sorted(pids)), signal.SIGKILL)
    return True


def fill(bootstrap: str, count: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in (SOURCE, SINK)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(count):
        producer.produce(SOURCE, f"record {number}", str(number % 97), partition=number % PARTITIONS)
        if number % 5000 == 0:
            producer.flush(60)
    assert producer.flush(120) == 0


def copied(bootstrap: str) -> int:
    """Records that have come to the sink, committed or not."""
    with contextlib.closing(Cluster(ClientConfig(parse_addresses(bootstrap), request_timeout_s=60))) as cluster:
        ends = cluster.offsets({TopicPartition(SINK, at): LATEST for at in range(PARTITIONS)})
        return sum(one.offset for one in ends.values())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not in {PATIENCE_S:.0f} s")
        time.sleep(0.02)


def check_readers_go_on(bootstrap: str) -> None:
    """Raises AssertionError with the transactions that hold readers of committed records back."""
    with contextlib.closing(Cluster(ClientConfig(parse_addresses(bootstrap), request_timeout_s=60))) as cluster:
        open_transactions = list_transactions(cluster, PREFIX)
        assert not open_transactions, f"left open: {open_transactions}"


def check(bootstrap: str, count: int) -> None:
    """Raises AssertionError with what is lost or twice."""
    found: Counter[str] = Counter()
    for batch in arrow.read(SINK, bootstrap, columns=["value"], read_committed=True):
        found.update(value.decode() for value in batch.column(0).to_pylist())
    expected = {f"record {number}" for number in range(count)}
    lost = sorted(expected - found.keys())
    twice = sorted(value for value, times in found.items() if times > 1)
    strange = sorted(found.keys() - expected)
    assert not (lost or twice or strange), (
        f"{len(lost)} lost {lost[:3]}, {len(twice)} twice {twice[:3]}, {len(strange)} unknown {strange[:3]}"
    )


def play(
    victims: Sequence[str],
    *,
    bootstrap: str,
    work: Path,
    rng: random.Random,
    count: int,
    kill: Callable[[str, Job], bool],
    arguments: Sequence[str] = (),
) -> list[str]:
    """Copy `count` records while `victims` are killed in turn; returns what happened. Raises AssertionError,
    RuntimeError."""
    job = Job(["--bootstrap", bootstrap, "--work", str(work), *arguments], work)
    job.start()
    told = []
    # One after the other, each in a part of the work of its own.
    marks = [round(count * (number + rng.random()) / (len(victims) + 0.5)) for number in range(len(victims))]
    try:
        for victim, mark in zip(victims, marks, strict=True):
            wait_for(lambda mark=mark: copied(bootstrap) >= mark or job.process.poll() is not None, "the job")  # type: ignore[misc, union-attr]
            time.sleep(rng.random() / 4)  # anywhere in a batch
            did = kill(victim, job)
            told.append(f"{victim} at {copied(bootstrap)} of {count}" + ("" if did else " (none there)"))
            if job.process is not None and victim == "driver":
                job.start()
        while job.end() != 0:
            told.append("the query failed, started again")
            if job.starts >= STARTS_MAX:
                raise RuntimeError(f"the job does not get through: {job.log.read_text()[-3000:]}")
            job.start()
        check_readers_go_on(bootstrap)
        check(bootstrap, count)
    except BaseException as error:
        error.add_note("; ".join(told))
        raise
    finally:
        job.kill_driver()
    return told


@contextlib.contextmanager
def three_nodes(directory: Path) -> Iterator[list[NodeProcess]]:
    directory.mkdir()
    nodes = ottla_quorum(directory, settings=_REPLICATED)
    try:
        start_together(nodes)
        yield nodes
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()


def round_on_three_nodes(
    work: Path, seed: int, victims: Sequence[str], count: int, spark: StandaloneCluster | None = None
) -> list[str]:
    """With executors among the victims on `spark`, or a cluster of its own. Raises AssertionError, RuntimeError."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(three_nodes(work / "nodes"))
        if "executor" in victims and spark is None:
            spark = stack.enter_context(StandaloneCluster(workers=2))
        bootstrap = ",".join(node.bootstrap for node in nodes)
        fill(bootstrap, count, 3)

        def kill(victim: str, job: Job) -> bool:
            if victim == "driver":
                job.kill_driver()
                return True
            if victim == "worker":
                return job.kill_worker(rng)
            if victim == "executor":
                assert spark is not None
                return _kill(spark.executor_pids(), rng)
            node = rng.choice(nodes)
            node.kill()
            node.start()
            return True

        arguments = ["--shuffle"] if rng.random() < 0.5 else []
        if spark is not None:
            arguments += ["--master", spark.url]
        return play(victims, bootstrap=bootstrap, work=work, rng=rng, count=count, kill=kill, arguments=arguments)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--kills", type=int, default=3, help="of a round")
    parser.add_argument("--executors", action="store_true", help="kill those of a standalone cluster, too")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.rounds):
        victims = random.Random(seed).choices(WITH_EXECUTORS if options.executors else VICTIMS, k=options.kills)
        work = tempfile.mkdtemp(prefix="ottla-kills-")
        began = time.monotonic()
        try:
            told = round_on_three_nodes(Path(work), seed, victims, options.records)
        except BaseException as error:
            error.add_note(f"seed {seed}; what there was is in {work}")
            raise
        shutil.rmtree(work)
        print(f"seed {seed}: exact after {time.monotonic() - began:.0f} s: {'; '.join(told)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
