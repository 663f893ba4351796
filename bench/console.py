"""What the console costs: `python -m bench.console [PART]`, where PART is `pages [TOPICS GROUPS]`, `search [MB]`,
`load [ROUNDS]` or `apart [ROUNDS]`.

Without arguments it runs all four:

- pages: the first page is asked for as soon as the console listens. Every other one is asked for afterwards: the first
  time, and the median of several. The goals are 200 ms for the first page and 500 ms for every page, with 10,000 topics
  and 10,000 groups.
- search: when the first match of a search over 1 GB is on the page, and how long all of it takes. The goal is a second.
- load: how long a producer waits while 20 tails are open and 5 searches read. The goal is a p99 that moves by no more
  than 10 %.
- apart: the same where the node has a core for itself, and console and browsers the other one.

A busy machine shows by the clock, less by the processor's time; the load average is printed for that.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
import urllib.request
from typing import NamedTuple

from bench.console_load import apart, cpu_s, load, search
from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.console.server import Console, Options
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker

TOPICS_AT_ONCE = 1_000
TIMES = 9
PATHS = (
    "/", "/topics", "/topics?page=100", "/topics?q=t0099", "/topics?sort=lag&order=desc", "/topics/t00000",
    "/topics/t00000/messages", "/groups", "/groups?sort=lag&order=desc", "/groups/g0000", "/transactions", "/security",
    "/brokers/1",
)  # fmt: skip


def fill(cluster: Cluster, topics: int, groups: int) -> None:
    names = [f"t{number:05}" for number in range(topics)]
    for begin in range(0, topics, TOPICS_AT_ONCE):
        rows = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names[begin : begin + TOPICS_AT_ONCE]
        ]
        cluster.ask_any(ApiKey.CREATE_TOPICS, {"topics": rows, "timeout": 60_000, "validate_only": False})
    for number in range(groups):
        cluster.commit_offsets(f"g{number:04}", {TopicPartition(names[number % topics], 0): 0})


class Taken(NamedTuple):
    """Milliseconds of a page: by the clock, and of the processor by the console and by the node."""

    wall: float
    cpu: float
    node: float


def taken_ms(url: str, node: int) -> Taken:
    begun, used, at_node = time.perf_counter(), time.process_time(), cpu_s(node)
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return Taken(
        (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000, (cpu_s(node) - at_node) * 1000
    )


def pages(topics: int = 10_000, groups: int = 10_000) -> None:
    with Broker(group_min_session_timeout_ms=1) as broker:
        cluster = Cluster(ClientConfig((broker.bootstrap,), request_timeout_s=120))
        fill(cluster, topics, groups)
        cluster.close()
        begun, listening = time.perf_counter(), threading.Event()
        console = Console(Options(broker.bootstrap, port=0))
        thread = threading.Thread(target=console.serve, args=(listening.set,), daemon=True)
        thread.start()
        listening.wait()
        print(f"{topics:,} topics, {groups:,} groups")
        print(f"{'listening':32} {(time.perf_counter() - begun) * 1000:8.0f} ms")
        first = taken_ms(console.url + "/", broker.pid)
        print(f"{'first page, at once':32} {first.wall:8.0f} ms, processor {first.cpu:4.0f} + {first.node:.0f} ms")
        for path in PATHS:
            first = taken_ms(console.url + path, broker.pid)
            later = [taken_ms(console.url + path, broker.pid) for _ in range(TIMES)]
            wall, cpu, node = (statistics.median(each) for each in zip(*later, strict=True))
            print(f"{path:32} {first.wall:8.0f} ms, then {wall:6.0f} ms, processor {cpu:4.0f} + {node:.0f} ms")
        console.stop()
        thread.join()


def main(arguments: list[str]) -> None:
    parts = {"pages": pages, "search": search, "load": load, "apart": apart}
    chosen = arguments[:1] or list(parts)
    for name in chosen:
        if name not in parts:
            sys.exit(f"there is no part {name}; known: {', '.join(parts)}")
        print(f"{name}, load average {os.getloadavg()[0]:.1f}")
        parts[name](*(int(each) for each in arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
