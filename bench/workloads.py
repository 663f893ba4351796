"""What is measured: each workload takes a started broker and gives a `Result`."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.brokers import Kafka, Ottla, cpu_seconds, resident_mb
from bench.load import Client, Result, batch_of, fetch_frame, fetch_values, produce_frame, run
from ottla.protocol.messages import ApiKey

Side = Ottla | Kafka
CONNECTIONS = 6
IN_FLIGHT = 5


def produce(
    side: Side, batch_bytes: int, seconds: float, *, topic_config: dict[str, str] | None = None, record_size: int = 100
) -> Result:
    """acks=all, 6 connections with 5 requests in flight each, a partition per connection."""
    topic = f"produce-{batch_bytes}-{len(topic_config or {})}"
    client = Client(side.port)
    client.create_topic(topic, CONNECTIONS, {"retention.bytes": str(1 << 30), **(topic_config or {})})
    client.close()
    batch, _ = batch_of(batch_bytes, record_size)
    frames = [[produce_frame(topic, partition, batch)] for partition in range(CONNECTIONS)]
    return run(
        side.port, frames, in_flight=IN_FLIGHT, seconds=seconds, warmup_s=min(3.0, seconds), pid=side.pid,
        payload_bytes=len(batch), small_answers=True,
    )  # fmt: skip


def fetch(side: Side, seconds: float, *, total_mb: int = 192, fetch_bytes: int = 1 << 20) -> Result:
    """Read cached data from the start again and again: 6 connections, 2 requests in flight, 1 MB answers."""
    topic, partitions = "fetch", CONNECTIONS
    client = Client(side.port)
    client.create_topic(topic, partitions)
    batch, count = batch_of(60 << 10)
    per_partition = total_mb * (1 << 20) // len(batch) // partitions
    for partition in range(partitions):
        request = produce_frame(topic, partition, batch)
        for _ in range(per_partition):
            client.socket.sendall(request)
            client.receive_frame()
    client.close()
    step = fetch_bytes // len(batch)
    frames = [
        [fetch_frame(topic, p, index * count, fetch_bytes) for index in range(0, per_partition - step, step)]
        for p in range(partitions)
    ]
    return run(
        side.port, frames, in_flight=2, seconds=seconds, warmup_s=min(2.0, seconds), pid=side.pid,
        payload_bytes=0, small_answers=False,
    )  # fmt: skip


def round_trip(side: Side, count: int) -> Result:
    """One 100-byte record in to the same record out of a waiting fetch, one at a time."""
    producer, consumer = Client(side.port), Client(side.port)
    producer.create_topic("round-trip")
    batch, records = batch_of(100)
    request = produce_frame("round-trip", 0, batch)
    result = Result()
    cpu_start, start = cpu_seconds(side.pid), time.perf_counter()
    offset = 0
    for index in range(count + count // 5):
        consumer.send(ApiKey.FETCH, 12, fetch_values("round-trip", 0, offset, 1 << 20, wait_ms=5000))
        time.sleep(0.0005)  # let the fetch reach its wait
        sent = time.perf_counter()
        producer.socket.sendall(request)
        answer = consumer.receive_frame()
        took = time.perf_counter() - sent
        producer.receive_frame()
        if len(answer) < len(batch):
            raise RuntimeError("the fetch came back without the record")
        offset += records
        if index >= count // 5:
            result.latencies_ms.append(took * 1e3)
    result.requests = count
    result.seconds = time.perf_counter() - start
    result.cpu_seconds = cpu_seconds(side.pid) - cpu_start
    result.resident_mb = resident_mb(side.pid)
    producer.close()
    consumer.close()
    return result


def idle_connections(side: Side, count: int) -> tuple[float, float]:
    """(MB of memory that `count` idle connections cost, p99 in ms of produce requests beside them)."""
    before = resident_mb(side.pid)
    sockets = [socket.create_connection(("127.0.0.1", side.port)) for _ in range(count)]
    time.sleep(0.5)
    result = produce(side, 16 << 10, 2.0)
    cost = resident_mb(side.pid) - before
    for connection in sockets:
        connection.close()
    return cost, result.percentile(0.99)


def busy_connections(side: Side, count: int, seconds: float) -> Result:
    """`count` connections, each with one 1 KB produce request in flight."""
    client = Client(side.port)
    client.create_topic("busy", 8)
    client.close()
    batch, _ = batch_of(1 << 10)
    frames = [[produce_frame("busy", index % 8, batch)] for index in range(count)]
    return run(
        side.port, frames, in_flight=1, seconds=seconds, warmup_s=1.0, pid=side.pid, payload_bytes=len(batch),
        small_answers=True,
    )  # fmt: skip


def many_partitions(side: Side, count: int) -> dict[str, float]:
    """Create, restart with, and produce beside `count` partitions."""
    client = Client(side.port)
    start = time.perf_counter()
    for index in range(0, count, 500):
        client.create_topic(f"many-{index}", min(500, count - index))
    created = time.perf_counter() - start
    client.close()
    stop = side.stop()
    started = side.start()
    probe = Client(side.port)
    probe.wait_for_leaders("many-0", min(500, count))
    probe.close()
    gc.collect()
    idle = resident_mb(side.pid)
    result = produce(side, 16 << 10, 3.0)
    return {
        "create_s": created, "stop_s": stop, "start_s": started, "resident_mb": idle, "p99_ms": result.percentile(0.99)
    }  # fmt: skip


def many_segments(side: Side, count: int) -> dict[str, float]:
    """A log of `count` segments of 1 MB: restart, and fetch at random places."""
    client = Client(side.port)
    client.create_topic("segments", 1, {"segment.bytes": str(1 << 20)})
    batch, records = batch_of(256 << 10)
    request = produce_frame("segments", 0, batch)
    batches = count * 4
    for _ in range(batches):
        client.socket.sendall(request)
        client.receive_frame()
    client.close()
    side.stop()
    started = side.start()
    client = Client(side.port)
    client.wait_for_leaders("segments", 1)
    latencies = []
    for index in range(500):
        offset = (index * 7919) % batches * records
        begin = time.perf_counter()
        client.call(ApiKey.FETCH, 12, fetch_values("segments", 0, offset, 16 << 10))
        latencies.append((time.perf_counter() - begin) * 1e3)
    client.close()
    latencies.sort()
    return {"start_s": started, "resident_mb": resident_mb(side.pid), "fetch_p99_ms": latencies[494]}


def drop_page_cache(directory: Path) -> None:
    """Write back and evict every log file below `directory`, so that the next read is cold."""
    for path in directory.rglob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


_COLD_READER = """
import sys, time
from bench.load import Client, fetch_values
from ottla.protocol.messages import ApiKey
port, records, batches, seconds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
client, end, got, index = Client(port), time.monotonic() + seconds, 0, 0
while time.monotonic() < end:
    client.send(ApiKey.FETCH, 12, fetch_values("cold", 0, index % batches * records, 1 << 20))
    got += len(client.receive_frame())
    index += 4
