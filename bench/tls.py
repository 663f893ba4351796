"""Produce and fetch over TLS on both sides: what encryption costs, and who pays less for it.

The load is a process of its own whose sockets are wrapped by OpenSSL, one thread a connection; it is the same for both
sides, so the ratio of the sides is what counts, and the processor time of the broker beside it.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.method.brokers import Kafka, Ottla, Side
from bench.method.load import Client, batch_of, fetch_frame, produce_frame
from ottla.protocol.messages import ApiKey
from peers.kafka import free_port
from tests.certificates import Authority, ssl_settings

SECONDS = 6.0
WARM_S = 12.0
CONNECTIONS = 4
BATCHES = {"one 100-byte record": 1, "16 KB": 16 << 10, "64 KB": 64 << 10, "1 MB": 950_000}


class Connection(threading.Thread):
    """One request at a time, as fast as it is answered."""

    def __init__(self, port: int, context: ssl.SSLContext | None, frame: bytes, in_flight: int) -> None:
        super().__init__(daemon=True)
        sock: socket.socket = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock if context is None else context.wrap_socket(sock, server_hostname="localhost")
        self.frame = frame
        self.in_flight = in_flight
        self.answered = 0
        self.bytes = 0
        self.stopped = False
        self.room = memoryview(bytearray(1 << 21))

    def _answer(self) -> None:
        size = int.from_bytes(self._read(4), "big")
        self._read(size)
        self.answered += 1
        self.bytes += size

    def _read(self, size: int) -> memoryview:
        have = 0
        while have < size:
            count = self.sock.recv_into(self.room[have:size])
            if not count:
                raise ConnectionResetError
            have += count
        return self.room[:size]

    def run(self) -> None:
        for _ in range(self.in_flight):
            self.sock.sendall(self.frame)
        while not self.stopped:
            self._answer()
            self.sock.sendall(self.frame)
        for _ in range(self.in_flight):
            self._answer()
        self.sock.close()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(
    side: Side, port: int, context: ssl.SSLContext | None, frames: list[bytes], seconds: float
) -> tuple[float, float, int]:
    """Requests a second, the broker's microseconds for each, and the bytes of an answer."""
    connections = [Connection(port, context, frame, 2) for frame in frames]
    for each in connections:
        each.start()
    time.sleep(0.5)
    before, began_s, cpu = sum(each.answered for each in connections), time.perf_counter(), cpu_s(side.pid)
    time.sleep(seconds)
    count = sum(each.answered for each in connections) - before
    mean = sum(each.bytes for each in connections) // max(1, sum(each.answered for each in connections))
    took_s, spent_s = time.perf_counter() - began_s, cpu_s(side.pid) - cpu
    for each in connections:
        each.stopped = True
    for each in connections:
        each.join(30)
    return count / took_s, spent_s / max(count, 1) * 1e6, mean


def reconnected(side: Side, secured: int, context: ssl.SSLContext, count: int) -> None:
    """`count` clients connect at once over TLS; a bystander on a plain connection asks all the time meanwhile."""
    script = (
        "import asyncio, ssl, sys, time\n"
        "async def main():\n"
        "    context = ssl.create_default_context(cafile=sys.argv[2])\n"
        "    began = time.perf_counter()\n"
        "    made = await asyncio.gather(*(asyncio.open_connection('localhost', int(sys.argv[1]), ssl=context,"
        " ssl_handshake_timeout=300) for _ in range(int(sys.argv[3]))), return_exceptions=True)\n"
        "    print(sum(isinstance(each, tuple) for each in made), f'{time.perf_counter() - began:.1f}', flush=True)\n"
        "asyncio.run(main())\n"
    )
    trust = side.data.parent / "tls" / "trust.pem"
    client = Client(side.port)
    each = [sys.executable, "-c", script, str(secured), str(trust), str(count // 2)]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    waits = []
    while any(process.poll() is None for process in running):
        began_s = time.perf_counter()
        client.call(ApiKey.API_VERSIONS, 0, {})
        waits.append(time.perf_counter() - began_s)
        time.sleep(0.001)
    waits.sort()
    print([process.communicate()[0].strip() for process in running])
    for name, wait_s in (
        ("median", waits[len(waits) // 2]),
        ("99 %", waits[len(waits) * 99 // 100]),
        ("longest", waits[-1]),
    ):
        print(f"bystander: {name} {wait_s * 1e3:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reconnect", type=int, default=0, help="so many clients connect at once, nothing else")
    parser.add_argument("--side", choices=["ottla", "kafka"], action="append")
    parser.add_argument("--kind", choices=["produce", "fetch"], action="append")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--warm", type=float, default=WARM_S)
    arguments = parser.parse_args()
    authority = Authority()
    context = ssl.create_default_context(cadata=authority.pem)
    for name in arguments.side or ["ottla", "kafka"]:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
            secured = free_port()
            settings = {
                "log.retention.check.interval.ms": "2000",
                "log.segment.delete.delay.ms": "1000",
                **ssl_settings(Path(base) / "tls", authority, authority.issue("node")),
            }
            side: Side
            if name == "ottla":
                side = Ottla(Path(base) / "data", settings)
                side.settings["listeners"] += f",SSL://127.0.0.1:{secured}"
            else:
                settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"
                side = Kafka(Path(base) / "data", settings)
                own = f"PLAINTEXT://127.0.0.1:{side.port}"
                side.peer.settings["listeners"] = (
                    f"{own},SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{side.peer.controller_port}"
                )
                side.peer.settings["advertised.listeners"] = f"{own},SSL://127.0.0.1:{secured}"
            side.start()
            try:
                if arguments.reconnect:
                    reconnected(side, secured, context, arguments.reconnect)
                else:
                    rows(name, side, secured, context, arguments)
            finally:
                side.stop()


def rows(name: str, side: Side, secured: int, context: ssl.SSLContext, arguments: argparse.Namespace) -> None:
    client = Client(side.port)
    small = {"retention.bytes": str(256 << 20), "segment.bytes": str(256 << 20), "file.delete.delay.ms": "1000"}
    ends = {"plain": (side.port, None), "TLS": (secured, context)}
    for what, size in BATCHES.items():
        topic = f"t{size}"
        client.create_topic(topic, CONNECTIONS, small)
        client.create_topic(f"kept-{topic}", CONNECTIONS)
        batch, _ = batch_of(size, 100)
        for number in range(CONNECTIONS):
            client.socket.sendall(produce_frame(f"kept-{topic}", number, batch))
            client.receive_frame()
        frames = {
            "produce": [produce_frame(topic, number, batch) for number in range(CONNECTIONS)],
            "fetch": [fetch_frame(f"kept-{topic}", number, 0, 2 << 20) for number in range(CONNECTIONS)],
        }
        for kind, each in ((name, frames[name]) for name in arguments.kind or frames):
            for end, (port, tls) in ends.items():
                measured(side, port, tls, each, arguments.warm)
                rate, micros, mean = measured(side, port, tls, each, arguments.seconds)
                print(
                    f"{name:6} {kind:8} {what:20} {end:6} {rate:10,.0f} /s {micros:8.1f} us, answers of {mean:,} bytes",
                    flush=True,
                )
    client.close()


if __name__ == "__main__":
    main()
