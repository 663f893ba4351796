"""What requests that are made to take memory leave behind: nothing, once they are over. See docs/performance.md."""

from __future__ import annotations

import socket
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import attacks
from bench.attacks import Client, memory_mb, request
from ottla import allocators
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from tests.node import NodeProcess

SIZE = 0.2
"""Size of the attacks, a fifth of those of `bench flood`."""
PEAK_PER_BYTE = 150
"""Bytes of memory at most for a byte of a request; the buffers that it comes and goes in are not more than that."""
PEAK_MB_BESIDE = 15.0
"""Allowed peak beside small requests."""
PEAK_MB_SEEN = 10.0
LEFT_MB_MAX = 15.0
"""More than this no attack leaves: what is made once (classes, caches), and pages between objects that stay."""
LEFT_BY_ALL_MB_MAX = 25.0
"""Nor all of them, one after the other."""
GONE_SECONDS_MAX = 120.0
TWICE = ("ListOffsets", "Fetch", "CreateTopics of 38,000")
"""What the first one leaves is not left by each."""
BOMBS = ("zstd", "gzip", "snappy", "lz4", "64 bombs", "look-ups")
"""Compressed batches: at most one of them is in memory at a time, and it holds no more than a batch may."""


class CountedSocket(socket.socket):
    sent = 0

    def sendall(self, data: Any, *_: Any) -> None:
        CountedSocket.sent += len(data)
        super().sendall(data)

    def send(self, data: Any, *_: Any) -> int:
        taken = super().send(data)
        CountedSocket.sent += taken
        return taken


def connect(address: tuple[str, int], timeout: float) -> CountedSocket:
    made = CountedSocket()
    made.settimeout(timeout)
    made.connect(address)
    return made


@pytest.mark.shared_values
def test_every_attack_takes_a_multiple_of_its_bytes_and_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks.socket, "create_connection", connect)
    monkeypatch.setattr(attacks, "UNREAD_S", 0.2)
    node = NodeProcess(tmp_path / "data", {"num.partitions": str(attacks.PARTITIONS), "log.retention.ms": "-1"})
    node.start()
    assert node.process is not None
    pid = node.process.pid
    tried = larger = 0
    try:
        client = Client(node.port)
        created = [{"name": attacks.TOPIC, "num_partitions": attacks.PARTITIONS, "replication_factor": 1}]
        client.ask(request(ApiKey.CREATE_TOPICS, 5, topics=created, timeout_ms=30_000))
        client.ask(request(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]))  # 50 partitions for groups
        _, before = memory_mb(pid)
        for name, make in attacks.attacks(SIZE).items():
            for number in range(2 if name.startswith(TWICE) else 1):
                send = make()(node.port)
                Path(f"/proc/{pid}/clear_refs").write_text("5")
                CountedSocket.sent = 0
                _, level = memory_mb(pid)
                send()
                del send
                left = wait_until_below(pid, min(level + LEFT_MB_MAX, before + LEFT_BY_ALL_MB_MAX))
                peak, _ = memory_mb(pid)
                most = PEAK_MB_BESIDE + PEAK_PER_BYTE * CountedSocket.sent / 1e6
                if name.startswith(BOMBS):
                    most = PEAK_MB_BESIDE + DECOMPRESSED_BYTES_MAX / 1e6
                said = f"{name} {number}, {CountedSocket.sent:,} bytes: {before:.1f} MB at first, {level:.1f} before, "
                said += f"{peak:.1f} at its peak, {left:.1f} after"
                assert left <= min(level + LEFT_MB_MAX, before + LEFT_BY_ALL_MB_MAX), said
                assert peak <= level + most, said
                tried += 1
                larger += peak > level + PEAK_MB_SEEN
    finally:
        node.stop()
    assert tried >= 29 + len(TWICE)
    assert larger >= 8, "the attacks are too small to see what they leave"


def wait_until_below(pid: int, wanted_mb: float) -> float:
    """The memory that is left, once it is less than that, or after minutes in which it was not."""
    end = time.monotonic() + GONE_SECONDS_MAX
    while (left := memory_mb(pid)[1]) > wanted_mb and time.monotonic() < end:
        time.sleep(0.05)
    return left


def made_by_pymalloc(begin: Callable[[], None], end: Callable[[], None]) -> int:
    """Memory of 10,000 objects, some of which grow between and after."""
    kept: list[Any] = []
    before = sys.getallocatedblocks()
    begin()
    for number in range(10_000):
        kept.append(object())
        if number % 100 == 0:
            kept.append([number])
    found = sys.getallocatedblocks() - before
    end()
    for each in kept:
        if isinstance(each, list):
            each += range(20)
    return found


def test_objects_of_long_work_are_made_apart() -> None:
    assert made_by_pymalloc(allocators.begin_apart, allocators.end_apart) < 1000
    assert made_by_pymalloc(lambda: None, allocators.end_apart) >= 10_000


@pytest.mark.parametrize("started", ["before", "meanwhile"])
def test_who_keeps_something_beside_each_object_is_left_in_place(started: str) -> None:
    begin, end = allocators._switches()
    tracemalloc.start()
    try:
        if started == "before":
            begin, end = allocators._switches()
        assert made_by_pymalloc(begin, end) >= 10_000
        assert tracemalloc.get_traced_memory()[0] > 0
    finally:
        tracemalloc.stop()
    assert made_by_pymalloc(*allocators._switches()) < 1000
