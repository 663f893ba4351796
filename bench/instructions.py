"""User instructions per request of Ottla, counted by Valgrind: the same on any machine, loaded or not, to a percent.

For a change of the hot path: `python -m bench instructions` before and after. Where `perf stat` has hardware counters
the tables of rates count both sides; Valgrind needs none, but cannot run a JVM at a speed at which it would ever be
warm. The kernel's instructions are not counted (the tables of rates have the system calls), and no fetches, which
take another way under Valgrind: it does not know reads that do not wait.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.brokers import Ottla
from bench.group_requests import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    SETTINGS,
    commit_values,
    heartbeat_values,
    offset_fetch_values,
    prepare,
)
from bench.group_requests import FETCH_VERSION as OFFSET_FETCH_VERSION
from bench.load import Client, batch_of, frame, produce_frame
from bench.members import Group, Swarm
from bench.tables import Run, Section, table
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from peers.kafka import wait_until_answering

BURST = 5
"""Requests that are sent together and answered before the next: what a turn of the loop finds is always the same."""
WARM_BURSTS, COUNTED_BURSTS = 60, 200
TOPIC = "instructions"


class CountedOttla(Ottla):
    """A node under Valgrind's callgrind, which counts between `count(True)` and `count(False)`."""

    def start(self) -> float:
        overrides = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        self.out = self.data.with_name(self.data.name + ".callgrind")
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self.out}",
             sys.executable, "-m", "ottla.cli.main", "server", "start", str(self.data), *overrides],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        begin = time.perf_counter()
        wait_until_answering("127.0.0.1", self.port, 300, self.process)
        return time.perf_counter() - begin

    def count(self, on: bool) -> None:
        self._control("-i", "on" if on else "off")

    def counted(self) -> int:
        """Instructions since the last call, in all threads."""
        before = set(self.out.parent.glob(self.out.name + "*"))
        self._control("-d")
        (dump,) = set(self.out.parent.glob(self.out.name + "*")) - before
        return totals(dump)

    def _control(self, *arguments: str) -> None:
        subprocess.run(["callgrind_control", *arguments, str(self.pid)], capture_output=True, check=True)


def totals(dump: Path) -> int:
    """The sum of a file of callgrind. Raises ValueError where it has none."""
    for line in dump.read_text().splitlines():
        if line.startswith("totals:"):
            return int(line.split()[1])
    raise ValueError(f"{dump.name} has no totals")


def bursts(client: Client, frames: list[bytes], count: int) -> None:
    for index in range(count):
        client.socket.sendall(frames[index % len(frames)] * BURST)
        for _ in range(BURST):
            client.receive_frame()


def per_request(node: CountedOttla, client: Client, frames: list[bytes]) -> float:
    bursts(client, frames, WARM_BURSTS)
    node.count(True)
    bursts(client, frames, COUNTED_BURSTS)
    node.count(False)
    return node.counted() / (COUNTED_BURSTS * BURST)


def requests(node: CountedOttla) -> Iterator[tuple[str, list[bytes]]]:
    """What is counted, on a broker that has what the requests ask for."""
    client = Client(node.port)
    client.create_topic(TOPIC, 1)
    small, _ = batch_of(1)
    large, _ = batch_of(16 << 10)
    yield "produce, one 100-byte record", [produce_frame(TOPIC, 0, small)]
    yield "produce, 16 KB batch", [produce_frame(TOPIC, 0, large)]
    client.close()
    prepare(node)
    swarm = Swarm(node.port)
    member = swarm.add(Group("counted"), 1)[0]
    swarm.join([member])
    swarm.settle([member.group])
    swarm.drain([member.group])
    encode = partial(messages.encode_request, correlation_id=1, client_id="bench")
    for partitions in (1, 20):
        commits = [commit_values(member, partitions, turn) for turn in range(4)]
        yield (
            f"commit of {partitions} partition{'s' * (partitions > 1)}",
            [frame(encode(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, values=each)) for each in commits],
        )
    values = offset_fetch_values(member, 20)
    yield "offset fetch of 20 partitions", [frame(encode(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, values=values))]
    yield "heartbeat", [frame(encode(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, values=heartbeat_values(member)))]
    swarm.close()


@table("instructions", "user instructions per request of Ottla, under Valgrind")
def instructions(run: Run) -> Iterator[Section]:
    title = "User instructions per request, Ottla, five requests in flight on one connection"
    if shutil.which("valgrind") is None:
        yield Section(title, [], "Not counted: Valgrind is not installed.", "instructions")
        return
    run.cool()
    directory = run.base / "counted"
    directory.mkdir()
    node = CountedOttla(directory / "data", SETTINGS)
    node.start()
    found = {}
    try:
        for name, frames in requests(node):
            client = Client(node.port)
            found[name] = per_request(node, client, frames)
            client.close()
    finally:
        node.stop_and_delete()
    note = "Counted by Valgrind's callgrind; instructions in the kernel are not in it."
    rows = [{"request": name, "user instructions": f"{count:,.0f}"} for name, count in found.items()]
    yield Section(title, rows, note, "instructions", dict(found))
