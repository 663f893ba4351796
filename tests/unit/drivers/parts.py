"""The metadata parts of a node on a simulated disk, for the tests of each of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ottla.config.server import ServerConfig
from ottla.controller.decision import Decide
from ottla.drivers.metadata.metadata_services import MetadataServices
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.protocol.messages import ApiKey
from ottla.testing.disk import SimulatedFileSystem

T = TypeVar("T")
R = TypeVar("R")
LOG = "/data/__cluster_metadata-0"
ENDPOINTS = {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}


class Clock:
    """Every look at it is a millisecond later."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        self.now += 1
        return self.now


class Parts(MetadataServices):
    """With what tests say often in few words."""

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    async def register_broker(self) -> None:
        await self.lifecycle.register(ENDPOINTS, self.directory_ids)
        await self.lifecycle.unfence()

    async def submit(self, decide: Decide[R]) -> R:
        response = await self.controller.submit(decide)
        await self.publisher.wait_published(self.controller.image.offset)
        return response

    async def create(self, *names: str, partitions: int = 1) -> list[int]:
        """Create topics; their error codes."""
        topics = [
            {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": []} for name in names
        ]
        answer = await self.channel.send(ApiKey.CREATE_TOPICS, {"topics": topics})
        return [row["error_code"] for row in answer["topics"]]


def new_disk(seed: int = 1) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(random.Random(seed))
    fs.makedirs("/data")
    return fs


def parts(fs: SimulatedFileSystem, **settings: str) -> Parts:
    """Settings have underscores for dots."""
    overrides = {"log.dirs": "/data", **{name.replace("_", "."): value for name, value in settings.items()}}
    return Parts(fs, Clock(), random.Random(7), ServerConfig.load(overrides=overrides))


def run(fs: SimulatedFileSystem, work: Callable[[Parts], Awaitable[T]], *, stop: bool = True, **settings: str) -> T:
    """Start a node's metadata, register its broker, do some work, stop (or not)."""

    async def main() -> T:
        node = parts(fs, **settings)
        await node.start()
        await node.register_broker()
        result = await work(node)
        if stop:
            await node.stop()
        return result

    return asyncio.run(main())


async def image_of(node: Parts) -> MetadataImage:
    return node.image


def silent(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler for what a test brings about on purpose."""


class HeldFsyncs(SimulatedFileSystem):
    """A disk whose work in threads waits while `gate` is closed, as with a slow fsync."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(random.Random(seed))
        self.makedirs("/data")
        self.gate: asyncio.Event | None = None
        self.held = 0
        """How often something had to wait."""

    def close_gate(self) -> None:
        self.gate = asyncio.Event()

    def open_gate(self) -> None:
        assert self.gate is not None
        self.gate.set()
        self.gate = None

    async def run(self, work: Callable[[], T]) -> T:
        if self.gate is not None:
            self.held += 1
            await self.gate.wait()
        return await super().run(work)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time moves only when nothing is left to do, and then to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now_s = max(self.now_s, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_virtual(work: Awaitable[T]) -> T:
    """Run `work` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)  # type: ignore[arg-type]


async def turns(count: int = 50) -> None:
    """Let everything that can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)
