"""What a broker pays for idle connections, and for a client that reads data which is not in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.method import compare
from bench.method.brokers import Side, resident_mb
from bench.method.counters import Meter
from bench.method.load import Client, batch_of, produce_frame
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, SMALL_LOG, preheat, produce_window

IDLE_CONNECTIONS = 1000
COLD_MB = 512

_COLD_READER = """
import sys, time
from bench.method.load import Client, fetch_values
from ottla.protocol.messages import ApiKey
port, records, batches, seconds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
client, end, got, index = Client(port), time.monotonic() + seconds, 0, 0
while time.monotonic() < end:
    client.send(ApiKey.FETCH, 12, fetch_values("cold", 0, index % batches * records, 1 << 20))
    got += len(client.receive_frame())
    index += 4
print(got)
"""


def idle_connections(side: Side) -> dict[str, float]:
    """Memory that they cost in MB, and the wait of produce requests beside them."""
    client = Client(side.port)
    client.create_topic("beside", 6, SMALL_LOG)
    window = produce_window(side.port, "beside", batch_of(16 << 10)[0])
    window(2.0, Meter(side.pid))
    before = resident_mb(side.pid)
    sockets = [socket.create_connection(("127.0.0.1", side.port)) for _ in range(IDLE_CONNECTIONS)]
    time.sleep(0.5)
    result = window(2.0, Meter(side.pid))
    cost = resident_mb(side.pid) - before
    for connection in sockets:
        connection.close()
    client.delete_topic("beside")
    client.close()
    return {"memory of 1,000 idle, MB": cost, "p99 ms beside them": result.percentile(0.99)}


def drop_page_cache(directory: Path) -> None:
    """Write back and evict every log file below `directory`, so that the next read is cold."""
    for path in directory.rglob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def cold_reads(side: Side, seconds: float, records: int) -> dict[str, float]:
    """How long produce requests wait while another client reads `cold`, and the MB/s that it reads."""
    drop_page_cache(side.data)
    reader = subprocess.Popen(
        [sys.executable, "-c", _COLD_READER, str(side.port), str(records), str(COLD_MB * 4), str(seconds + 1)],
        stdout=subprocess.PIPE,
    )
    window = produce_window(side.port, "warm", batch_of(1 << 10)[0], connections=1, in_flight=1)
    result = window(seconds, Meter(side.pid))
    out, _ = reader.communicate(timeout=60)
    return {
        "p50 ms": result.percentile(0.5),
        "p99 ms": result.percentile(0.99),
        "worst ms": max(result.latencies_ms),
        "cold reader MB/s": int(out) / 1e6 / (seconds + 1),
    }


def _rounds(title: str, key: str, found: dict[str, list[dict[str, float]]], ranged: tuple[str, ...]) -> Section:
    data = {name: {"rounds": each} for name, each in found.items()}
    return Section(title, compare.rows(found, ranged), "", key, data)


@table("idle", "1,000 idle connections")
def idle(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    preheat(run, warm)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in warm.brokers}
    for name in compare.alternate(list(warm.brokers), run.rounds):
        found[name].append(idle_connections(warm.brokers[name]))
    ranged = ("memory of 1,000 idle, MB", "p99 ms beside them")
    yield _rounds("1,000 idle connections on a warm broker", "idle-connections", found, ranged)


@table("cold-reads", "produce while another client reads from the disk")
def reads(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    preheat(run, warm)
    batch, records = batch_of(256 << 10)
    request = produce_frame("cold", 0, batch)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in warm.brokers}
    with ExitStack() as stack:
        for broker in warm.brokers.values():
            client = Client(broker.port)
            stack.callback(client.close)
            for topic in ("cold", "warm"):
                client.create_topic(topic, 1)
                stack.callback(partial(client.delete_topic, topic))
            for _ in range(COLD_MB * 4):
                client.socket.sendall(request)
                client.receive_frame()
        for name in compare.alternate(list(warm.brokers), run.rounds):
            found[name].append(cold_reads(warm.brokers[name], run.seconds, records))
        title = "Produce of 1 KB while another client reads data that is not in memory"
        yield _rounds(title, "cold-reads", found, ("p50 ms", "p99 ms"))