print(got)
"""


def cold_reads(side: Side, seconds: float, total_mb: int = 512) -> tuple[Result, float]:
    """p99 of produce requests while another client reads data that is not in memory, and the MB/s that it reads."""
    client = Client(side.port)
    client.create_topic("cold", 1)
    client.create_topic("warm", 1)
    batch, records = batch_of(256 << 10)
    request = produce_frame("cold", 0, batch)
    batches = total_mb * 4
    for _ in range(batches):
        client.socket.sendall(request)
        client.receive_frame()
    client.close()
    drop_page_cache(side.data)
    reader = subprocess.Popen(
        [sys.executable, "-c", _COLD_READER, str(side.port), str(records), str(batches), str(seconds + 1)],
        stdout=subprocess.PIPE,
    )
    small, _ = batch_of(1 << 10)
    result = run(
        side.port, [[produce_frame("warm", 0, small)]], in_flight=1, seconds=seconds, warmup_s=0.5, pid=side.pid,
        payload_bytes=len(small), small_answers=True,
    )  # fmt: skip
    out, _ = reader.communicate(timeout=60)
    return result, int(out) / 1e6 / (seconds + 1)


def librdkafka(side: Side, seconds: float) -> Result:
    """confluent-kafka's producer as fast as it can: 100-byte values, its default batching, acks=all."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{side.port}", "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    )
    value = bytes(100)
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    result = Result()
    cpu_start, start = cpu_seconds(side.pid), time.perf_counter()
    sent = 0
    while time.perf_counter() - start < seconds:
        for _ in range(1000):
            while True:
                try:
                    producer.produce("librdkafka", value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
        sent += 1000
        producer.poll(0)
    producer.flush(60)
    if failed:
        raise RuntimeError(f"{len(failed)} records were not delivered: {failed[0]}")
    result.requests, result.bytes = sent, sent * 100
    result.seconds = time.perf_counter() - start
    result.cpu_seconds = cpu_seconds(side.pid) - cpu_start
    return result


def java_producer(side: Side, records: int) -> Result:
    """Kafka's own ProducerPerformance: 100-byte records, unthrottled, acks=all, its defaults otherwise."""
    from peers import kafka

    cpu_start = cpu_seconds(side.pid)
    out = kafka.tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java", "--num-records", str(records),
        "--record-size", "100", "--throughput", "-1", "--bootstrap-server", f"127.0.0.1:{side.port}",
    ).stdout.strip().splitlines()[-1]  # fmt: skip
    rate = float(out.split(",")[1].split()[0])
    result = Result(requests=records, bytes=records * 100, seconds=records / rate)
    result.cpu_seconds = cpu_seconds(side.pid) - cpu_start
    for part in out.split(","):
        words = part.split()
        if len(words) == 3 and words[2].rstrip(".") in ("50th", "99th", "99.9th"):
            result.latencies_ms += [float(words[0])]
    return result


def bare_produce(directory: Path, batch_bytes: int, seconds: float) -> Result:
    """The same produce load against the loop of `bench/bare.py`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare", str(directory / "bare")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    batch, _ = batch_of(batch_bytes)
    try:
        return run(
            port, [[produce_frame("bare", p, batch)] for p in range(CONNECTIONS)], in_flight=IN_FLIGHT,
            seconds=seconds, warmup_s=1.0, pid=process.pid, payload_bytes=len(batch), small_answers=True,
            check_answers=False,
        )  # fmt: skip
    finally:
        process.terminate()
        process.wait()
        for path in directory.glob("bare.*"):
            path.unlink()


def bare_fetch(directory: Path, fetch_bytes: int, seconds: float) -> Result:
    """The same fetch load against the loop of `bench/bare.py`, out of a cached file of 64 MB."""
    path = directory / "bare-file"
    path.write_bytes(bytes(64 << 20))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare", str(path), str(fetch_bytes)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    try:
        return run(
            port, [[fetch_frame("x", p, 0, fetch_bytes)] for p in range(CONNECTIONS)], in_flight=2, seconds=seconds,
            warmup_s=1.0, pid=process.pid, payload_bytes=0, small_answers=False,
        )  # fmt: skip
    finally:
        process.terminate()
        process.wait()
        path.unlink()
