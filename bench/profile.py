"""Where a node's time goes under one load: `python -m bench.profile LOAD [FILE]`.

Loads: produce, small, fetch, round_trip, shared, jobs, members, classic_members.

Runs the node under cProfile, which slows it about threefold and makes small functions look dearer than they are; the
order of the rows is what to read.
"""

from __future__ import annotations

import io
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.method.brokers import Ottla, Side
from bench.method.counters import Meter
from bench.method.load import Client, batch_of
from bench.workloads import rebalances
from bench.workloads.consumer_rebalances import PARTITIONS_A_MEMBER, SETTINGS, Place, round_of, topic_of
from bench.workloads.group_requests import prepare
from bench.workloads.latency import TOPIC, round_trips
from bench.workloads.share_groups import LOADS as SHARED
from bench.workloads.share_groups import Queue
from bench.workloads.throughput import CONNECTIONS, SMALL_LOG, fetch_frames, fetch_window, produce_window
from peers.kafka import wait_until_answering

ROWS = 30
SECONDS = 5.0


class ProfiledOttla(Ottla):
    """A node under cProfile; its statistics are in `stats` once it has stopped."""

    stats: Path

    def start(self) -> float:
        overrides = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        self.stats = self.data.with_name("profile.stats")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cProfile",
                "-o",
                str(self.stats),
                "-m",
                "ottla.cli.main",
                "server",
                "start",
                str(self.data),
                *overrides,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return wait_until_answering("127.0.0.1", self.port, 60, self.process)


def _produce(side: Side, batch_bytes: int) -> None:
    client = Client(side.port)
    client.create_topic("profile", CONNECTIONS, SMALL_LOG)
    client.close()
    produce_window(side.port, "profile", batch_of(batch_bytes)[0])(SECONDS, Meter(side.pid))


def _fetch(side: Side) -> None:
    client = Client(side.port)
    frames = fetch_frames(client, "profile", 64 << 10)[0]
    client.close()
    fetch_window(side.port, frames)(SECONDS, Meter(side.pid))


def _round_trip(side: Side) -> None:
    client = Client(side.port)
    client.create_topic(TOPIC)
    client.close()
    round_trips(side.port)(SECONDS, Meter(side.pid))


def _shared(side: Side, name: str) -> None:
    load = SHARED[name]
    queue = Queue(side.port, load.topic, load.partitions)
    queue.fill(load.records, load.batch_bytes)
    load.window_of(queue)(SECONDS, Meter(side.pid))


def _members(side: Side) -> None:
    """A group of KIP-848 of 1,000 members, which one joins and leaves."""
    prepare(side, topic_of(1000), PARTITIONS_A_MEMBER * 1000)
    round_of(Place([side.pid], side.port), 1000, "profile")


def _classic_members(side: Side) -> None:
    """The same with classic groups."""
    prepare(side)
    rebalances.round_of(side, 1000, "profile")


LOADS: dict[str, Callable[[Side], None]] = {
    "produce": lambda side: _produce(side, 16 << 10),
    "small": lambda side: _produce(side, 1),
    "fetch": _fetch,
    "round_trip": _round_trip,
    "shared": lambda side: _shared(side, "deliveries"),
    "members": _members,
    "classic_members": _classic_members,
    "jobs": lambda side: _shared(side, "jobs"),
}


def profile(load: str) -> str:
    """The rows of the profile of one load, most own time first."""
    with tempfile.TemporaryDirectory(prefix="ottla-profile-") as base:
        node = ProfiledOttla(Path(base) / "data", SETTINGS if load.endswith("members") else {})
        node.start()
        try:
            LOADS[load](node)
        finally:
            node.stop()
        out = io.StringIO()
        pstats.Stats(str(node.stats), stream=out).strip_dirs().sort_stats("tottime").print_stats(ROWS)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    first = next(index for index, line in enumerate(lines) if "function calls" in line)
    return "\n".join(lines[first:]).strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in LOADS:
        sys.exit(__doc__)
    text = profile(sys.argv[1])
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text)
    print(text)
