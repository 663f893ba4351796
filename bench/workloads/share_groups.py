"""What share groups (KIP-932) deliver: records a second in batches and one by one, and how soon a record that one
member gives back is with another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from bench.method.counters import Meter
from bench.method.load import Client, Result, batch_of, produce_frame
from bench.method.rounds import Load, Warmed, measure, section
from bench.method.three_nodes import Nodes, Topic, WarmClusters, wait_until
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS
from ottla.model import uuid_to_base64
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

FETCH_VERSION, ACKNOWLEDGE_VERSION = 2, 2
ACCEPT, RELEASE = 1, 2
RECORD_LIMIT = 1
"""ShareAcquireMode."""
PARTITIONS = 4
WORKERS = 8
RECORDS = 400_000
"""Records in each partition: more than is delivered in one window."""
WAIT_MS = 500
REPLICATED = {
    **SETTINGS,
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
TOPIC, ONE_BY_ONE, HANDED_ON = "shared", "shared-jobs", "shared-handed-on"
JOBS = 60_000
CONFIGS = {"segment.bytes": str(256 << 20)}

Window = Callable[[float, Meter], Result]
_numbers = count()


def share_fetch_values(
    group: str,
    member: str,
    topic_id: UUID,
    epoch: int,
    records_max: int,
    held: Mapping[int, Sequence[tuple[int, int]]],
    mode: int = 0,
    wait_ms: int = WAIT_MS,
) -> dict[str, Any]:
    """A ShareFetch of a session that accepts the ranges of records that are held, by partition."""
    return {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": records_max,
        "batch_size": records_max,
        "share_acquire_mode": mode,
        "is_renew_ack": False,
        "topics": _topics(topic_id, held, ACCEPT),
        "forgotten_topics_data": [],
    }


def _topics(topic_id: UUID, held: Mapping[int, Sequence[tuple[int, int]]], type_: int) -> list[dict[str, Any]]:
    rows = [
        {
            "partition_index": number,
            "acknowledgement_batches": [
                {"first_offset": first, "last_offset": last, "acknowledge_types": (type_,)} for first, last in ranges
            ],
        }
        for number, ranges in held.items()
    ]
    return [{"topic_id": topic_id, "partitions": rows}] if rows else []


class Worker:
    """A member of a share group on a connection of its own, with one request in flight."""

    def __init__(self, port: int, group: str, topic_id: UUID, partitions: Sequence[int]) -> None:
        self.client = Client(port)
        self._names = {"group_id": group, "member_id": f"worker-{next(_numbers)}"}
        self._topic_id = topic_id
        self._partitions = partitions
        self._epoch = 0
        self.held: dict[int, list[tuple[int, int]]] = {}
        """Ranges of records that were acquired and not acknowledged, by partition."""

    def fetch(self, records_max: int, *, mode: int = 0, wait_ms: int = WAIT_MS) -> None:
        """Ask for records, and accept those that are held."""
        held = self._taken() if self._epoch else {number: [] for number in self._partitions}
        values = share_fetch_values(
            self._names["group_id"],
            self._names["member_id"],
            self._topic_id,
            self._epoch,
            records_max,
            held,
            mode,
            wait_ms,
        )
        self._epoch += 1
        self.client.send(ApiKey.SHARE_FETCH, FETCH_VERSION, values)

    def receive(self) -> int:
        """The number of records that the fetch has acquired. Raises RuntimeError for an error."""
        answer = self._answer(ApiKey.SHARE_FETCH, FETCH_VERSION)
        found = 0
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                if row["error_code"] or row["acknowledge_error_code"]:
                    raise RuntimeError(f"ShareFetch: {row['error_code']!r} {row['acknowledge_error_code']!r}")
                ranges = [(each["first_offset"], each["last_offset"]) for each in row["acquired_records"]]
                self.held.setdefault(row["partition_index"], []).extend(ranges)
                found += sum(last - first + 1 for first, last in ranges)
        return found

    def acknowledge(self, type_: int) -> None:
        """Say what became of all that is held; answered at once by `acknowledged`."""
        values = {
            **self._names,
            "share_session_epoch": self._epoch,
            "is_renew_ack": False,
            "topics": _topics(self._topic_id, self._taken(), type_),
        }
        self._epoch += 1
        self.client.send(ApiKey.SHARE_ACKNOWLEDGE, ACKNOWLEDGE_VERSION, values)

    def acknowledged(self) -> None:
        """Raises RuntimeError for an error."""
        answer = self._answer(ApiKey.SHARE_ACKNOWLEDGE, ACKNOWLEDGE_VERSION)
        errors = [row["error_code"] for topic in answer["responses"] for row in topic["partitions"]]
        if any(errors):
            raise RuntimeError(f"ShareAcknowledge: {errors!r}")

    def close(self) -> None:
        self.client.close()

    def _taken(self) -> dict[int, list[tuple[int, int]]]:
        held, self.held = self.held, {}
        return held

    def _answer(self, api: int, version: int) -> dict[str, Any]:
        answer: dict[str, Any] = messages.plain(messages.decode_response(api, version, self.client.receive_frame())[1])
        if answer["error_code"]:
            raise RuntimeError(f"{ApiKey(api).name}: {answer['error_code']!r}")
        return answer


class Queue:
    """A topic that one broker leads, and groups that read it from its start."""

    def __init__(self, port: int, topic: str, partitions: int, cluster: Nodes | None = None) -> None:
        """`port` is the broker's; with a cluster it is that of node 1, and all nodes have a replica."""
        self.port, self.topic, self.partitions = port, topic, partitions
        self.client = Client(port)
        if cluster is None:
            self.client.create_topic(topic, partitions, CONFIGS)
        else:
            Topic(cluster, topic, [[1, 2, 3]] * partitions, CONFIGS)
        asked = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
        self.topic_id: UUID = self.client.call(ApiKey.METADATA, 12, asked)["topics"][0]["topic_id"]

    def fill(self, records: int, batch_bytes: int) -> None:
        """So many records in each partition, in batches of a size."""
        data, each = batch_of(batch_bytes)
        for number in range(self.partitions):
            request = produce_frame(self.topic, number, data)
            for _ in range(0, records, each * 50):
                self.client.socket.sendall(request * 50)
                for _ in range(50):
                    self.client.receive_frame()

    def group(self, start_offset: int = 0) -> str:
        """A new group, whose state the share coordinator keeps."""
        name = f"{self.topic}-{time.time_ns()}"
        for number in range(self.partitions):
            wait_until(partial(self._initialize, name, number, start_offset))
        return name

    def _initialize(self, group: str, number: int, start_offset: int) -> bool:
        """Whether the share coordinator of this partition has initialized the state of the group."""
        key = f"{group}:{uuid_to_base64(self.topic_id)}:{number}"
        (found,) = self.client.call(ApiKey.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [key]})[
            "coordinators"
        ]
        if found["error_code"]:
            return False
        row = {"partition": number, "state_epoch": 0, "start_offset": start_offset}
        asked = {"group_id": group, "topics": [{"topic_id": self.topic_id, "partitions": [row]}]}
        client = Client(found["port"])
        try:
            answer = client.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, asked)
        finally:
            client.close()
        return not any(each["error_code"] for topic in answer["results"] for each in topic["partitions"])

    def workers(self, group: str, number: int) -> list[Worker]:
        return [Worker(self.port, group, self.topic_id, range(self.partitions)) for _ in range(number)]

    def end(self) -> int:
        wanted = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": self.topic, "partitions": wanted}]}
        offset: int = self.client.call(ApiKey.LIST_OFFSETS, 7, values)["topics"][0]["partitions"][0]["offset"]
        return offset

    def close(self) -> None:
        self.client.delete_topic(self.topic)
        self.client.close()


