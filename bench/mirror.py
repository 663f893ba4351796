"""Measure the mirror beside Apache Kafka's MirrorMaker 2, each between two Ottla nodes: `python -m bench.mirror`.

Both run with their defaults: `ottla pipeline run mirror` is exactly once, MirrorMaker 2 at least once. Each has a new
source with the same records and a new destination. First it copies a topic to warm up. Then its processes are stopped
(SIGSTOP) while the next topic is filled, and the copying is measured from SIGCONT until the destination has all
records. Last, records come at a steady rate: the lag is the time from a record's creation to its arrival at a consumer
of the destination. CPU seconds of all processes of a side, and those of the brokers, are apart. Memory (PSS) is sampled
once a second: the maximum of the first half of the copying, and of the second. Maven fetches MirrorMaker's two jars.
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

from bench import results
from bench.method import brokers, compare
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
WARM_UP_MB_MAX = 2_000
PAGE_MB, PAGE_LAG_S = 1_000, 15
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
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.tree = Tree(self.process.pid)

    def signal(self, number: int) -> None:
        """Send a signal to every process of the side: Spark and Connect have several."""
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
    parser.add_argument("--page", action="store_true", help="measure what docs/performance.md shows, in three minutes")
    parser.add_argument("--megabytes", type=int, help="size of the topic that is copied (500)")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a value (1000)")
    parser.add_argument("--warm-up", type=int, default=200, help="megabytes that are copied before, at least (200)")
    parser.add_argument(
        "--warm-up-seconds", type=float, default=25.0, help="copy for so long before, but no more than 2,000 MB (25)"
    )
    parser.add_argument("--rate", type=int, default=1000, help="records a second while the lag is measured (1000)")
    parser.add_argument("--seconds", type=int, help="how long the lag is measured, after 5 s that do not count (30)")
    parser.add_argument("--alone", action="store_true", help="measure Ottla without MirrorMaker 2")
    results.add_arguments(parser)
    options = parser.parse_args()
    options.seconds = options.seconds or (PAGE_LAG_S if options.page else 30)
    options.megabytes = options.megabytes or (PAGE_MB if options.page else 500)
    results.stop_on_sigterm()
    if not options.alone:
        subprocess.run([ROOT / "peers" / "mirror_maker" / "jars.sh"], check=True)
    rows, data = [], {}
    for side in SIDES[1:] if options.alone else SIDES:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base, clusters(Path(base)) as (source, destination):
            name, figures = measured(side, source, destination, Path(base), options)
            data[name] = {"rounds": [figures]}
            rows.append({"side": name, **{column: compare.short(each) for column, each in figures.items()}})
            print(rows[-1], flush=True)
    title = f"Mirror, {options.megabytes:,} MB in values of {options.size:,} bytes, {PARTITIONS} partitions"
    section = Section(title, rows, key="mirror", data=data)
    print(f"\n### {title}\n\n{results.markdown(section)}")
    if options.json:
        rule = f"{options.warm_up_seconds:g} s of copying before, or {WARM_UP_MB_MAX:,} MB if that is sooner"
        kept = results.Results.read(options.json)
        kept.put("mirror", section, results.how(rule, "one run", options.busy))
        kept.write(options.json)


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
    side: Callable[[str, str, Path], Mirror],
    source: brokers.Side,
    destination: brokers.Side,
    work: Path,
    options: argparse.Namespace,
) -> tuple[str, dict[str, float]]:
    """The name of a side, and its figures."""
    there, here = (f"127.0.0.1:{broker.port}" for broker in (source, destination))
    admin = AdminClient({"bootstrap.servers": there})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        future.result(60)
    warm_up, records = (megabytes * 1_000_000 // options.size for megabytes in (options.warm_up, options.megabytes))
    fill(there, "warm", warm_up, options.size)
    mirror = side(there, here, work)
    try:
        wait_for(here, "warm", warm_up, mirror)
        warm, began = warm_up, time.monotonic()
        while time.monotonic() - began < options.warm_up_seconds and warm * options.size < WARM_UP_MB_MAX * 1_000_000:
            fill(there, "warm", warm_up, options.size)
            warm += warm_up
            wait_for(here, "warm", warm, mirror)
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
    return mirror.name, {
        "MB/s": options.megabytes / took,
        "CPU-s per GB": spent / gigabytes,
        "CPU-s per GB, brokers": of_brokers / gigabytes,
        **halves(memory_mb),
        "lag p50 ms": lags[len(lags) // 2],
        "lag p99 ms": lags[int(len(lags) * 0.99)],
        "cores meanwhile": cores[0],
        "brokers": cores[1],
    }


def fill(bootstrap: str, topic: str, records: int, size: int) -> None:
    """Write records with keys to a topic."""
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
    consumer = Consumer(
        {
            "bootstrap.servers": destination,
            "group.id": "lag",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
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
