"""Searches over a large topic, and what tails and searches of a console cost the broker's producers.

`python -m bench.console search [MB]` and `python -m bench.console load [SECONDS]` run it. The console and the producer
that is measured are processes of their own, as they are beside a real cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

from confluent_kafka import Producer

from ottla.testing import Broker

RECORD_BYTES = 1_000
PARTITIONS = 4
RARE = (1_000, 10_000, 100_000)
"""One record in so many has the text that is searched for."""
TAILS, SEARCHES = 20, 5
PHASES = 4
"""Quiet and busy ones, in turn: a machine is not the same all the time."""
PROBES_PER_S = 100
LIMIT_S = 60.0


@contextlib.contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """Address and process of a console."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    options = json.dumps({"bootstrap": bootstrap, "port": port})
    command = [sys.executable, "-m", "ottla.console", options]  # as a node starts it
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/").read()
                break
            assert process.poll() is None, "the console has ended"
            assert time.monotonic() < until, "the console does not listen"
            time.sleep(0.05)
        yield url, process.pid
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
    with Broker(topics={"large": PARTITIONS}) as broker:
        count = fill(broker.bootstrap, "large", megabytes)
        print(f"{count:,} records, {count * RECORD_BYTES / 1e6:,.0f} MB in {PARTITIONS} partitions")
        with console(broker.bootstrap) as (url, pid):
            for text in (*(f"one-in-{each}-marked" for each in RARE), "nowhere"):
                for begin in ("end", "begin"):
                    _search(url, pid, broker.pid, text, begin)


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


PROBE = """
import sys, time
from confluent_kafka import Producer
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


def load(seconds: int = 10) -> None:
    """Milliseconds that a producer waits for its acknowledgements, with and without tails and searches."""
    with Broker(topics={"large": PARTITIONS, "probed": 1}) as broker:
        fill(broker.bootstrap, "large", 300)
        with console(broker.bootstrap) as (url, pid):
            command = [sys.executable, "-c", PROBE, broker.bootstrap, str(PROBES_PER_S)]
            prober = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert prober.stdin is not None
            assert prober.stdout is not None

            def probe() -> list[float]:
                print(seconds, file=prober.stdin, flush=True)
                return [float(each) for each in prober.stdout.readline().split()]  # type: ignore[union-attr]

            probe()
            quiet: list[float] = []
            busy: list[float] = []
            for _ in range(PHASES):
                quiet += probe()
                before, at_broker = cpu_s(pid), cpu_s(broker.pid)
                with _watching(url):
                    busy += probe()
                print(
                    f"of {seconds:.0f} s the console used {cpu_s(pid) - before:.2f} s of a processor, "
                    f"the broker {cpu_s(broker.pid) - at_broker:.2f} s"
                )
            prober.stdin.close()
            prober.wait(LIMIT_S)
    for name, taken in (("nobody looks", quiet), (f"{TAILS} tails, {SEARCHES} searches", busy)):
        cuts = statistics.quantiles(taken, n=100)
        print(f"{name:24} {len(taken):6,} records: p50 {cuts[49]:6.2f} ms, p99 {cuts[98]:6.2f} ms")


@contextlib.contextmanager
def _watching(url: str) -> Iterator[None]:
    """Open tails of the topic that is written to, and searches that find nothing, one after the other."""
    over = threading.Event()

    def tail() -> None:
        with urllib.request.urlopen(f"{url}/topics/probed/tail/events", timeout=LIMIT_S) as stream:
            while not over.is_set() and stream.readline():
                pass

    def searching() -> None:
        while not over.is_set():
            run = f"bench-{time.monotonic_ns()}-{threading.get_ident()}"
            address = f"{url}/topics/large/messages?{urlencode({'q': 'nowhere', 'seconds': 30, 'run': run})}"
            asking = threading.Thread(target=_read, args=(address,))
            asking.start()
            while asking.is_alive():
                if over.is_set():
                    with contextlib.suppress(OSError):
                        urllib.request.urlopen(urllib.request.Request(f"{url}/searches/{run}/stop", method="POST"))
                asking.join(0.1)

    kinds: list[Callable[[], None]] = [tail] * TAILS + [searching] * SEARCHES
    threads = [threading.Thread(target=each, daemon=True) for each in kinds]
    for each in threads:
        each.start()
    time.sleep(1.0)  # all are open: what is measured is that they are, and not that they begin
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join(LIMIT_S)


def _read(address: str) -> None:
    with urllib.request.urlopen(address) as answer:
        answer.read()
