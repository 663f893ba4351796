"""The mirror beside Apache Kafka's MirrorMaker 2, between the same kinds of clusters: `python -m bench.mirror`.

Both run as users run them, with their defaults: `ottla pipeline run mirror` is exactly once, MirrorMaker 2 at least
once. The source has the same records for each, the destination is a new node for each. A first topic warms the side up;
then its processes are stopped (SIGSTOP) while the next topic is filled, so that what is measured is the copying, from
SIGCONT until the destination has all. After that records come at a steady rate: the lag is from a record's creation to
its arrival at a consumer of the destination. CPU seconds are of all of a side's processes; brokers' apart. Memory is
proportional (PSS), at most, once a second, in the first half of the copying and in the second. MirrorMaker's two jars
are fetched from Maven Central.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import brokers, results
from bench.pipelines import halves, sampled
from bench.spark import Tree
from bench.tables import Section
from ottla import arrow
from peers.kafka import LIBS

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / ".cache" / "mirror-maker-jars"
SETTINGS = {"log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "0"}
TOPICS = ("warm", "load", "steady")
PARTITIONS = 3
PATIENCE_S = 600.0
MIRROR_MAKER = """
clusters=source,destination
source.bootstrap.servers={source}
destination.bootstrap.servers={destination}
source->destination.enabled=true
source->destination.topics=warm,load,steady
destination->source.enabled=false
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
tasks.max=3
"""
"""But for what one node needs, and as many tasks as partitions, its defaults."""


class Mirror:
    """A side: a process tree that mirrors from one address to another."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environment},
                start_new_session=True,
            )  # fmt: skip
        self.tree = Tree(self.process.pid)

    def signal(self, number: int) -> None:
        """To all of it: Spark and Connect have processes and threads of their own."""
        self.tree.cpu_seconds()
        for pid in self.tree.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)


def mirror_maker(source: str, destination: str, work: Path) -> Mirror:
    settings = work / "mirror-maker.properties"
    settings.write_text(MIRROR_MAKER.format(source=source, destination=destination))
    classes = os.pathsep.join([f"{LIBS}/*", f"{JARS}/*"])
    # The heap and the collector of connect-mirror-maker.sh.
    command = ["java", "-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    command += [f"-Dlog4j2.configurationFile={LIBS.parent / 'log4j2.properties'}", "-cp", classes]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
    return Mirror("MirrorMaker 2", command, {}, work / "mirror-maker.log")


def ottla(source: str, destination: str, work: Path) -> Mirror:
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "mirror", "--bootstrap", destination]
    command += ["--set", f"from={source}", "--directory", str(work / "pipelines"), "--master", "local[2]"]
    return Mirror("ottla, exactly-once", command, {}, work / "ottla.log")


SIDES: list[Callable[[str, str, Path], Mirror]] = [mirror_maker, ottla]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.mirror", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=500, help="of the topic that is copied")
    parser.add_argument("--size", type=int, default=1000, help="of values in bytes")
    parser.add_argument("--warm-up", type=int, default=200, help="megabytes before that")
    parser.add_argument("--rate", type=int, default=1000, help="records a second, for the lag")
    parser.add_argument("--seconds", type=int, default=30, help="for the lag, after five that are left out")
    parser.add_argument("--alone", action="store_true", help="without MirrorMaker 2")
    options = parser.parse_args()
    if not options.alone:
        subprocess.run([ROOT / "peers" / "mirror_maker" / "jars.sh"], check=True)
    rows = []
    for side in SIDES[1:] if options.alone else SIDES:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base, clusters(Path(base)) as (source, destination):
            rows.append(measured(side, source, destination, Path(base), options))
            print(rows[-1], flush=True)
    title = f"Mirror, {options.megabytes:,} MB in values of {options.size:,} bytes, {PARTITIONS} partitions"
    print(f"\n### {title}\n\n{results.markdown(Section(title, rows, key='mirror'))}")


@contextlib.contextmanager
def clusters(base: Path) -> Iterator[tuple[brokers.Side, brokers.Side]]:
    pair = [brokers.make("ottla", base / name, SETTINGS) for name in ("source", "destination")]
    try:
        for broker in pair:
            broker.start()
        yield pair[0], pair[1]
    finally:
        for broker in pair:
            broker.stop_and_delete()