def deliveries_window(queue: Queue) -> Window:
    """Every worker asks for 500 records, and accepts those before with that."""

    def window(seconds: float, meter: Meter) -> Result:
        return _fetching(queue, seconds, meter, 500, 0)

    return window


def jobs_window(queue: Queue) -> Window:
    """Every worker asks for one record, and accepts the one before with that."""

    def window(seconds: float, meter: Meter) -> Result:
        return _fetching(queue, seconds, meter, 1, RECORD_LIMIT)

    return window


def _fetching(queue: Queue, seconds: float, meter: Meter, records_max: int, mode: int) -> Result:
    result = Result()
    workers = queue.workers(queue.group(), WORKERS)
    sent = {}
    for worker in workers:  # the first fetch of a session has the share-partitions loaded
        worker.fetch(1, mode=RECORD_LIMIT)
        worker.receive()
    meter.start()
    start = time.perf_counter()
    for worker in workers:
        sent[worker] = time.perf_counter()
        worker.fetch(records_max, mode=mode, wait_ms=50)
    is_over = False
    while not is_over:
        for worker in workers:
            found = worker.receive()
            now = time.perf_counter()
            result.latencies_ms.append((now - sent[worker]) * 1000)
            result.requests += found
            is_over |= now - start > seconds or not found
            sent[worker] = now
            worker.fetch(records_max, mode=mode, wait_ms=50)
    result.seconds = time.perf_counter() - start
    meter.stop()
    for worker in workers:
        worker.receive()
        worker.close()
    result.bytes = result.requests * 100
    result.take(meter)
    return result


