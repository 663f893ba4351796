"""What the settings of a share group cost: records a second, CPU and memory of the broker, with one record in a hundred
rejected into a dead letter queue.

    python -m bench.share_settings [--records 1000000] [--rounds 3] [--sides ottla kafka] [--kinds off]

Both sides get the same requests from raw members; Kafka 4.4 is measured where it has the settings. Each group works
through the whole topic. Both brokers run at once and take turns, after some rounds that are not counted. On a machine
that does other work the CPU per record can be compared, the rate cannot.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.method.brokers import Ottla, cpu_seconds, resident_mb
from bench.method.load import Client, produce_frame
from bench.workloads.share_groups import RECORD_LIMIT, Queue, Worker
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from peers.kafka import KafkaPeer

PARTITIONS, WORKERS, FETCHED = 4, 8, 500
BATCH, KEYS = 100, 5_000
"""Records in a batch, and keys: more than members have at once in a partition."""
HELD_EVERY: Final = 100
REJECTED_EVERY: Final = 100
ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP = 32
LETTERS = "dlq.settings"
HELD, TIMED = "held", "timed"
"""Topics of other loads than the common one."""
DEAD = {"errors.deadletterqueue.topic.name": LETTERS}
KINDS: dict[str, dict[str, str]] = {
    "off": {},
    "back-off": {"ottla.share.retry.backoff.ms": "1000"},
    "not before": {"ottla.share.delivery.time.header": "at"},
    "by key": {"ottla.share.order": "key"},
    "by key, one held": {"ottla.share.order": "key"},
    "back-off, waiting": {"ottla.share.retry.backoff.ms": "3600000", "ottla.share.retry.backoff.max.ms": "3600000"},
    "not before, waiting": {"ottla.share.delivery.time.header": "at"},
}
WAITING: Final = 10_000
"""Records that wait in the last two, each between two that do not."""
DAY_MS: Final = 86_400_000


class Figures(NamedTuple):
    rate: float
    cpu_us: float
    """CPU time of the broker, per record."""
    resident_mb: float


class Rejecting(Worker):
    """Rejects one record in a hundred, and accepts the others; with `releases` every other one waits for its
    back-off."""

    releases = False

    def fetch(self, records_max: int, *, mode: int = RECORD_LIMIT, wait_ms: int = 50) -> None:
        rows = [
            {
                "partition_index": number,
                "acknowledgement_batches": [_said(*each, releases=self.releases) for each in ranges],
            }
            for number, ranges in (self._taken() if self._epoch else {each: [] for each in self._partitions}).items()
        ]
        values = {
            **self._names,
            "share_session_epoch": self._epoch,
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": records_max,
            "batch_size": records_max,
            "share_acquire_mode": mode,
            "is_renew_ack": False,
            "topics": [{"topic_id": self._topic_id, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [],
        }
        self._epoch += 1
        self.client.send(ApiKey.SHARE_FETCH, 2, values)


def _said(first: int, last: int, *, releases: bool) -> dict[str, Any]:
    """Other records are rejected than those of the key that is held: each load has as many letters."""
    rejected = REJECTED_EVERY // 2
    types = [REJECT if offset % REJECTED_EVERY == rejected else ACCEPT for offset in range(first, last + 1)]
    if releases:
        types = [RELEASE if offset % 2 else type_ for offset, type_ in enumerate(types, first)]
    return {"first_offset": first, "last_offset": last, "acknowledge_types": types}


def fill(queue: Queue, records: int, *, held: bool, timed: bool) -> None:
    """So many records in all, keys in a row; with `held` one in a hundred has the same key, with `timed` records are
    before them of which every other one is due tomorrow."""
    now_ms, value = time.time_ns() // 1_000_000, bytes(100)
    frames: list[list[bytes]] = [[] for _ in range(queue.partitions)]
    for first in range(0, KEYS, BATCH):
        keys = [-1 if held and not each % HELD_EVERY else each for each in range(first, first + BATCH)]
        data = bytes(build_batch([SimpleRecord(now_ms, b"key-%d" % key, value) for key in keys]))
        for number in range(queue.partitions):
            frames[number].append(produce_frame(queue.topic, number, data))
    due = (("at", b"%d" % (now_ms + DAY_MS)),)
    data = bytes(build_batch([SimpleRecord(now_ms, None, value, due if each % 2 else ()) for each in range(BATCH)]))
    for number in range(queue.partitions):
        for _ in range(2 * WAITING // queue.partitions // BATCH if timed else 0):
            queue.client.socket.sendall(produce_frame(queue.topic, number, data))
            queue.client.receive_frame()
        for at in range(records // queue.partitions // BATCH):
            queue.client.socket.sendall(frames[number][at % len(frames[number])])
            queue.client.receive_frame()


def alter(client: Client, kind: int, name: str, settings: Mapping[str, str]) -> None:
    rows = [{"name": each, "config_operation": 0, "value": value} for each, value in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    asked = {"resources": [resource], "validate_only": False}
    (row,) = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)["responses"]
    if row["error_code"]:
        raise RuntimeError(f"settings of {name}: {row['error_message']}")


def work_through(queue: Queue, pid: int, settings: Mapping[str, str], *, held: bool, waiting: bool) -> Figures:
    """A new group takes all records but those that wait, of which as many as shall wait do so before it is measured."""
    group = queue.group()
    alter(queue.client, GROUP, group, {**DEAD, **settings})
    names = [Rejecting(queue.port, group, queue.topic_id, range(queue.partitions)) for _ in range(WORKERS + 1)]
    holder, workers = names[0], names[1:]
    holders = [holder]
    if held:  # one record of each partition: the first, of the key that others have too
        holders = [Worker(queue.port, group, queue.topic_id, [number]) for number in range(queue.partitions)]
        for each in holders:
            while not each.held.get(each._partitions[0]):
                Worker.fetch(each, 1, mode=RECORD_LIMIT, wait_ms=500)
                each.receive()
    if waiting:
        _take_first(workers[0], releases="ottla.share.retry.backoff.ms" in settings)
    cpu_s, began_s = cpu_seconds(pid), time.perf_counter()
    found, last_s = _take_all(workers)
    cpu_s = cpu_seconds(pid) - cpu_s
    resident = resident_mb(pid)
    for each in {*names, *holders}:
        each.close()
    return Figures(found / (last_s - began_s), cpu_s / found * 1e6, resident)


def _take_first(worker: Rejecting, *, releases: bool) -> None:
    """Take what is beside the records that are to wait; with `releases` these too, once, and give them back."""
    worker.releases = releases
    left = 2 * WAITING if releases else WAITING
    while left > 0:
        worker.fetch(min(FETCHED, left))
        left -= worker.receive()
    worker.fetch(1)  # and says what becomes of the last
    worker.receive()
    worker.releases = False


def _take_all(workers: Sequence[Worker]) -> tuple[int, float]:
    """Until no worker finds anything. The records, and when the last came."""
    found, last_s, empty = 0, time.perf_counter(), 0
    for worker in workers:
        worker.fetch(FETCHED)
    while empty < 10 * len(workers):
        for worker in workers:
            some = worker.receive()
            found += some
            empty = 0 if some else empty + 1
            last_s = time.perf_counter() if some else last_s
            worker.fetch(FETCHED)
    for worker in workers:
        worker.receive()
    return found, last_s


@contextmanager
def started(side: str, base: Path) -> Iterator[tuple[int, int]]:
    """The port and the process of a broker that knows dead letters."""
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "log.segment.bytes": str(256 << 20),
    }
    if side == "kafka":
        with KafkaPeer(base / side, settings=settings, release="4.4") as peer:
            assert peer.process is not None
            yield peer.port, peer.process.pid
        return
    node = Ottla(base / side, settings)
    node.start()
    try:
        yield node.port, node.pid
    finally:
        node.stop_and_delete()


def prepare(port: int, records: int, load: str) -> Queue:
    client = Client(port)
    updates = [{"feature": "share.version", "max_version_level": 2, "upgrade_type": 1}]
    client.call(ApiKey.UPDATE_FEATURES, 1, {"timeout": 60_000, "feature_updates": updates, "validate_only": False})
    client.create_topic(LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})
    queue = Queue(port, load, PARTITIONS)
    fill(queue, records, held=load == HELD, timed=load == TIMED)
    client.close()
    return queue


class Side:
    """One broker with the topics that its groups work through."""

    def __init__(self, name: str, port: int, pid: int, records: int, kinds: Collection[str]) -> None:
        self.name, self.pid = name, pid
        loads = dict.fromkeys(_load_of(kind) for kind in kinds if self.knows(kind))
        self._queues = {load: prepare(port, records, load) for load in loads}

    def knows(self, kind: str) -> bool:
        return self.name == "ottla" or not KINDS[kind]

    def round(self, kind: str) -> Figures:
        load = _load_of(kind)
        return work_through(self._queues[load], self.pid, KINDS[kind], held=load == HELD, waiting="waiting" in kind)


def _load_of(kind: str) -> str:
    if "held" in kind:
        return HELD
    return TIMED if kind == "not before, waiting" else "settings"


def measure(sides: Sequence[Side], kinds: Iterable[str], rounds: int, warm: int) -> Iterator[tuple[str, str, Figures]]:
    """Medians, by side and kind. Kinds and sides take turns, so that what else the machine does falls on all of them,
    after rounds that are not counted: a JVM compiles what it runs for half a minute."""
    order = [(side, kind) for kind in kinds for side in sides if side.knows(kind)]
    found: dict[tuple[str, str], list[Figures]] = {}
    for number in range(warm + rounds):
        for side, kind in order:
            figures = side.round(kind)
            if number >= warm:
                found.setdefault((side.name, kind), []).append(figures)
    for (name, kind), each in found.items():
        yield name, kind, Figures(*(statistics.median(column) for column in zip(*each, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="*", default=["ottla", "kafka"], choices=["ottla", "kafka"])
    parser.add_argument("--kinds", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--warm", type=int, default=3, help="rounds of each kind that are not counted")
    options = parser.parse_args()
    began = os.getloadavg()[0]
    print(f"{options.records:,} records, one in a hundred rejected with a dead letter; medians of {options.rounds}")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory, ExitStack() as stack:
        sides = []
        for name in options.sides:
            port, pid = stack.enter_context(started(name, Path(directory)))
            sides.append(Side(name, port, pid, options.records, options.kinds))
        for name, kind, (rate, cpu_us, resident) in measure(sides, options.kinds, options.rounds, options.warm):
            print(f"{name:6} {kind:20} {rate:10,.0f} records/s {cpu_us:8.2f} us CPU {resident:6.0f} MB", flush=True)
    print(f"load average {began:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