def measured(
    side: Callable[[str, str, Path], Mirror], source: brokers.Side, destination: brokers.Side, work: Path,
    options: argparse.Namespace,
) -> dict[str, str]:  # fmt: skip
    there, here = (f"127.0.0.1:{broker.port}" for broker in (source, destination))
    admin = AdminClient({"bootstrap.servers": there})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        future.result(60)
    warm_up, records = (megabytes * 1_000_000 // options.size for megabytes in (options.warm_up, options.megabytes))
    fill(there, "warm", warm_up, options.size)
    mirror = side(there, here, work)
    try:
        wait_for(here, "warm", warm_up, mirror)
        mirror.signal(signal.SIGSTOP)
        fill(there, "load", records, options.size)
        before = mirror.tree.cpu_seconds(), sum(brokers.cpu_seconds(each.pid) for each in (source, destination))
        began = time.monotonic()
        mirror.signal(signal.SIGCONT)
        with sampled(mirror.tree) as memory_mb:
            wait_for(here, "load", records, mirror)
        took = time.monotonic() - began
        spent = mirror.tree.cpu_seconds() - before[0]
        of_brokers = sum(brokers.cpu_seconds(each.pid) for each in (source, destination)) - before[1]
        both = (source, destination)
        before = mirror.tree.cpu_seconds(), sum(brokers.cpu_seconds(each.pid) for each in both)
        began = time.monotonic()
        lags = steady(there, here, options.rate, options.seconds, options.size)
        busy = [mirror.tree.cpu_seconds(), sum(brokers.cpu_seconds(each.pid) for each in both)]
        cores = [(after - first) / (time.monotonic() - began) for after, first in zip(busy, before, strict=True)]
    finally:
        mirror.stop()
    gigabytes = options.megabytes / 1000
    return {
        "side": mirror.name, "MB/s": f"{options.megabytes / took:.1f}", "CPU-s per GB": f"{spent / gigabytes:.1f}",
        "CPU-s per GB, brokers": f"{of_brokers / gigabytes:.1f}",
        **{name: f"{most:,.0f}" for name, most in halves(memory_mb).items()},
        "lag p50 ms": f"{lags[len(lags) // 2]:,.0f}", "lag p99 ms": f"{lags[int(len(lags) * 0.99)]:,.0f}",
        "cores meanwhile": f"{cores[0]:.2f}", "brokers": f"{cores[1]:.2f}",
    }  # fmt: skip


def fill(bootstrap: str, topic: str, records: int, size: int) -> None:
    """With keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    values = [os.urandom(size // 2 + 1).hex().encode()[:size] for _ in range(100)]
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % 100], b"%d" % number)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def wait_for(bootstrap: str, topic: str, records: int, mirror: Mirror) -> None:
    """Until committed records are all there: by the ends first, which cost nothing, and then counted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"})
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert mirror.process.poll() is None, f"{mirror.name} has ended"
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
                for number in range(PARTITIONS)
            ]
        except Exception:  # the topic is not there yet
            ends = [0]
        if sum(ends) >= records and arrow.read(topic, bootstrap, columns=["offset"]).read_all().num_rows >= records:
            consumer.close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"{mirror.name} has not copied {topic} in {PATIENCE_S:.0f} s")


def steady(source: str, destination: str, rate: int, seconds: int, size: int, left_out_s: int = 5) -> list[float]:
    """Lags in ms, sorted."""
    found: list[float] = []
    total = rate * (seconds + left_out_s)
    consumer = Consumer({
        "bootstrap.servers": destination, "group.id": "lag", "isolation.level": "read_committed",
        "enable.auto.commit": False, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    consumer.assign([TopicPartition("steady", number, 0) for number in range(PARTITIONS)])

    def receive() -> None:
        seen, deadline = 0, time.monotonic() + PATIENCE_S
        while seen < total and time.monotonic() < deadline:
            message = consumer.poll(0.05)  # `consume` would wait for many
            if message is not None and message.error() is None:
                seen += 1
                if seen > rate * left_out_s:
                    found.append(time.time() * 1000 - message.timestamp()[1])

    receiver = threading.Thread(target=receive)
    receiver.start()
    producer = Producer({"bootstrap.servers": source, "linger.ms": 5})
    value: Any = b"x" * size
    began = time.monotonic()
    for number in range(total):
        ahead = number / rate - (time.monotonic() - began)
        if ahead > 0.01:
            time.sleep(ahead)
        producer.produce("steady", value, b"%d" % number)
        producer.poll(0)
    assert producer.flush(60) == 0
    receiver.join()
    consumer.close()
    assert len(found) >= rate * seconds, "records are missing at the destination"
    return sorted(found)


if __name__ == "__main__":
    main()
