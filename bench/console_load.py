"""Searches over a large topic, and what tails and searches of a console cost the broker's producers.

`python -m bench.console search [MB]`, `load [ROUNDS]` and `apart [ROUNDS]` run them. The console and the producer that
is measured are processes of their own, as they are beside a real cluster.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from peers.kafka import free_port

RECORD_BYTES = 1_000
PARTITIONS = 4
RARE = (1_000, 10_000, 100_000)
"""One record in so many has the text that is searched for."""
TAILS, SEARCHES = 20, 5
PROBES_PER_S = 200
SECONDS = 4
"""How long a case is measured in each round."""
LIMIT_S = 60.0


class Beside(NamedTuple):
    """A node with a console beside it."""

    bootstrap: str
    url: str
    node: int
    """Process id."""
    console: int


@contextlib.contextmanager
def beside(topics: Mapping[str, int]) -> Iterator[Beside]:
    """Started as a user does, with topics of so many partitions. They have this program's session: so the console's
    niceness counts among them, and that of the browsers."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as base:
        bootstrap, url = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        options = [f"{base}/data", "--listen", bootstrap, "--console", url]
        command = [sys.executable, "-m", "ottla.cli.main", "server", "start", *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + LIMIT_S
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://{url}/").read()
                    break
                assert process.poll() is None, "the node has ended"
                assert time.monotonic() < until, "the console does not listen"
                time.sleep(0.05)
            admin = AdminClient({"bootstrap.servers": bootstrap})
            wanted = [NewTopic(name, partitions, 1) for name, partitions in topics.items()]
            for each in admin.create_topics(wanted).values():
                each.result()
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield Beside(bootstrap, f"http://{url}", process.pid, int(child))
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def cpu_s(pid: int) -> float:
    """Seconds of the processor of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(bootstrap: str, topic: str, megabytes: int) -> int:
    """Records of a kilobyte; returns how many. Texts to search for are in one of so many."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 200_000})
    count = megabytes * 1_000_000 // RECORD_BYTES
    body = "".join(f"{number:07d}" for number in range(200))
    for number in range(count):
        marks = "".join(f" one-in-{each}-marked" for each in RARE if number % each == each // 2)
        value = f'{{"number": {number}, "marks": "{marks}", "body": "{body}'[: RECORD_BYTES - 60]
        while True:
            try:
                producer.produce(topic, value, key=f"k{number}", partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    return count


def search(megabytes: int = 1_000) -> None:
    """First match on the page while a search is read, its whole answer, and how fast it reads."""
    with beside({"large": PARTITIONS}) as at:
        count = fill(at.bootstrap, "large", megabytes)
        print(f"{count:,} records, {count * RECORD_BYTES / 1e6:,.0f} MB in {PARTITIONS} partitions")
        for text in (*(f"one-in-{each}-marked" for each in RARE), "nowhere"):
            for begin in ("end", "begin"):
                _search(at.url, at.console, at.node, text, begin)


def _search(url: str, pid: int, broker: int, text: str, begin: str) -> None:
    run = f"bench-{time.monotonic_ns()}"
    query = urlencode({"q": text, "from": begin, "seconds": 30, "limit": 200, "run": run})
    answer: dict[str, object] = {}

    def ask() -> None:
        with urllib.request.urlopen(f"{url}/api/v1/topics/large/messages?{query}") as got:
            answer.update(json.load(got)["data"])

    before, at_broker, started = cpu_s(pid), cpu_s(broker), time.perf_counter()
    reading = threading.Thread(target=ask)
    reading.start()
    first: float | None = None
    seen = 0
    while reading.is_alive():
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/searches/{run}") as got:
            progress = json.load(got)
            seen = int(progress["bytes"])
            if first is None and progress["rows"]:
                first = time.perf_counter() - started
        time.sleep(0.02)
    reading.join()
    took = time.perf_counter() - started
    if first is None and answer["rows"]:
        first = took
    rows, scanned = len(answer["rows"]), int(str(answer["scanned"]))  # type: ignore[arg-type]
    shown = "none" if first is None else f"{first * 1000:,.0f} ms"
    print(
        f"{text:22} from the {begin:5}: first match {shown:>8}, {rows:3} in {took:5.2f} s, {scanned:>9,} records read, "
        f"{seen / 1e6 / took:4.0f} MB/s, processor: console {cpu_s(pid) - before:.2f} s, "
        f"broker {cpu_s(broker) - at_broker:.2f} s; {answer['stopped'] or 'to the end'}"
    )


# Producers run on other machines: this one never waits for a processor that the console or the browsers have. Threads
# that librdkafka starts are of the same priority.
PROBE = """
import os, sys, time
from confluent_kafka import Producer
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    print("the producer competes with the browsers for a processor", file=sys.stderr)
bootstrap, rate = sys.argv[1], float(sys.argv[2])
producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
for line in sys.stdin:
    until, taken = time.perf_counter() + float(line), []
    while time.perf_counter() < until:
        begun = time.perf_counter()
        producer.produce("probed", b"x" * 100)
        producer.flush()
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(max(0.0, 1 / rate - (time.perf_counter() - begun)))
    print(" ".join(f"{each:.3f}" for each in taken), flush=True)
"""


@dataclass
class Usage:
    """What processes used while something was measured."""

    seconds: float = 0.0
    console: float = 0.0
    node: float = 0.0
    quiet: int = 0
    """Seconds in which the host took no processor away."""
    taken: list[float] = field(default_factory=list)
    """Milliseconds of each record of those."""


class Case(NamedTuple):
    name: str
    tails: int
    tailed: str
    """Topic of the tails."""
    searches: int


CASES = (
    Case("nobody looks", 0, "probed", 0),
    Case(f"{TAILS} tails of an idle topic", TAILS, "idle", 0),
    Case(f"{TAILS} tails", TAILS, "probed", 0),
    Case(f"{SEARCHES} searches", 0, "probed", SEARCHES),
    Case(f"{TAILS} tails, {SEARCHES} searches", TAILS, "probed", SEARCHES),
)


def apart(rounds: int = 8) -> None:
    """`load` where the node has a core for itself, and console and browsers the other one."""
    load(rounds, is_apart=True)


def load(rounds: int = 8, *, is_apart: bool = False) -> None:
    """Milliseconds that a producer waits for its acknowledgements while nobody looks and while many do, in turn: the
    machine is not the same all the time. A second in which the host took a processor away is left out: it delays
    records by milliseconds, whoever looks."""
    found = {case: Usage() for case in CASES}
    with beside({"large": PARTITIONS, "probed": 1, "idle": 1}) as at, _probing(at.bootstrap) as probe:
        fill(at.bootstrap, "large", 300)
        if is_apart:
            _pin(at.node, 0)
            _pin(at.console, 1)
        probe(1)
        for number in range(rounds):
            # The other way around in each second round, so that no case always follows the same one.
            for case in CASES if number % 2 == 0 else CASES[::-1]:
                with _watching(at.url.removeprefix("http://"), case, is_apart=is_apart):
                    for _ in range(SECONDS):
                        _measure(found[case], at, lambda: probe(1))
    print(f"{'':28} {'seconds':>8} {'p50 ms':>7} {'p95 ms':>7} {'p99 ms':>7} {'moved':>6}   node CPU  console CPU")
    quiet = _percentile(found[CASES[0]].taken, 99)
    for case, usage in found.items():
        p50, p95, p99 = (_percentile(usage.taken, each) for each in (50, 95, 99))
        print(
            f"{case.name:28} {usage.quiet:3} of {rounds * SECONDS:2} {p50:7.2f} {p95:7.2f} {p99:7.2f} "
            f"{(p99 / quiet - 1) * 100:+5.0f}% {usage.node / usage.seconds * 100:8.1f} % "
            f"{usage.console / usage.seconds * 100:10.1f} %"
        )


def _percentile(taken: Sequence[float], percent: int) -> float:
    return statistics.quantiles(taken, n=100)[percent - 1] if len(taken) > 1 else math.nan


def _measure(usage: Usage, at: Beside, probe: Callable[[], list[float]]) -> None:
    began, at_console, at_node, stolen = time.monotonic(), cpu_s(at.console), cpu_s(at.node), _stolen()
    taken = probe()
    if _stolen() == stolen:
        usage.taken += taken
        usage.quiet += 1
    usage.seconds += time.monotonic() - began
    usage.console += cpu_s(at.console) - at_console
    usage.node += cpu_s(at.node) - at_node


def _pin(pid: int, core: int) -> None:
    """A process to a core, with the threads that it has and will have."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # one that has ended
            os.sched_setaffinity(int(thread.name), {core})


def _stolen() -> int:
    """Ticks in which the host had a processor of this machine at work elsewhere."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8])


@contextlib.contextmanager
def _probing(bootstrap: str) -> Iterator[Callable[[float], list[float]]]:
    """A producer that is a process of its own; called with seconds it says what each record took."""
    command = [sys.executable, "-c", PROBE, bootstrap, str(PROBES_PER_S)]
    prober = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert prober.stdin is not None and prober.stdout is not None

    def probe(seconds: float) -> list[float]:
        print(seconds, file=prober.stdin, flush=True)
        return [float(each) for each in prober.stdout.readline().split()]  # type: ignore[union-attr]

    try:
        yield probe
    finally:
        prober.stdin.close()
        prober.wait(LIMIT_S)


@contextlib.contextmanager
def _watching(address: str, case: Case, *, is_apart: bool) -> Iterator[None]:
    """Browsers that look as the case says, in a process of their own, which like those on other machines takes no
    processor from the node."""
    if not (case.tails or case.searches):
        yield
        return
    words = [address, case.tailed, str(case.tails), "large", str(case.searches)]
    command = ["nice", "-n", "19", sys.executable, "-m", "bench.console_watch", *words]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert watcher.stdin is not None and watcher.stdout is not None
    try:
        if is_apart:
            _pin(watcher.pid, 1)
        assert watcher.stdout.readline(), "the browsers have ended"
        time.sleep(0.5)  # the first rounds are over
        yield
        assert watcher.poll() is None, "the browsers have ended"
    finally:
        watcher.stdin.close()
        watcher.wait(LIMIT_S)