def redelivery_window(queue: Queue) -> Window:
    """One worker gives a record back, for which the other waits."""
    request = produce_frame(queue.topic, 0, batch_of(100)[0])

    def window(seconds: float, meter: Meter) -> Result:
        result = Result()
        first, second = queue.workers(queue.group(queue.end()), 2)
        meter.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            first.fetch(1, mode=RECORD_LIMIT)
            queue.client.socket.sendall(request)
            queue.client.receive_frame()
            if first.receive() != 1:
                raise RuntimeError("a record was not delivered")
            second.fetch(1, mode=RECORD_LIMIT)
            began = time.perf_counter()
            first.acknowledge(RELEASE)
            if second.receive() != 1:
                raise RuntimeError("what was given back was not delivered again")
            result.latencies_ms.append((time.perf_counter() - began) * 1000)
            result.requests += 1
            first.acknowledged()
            second.acknowledge(ACCEPT)
            second.acknowledged()
        result.seconds = time.perf_counter() - start
        meter.stop()
        for each in (first, second):
            each.close()
        result.take(meter)
        return result

    return window


def deliveries(result: Result) -> dict[str, float]:
    return {
        "records/s": result.requests_per_s,
        "CPU ms per 1,000": result.cpu_ms_per_1000,
        "p50 ms": result.percentile(0.5),
        "p99 ms": result.percentile(0.99),
    }


def delays(result: Result) -> dict[str, float]:
    return {
        "p50 ms": result.percentile(0.5),
        "p99 ms": result.percentile(0.99),
        "CPU ms per redelivery": result.cpu_ms_per_1000 / 1000,
    }


Figures = Callable[[Result], dict[str, float]]


class SharedLoad(NamedTuple):
    title: str
    topic: str
    partitions: int
    records: int
    """Records in each partition."""
    batch_bytes: int
    window_of: Callable[[Queue], Window]
    figures: Figures
    ranged: tuple[str, ...]
    """Figures that are shown with their spread."""


LOADS = {
    "deliveries": SharedLoad(
        f"Share group: records accepted, 16 KB batches, {WORKERS} workers on {PARTITIONS} partitions, 500 at a time",
        TOPIC, PARTITIONS, RECORDS, 16_384, deliveries_window, deliveries, ("records/s", "CPU ms per 1,000"),
    ),
    "jobs": SharedLoad(
        f"Share group: one record at a time, {WORKERS} workers on one partition", ONE_BY_ONE, 1, JOBS, 100,
        jobs_window, deliveries, ("records/s", "CPU ms per 1,000"),
    ),
    "redelivery": SharedLoad(
        "Share group: from giving a record back to its delivery to another worker, which waits", HANDED_ON, 1, 0, 100,
        redelivery_window, delays, ("p50 ms",),
    ),
}  # fmt: skip
"""Loads by the end of the key of their section."""


def _sections(
    run: Run, sides: Mapping[str, tuple[Sequence[int], int, Nodes | None]], warm: Warmed, where: str
) -> Iterator[Section]:
    """`sides` are the processes, the port of the broker that leads, and its cluster."""
    for name, load in LOADS.items():
        if not run.wants(name):
            continue
        with ExitStack() as stack:
            loads = {}
            for side, (pids, port, cluster) in sides.items():
                queue = Queue(port, load.topic, load.partitions, cluster)
                stack.callback(queue.close)
                queue.fill(load.records, load.batch_bytes)
                loads[side] = Load(pids, load.window_of(queue), warm)
            note = "A fetch accepts what the one before brought." * (name != "redelivery")
            title = f"{load.title}, on {where}" if where else load.title
            key = "-".join((*where.split(), "share-groups", name))
            yield section(title, key, measure(run, loads), load.figures, load.ranged, note)


@table("share-groups", "share groups: deliveries/s, jobs/s, and how soon what is given back is delivered again")
def share_groups(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    yield from _sections(run, {side: ([each.pid], each.port, None) for side, each in warm.brokers.items()}, warm, "")


@table("cluster-share-groups", "the same on three nodes, with three replicas of everything")
def cluster_share_groups(run: Run) -> Iterator[Section]:
    run.cool()
    warm = WarmClusters(run.sides, run.base, REPLICATED)
    try:
        sides = {side: (each.pids, each.ports[0], each) for side, each in warm.clusters.items()}
        yield from _sections(run, sides, warm, "three nodes")
    finally:
        warm.stop()
