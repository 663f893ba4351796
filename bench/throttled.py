"""What a client notices of another one that a quota holds back, and of one that nothing holds back.

The other one knows nothing of quotas: it sends on as if it had not been asked to wait, so that the broker has to hold
it back. `python -m bench.throttled KIND PORT LEAD SECONDS` is that client, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.method import compare
from bench.method.brokers import Side
from bench.method.counters import Meter
from bench.method.load import Client, batch_of, fetch_frame, frame, produce_frame
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, SMALL_LOG, preheat, produce_window
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

CLIENT_ID = "held-back"
WRITTEN, READ = "held-back-written", "held-back-read"
CONNECTIONS, IN_FLIGHT = 4, 4
BATCH_BYTES = 64 << 10
FILLED_MB = 64
LEAD_S, LEAD_HELD_S = 2.0, 12.0
"""How long it runs before anything is measured. What eleven silent seconds have saved for it is used up at once, and
counts for as long."""
QUOTAS = {
    "nobody": {},
    "a writer": {},
    "a writer, held to 1 MB/s": {"producer_byte_rate": 1e6},
    "a reader": {},
    "a reader, held to 1 MB/s": {"consumer_byte_rate": 1e6},
    "one that asks for Metadata": {},
    "the same, held to 1% of the time": {"request_percentage": 1.0},
}
KINDS = {"a w": "writer", "a r": "reader", "one": "metadata", "the": "metadata"}
"""What the other client does, by the first letters of a name in `QUOTAS`."""


def frames_of(kind: str) -> list[bytes]:
    """The request that each connection sends all the time."""
    if kind == "writer":
        batch = batch_of(BATCH_BYTES)[0]
        return [produce_frame(WRITTEN, index, batch, client_id=CLIENT_ID) for index in range(CONNECTIONS)]
    if kind == "reader":
        return [fetch_frame(READ, index, 0, BATCH_BYTES, client_id=CLIENT_ID) for index in range(CONNECTIONS)]
    asked = {"topics": None, "allow_auto_topic_creation": False}
    return [frame(messages.encode_request(ApiKey.METADATA, 8, 1, CLIENT_ID, asked))] * CONNECTIONS


def keep_asking(kind: str, port: int, lead_s: float, seconds: float) -> int:
    """Have requests in flight all the time on every connection; returns the bytes sent and received of those that were
    answered in the `seconds` behind the lead."""
    moved = [0] * CONNECTIONS
    begins = time.monotonic() + lead_s

    def run(index: int, request: bytes) -> None:
        client = Client(port)
        client.socket.sendall(request * IN_FLIGHT)
        while True:
            size = len(client.receive_frame()) + len(request)
            moved[index] += size * (time.monotonic() >= begins)
            client.socket.sendall(request)

    for index, request in enumerate(frames_of(kind)):
        threading.Thread(target=run, args=(index, request), daemon=True).start()
    time.sleep(lead_s + seconds)
    return sum(moved)


@contextmanager
def quota(client: Client, rates: Mapping[str, float]) -> Iterator[None]:
    """Hold the other client to `rates` meanwhile."""

    def alter(*, remove: bool) -> None:
        ops = [{"key": key, "value": value, "remove": remove} for key, value in rates.items()]
        entity = [{"entity_type": "client-id", "entity_name": CLIENT_ID}]
        asked = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        if code := client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, asked)["entries"][0]["error_code"]:
            raise RuntimeError(f"quota: {code!r}")

    if rates:
        alter(remove=False)
    try:
        yield
    finally:
        if rates:
            alter(remove=True)


def beside(side: Side, name: str, seconds: float) -> dict[str, float]:
    """The wait of produce requests, one at a time, beside the other client."""
    window = produce_window(side.port, "beside", batch_of(1 << 10)[0], connections=1, in_flight=1)
    moved, client = 0, Client(side.port)
    with quota(client, QUOTAS[name]):
        other = None
        if name != "nobody":
            lead_s = LEAD_HELD_S if QUOTAS[name] else LEAD_S
            numbers = map(str, (side.port, lead_s, seconds))
            command = [sys.executable, "-m", "bench.throttled", KINDS[name[:3]], *numbers]
            other = subprocess.Popen(command, stdout=subprocess.PIPE)
            time.sleep(lead_s)
        result = window(seconds, Meter(side.pid))
        if other is not None:
            moved = int(other.communicate(timeout=60)[0])
    client.close()
    return {
        "p50 ms": result.percentile(0.5),
        "p99 ms": result.percentile(0.99),
        "p99.9 ms": result.percentile(0.999),
        "longest ms": max(result.latencies_ms),
        "the other one MB/s": moved / 1e6 / seconds,
    }


@table("throttled", "produce beside a client that a quota holds back")
def throttled(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    preheat(run, warm)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with ExitStack() as stack:
        for broker in warm.brokers.values():
            client = Client(broker.port)
            stack.callback(client.close)
            for topic, partitions in ((WRITTEN, CONNECTIONS), (READ, CONNECTIONS), ("beside", 6)):
                client.create_topic(topic, partitions, SMALL_LOG)
                stack.callback(partial(client.delete_topic, topic))
            batch = batch_of(BATCH_BYTES)[0]
            for number in range(FILLED_MB << 20 >> 16):
                client.socket.sendall(produce_frame(READ, number % CONNECTIONS, batch))
                client.receive_frame()
        for name in QUOTAS:
            if run.wants(name):
                for side in compare.alternate(list(warm.brokers), run.rounds):
                    figures = beside(warm.brokers[side], name, run.seconds)
                    found.setdefault(name, {}).setdefault(side, []).append(figures)
    rows = compare.pivot("beside", found, ("p50 ms", "p99 ms"), ("p99 ms",))
    kept = {name: {side: {"rounds": each} for side, each in by_side.items()} for name, by_side in found.items()}
    title = "Produce of 1 KB, one in flight, beside a client that a quota holds back"
    yield Section(title, rows, "", "throttled", kept)


if __name__ == "__main__":
    print(keep_asking(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])), flush=True)
