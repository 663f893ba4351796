"""`AsyncBroker` and `AsyncCluster`: `Broker` and `Cluster` for tests with `async def`, on asyncio.

Each method runs the one of the same name in a thread, so the event loop goes on. Nothing else is different: what is not
here is reached through `sync`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from ottla.testing.broker import Broker, Setting, Topics
from ottla.testing.cluster import Cluster
from ottla.testing.records import TIMEOUT_S, Headers, Record, Text, Value

T = TypeVar("T", bound=Broker | Cluster)


class _Asynchronous(Generic[T]):
    """What both have."""

    def __init__(self, sync: T) -> None:
        self.sync: T = sync

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return self.sync.bootstrap

    async def start(self) -> Self:
        await self.sync.__aenter__()
        return self

    async def stop(self) -> None:
        await asyncio.to_thread(self.sync.stop)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.sync.__aexit__(kind, error, trace)

    async def produce(
        self,
        topic: str,
        values: Value | Iterable[Value],
        *,
        key: Text = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp: int = -1,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  # as `Broker`'s
    ) -> list[Record]:
        """As `Broker.produce`."""
        return await asyncio.to_thread(
            self.sync.produce,
            topic,
            values,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            timeout=timeout,
        )

    async def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
        group: str | None = None,
        read_committed: bool = True,
    ) -> list[Record]:
        """As `Broker.consume`. Cancelled, it ends soon, and commits nothing."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(
                self.sync.consume,
                topic,
                count,
                timeout=timeout,
                group=group,
                read_committed=read_committed,
                given_up=given_up,
            )
        finally:
            given_up.set()

    async def create_topic(self, name: str, partitions: int | None = None, **settings: Setting) -> str:
        """As `Broker.create_topic`."""
        return await asyncio.to_thread(self.sync.create_topic, name, partitions, **settings)

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync).removeprefix('<')}"


class AsyncBroker(_Asynchronous[Broker]):
    """A `Broker` whose methods are coroutines.

    async with AsyncBroker(topics={"orders": 3}) as broker:
        await broker.produce("orders", "two coffees")
        [record] = await broker.consume("orders", 1)
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        topics: Topics = (),
        keep: str | os.PathLike[str] | None = None,
        port: int = 0,
        **keywords: Setting,
    ) -> None:
        """As `Broker`."""
        super().__init__(Broker(settings, topics=topics, keep=keep, port=port, **keywords))

    @classmethod
    def of(cls, broker: Broker) -> AsyncBroker:
        """The methods of a broker that somebody else starts and stops."""
        self = cls.__new__(cls)
        _Asynchronous.__init__(self, broker)
        return self

    @property
    def port(self) -> int:
        return self.sync.port

    @property
    def directory(self) -> Path:
        return self.sync.directory

    @property
    def pid(self) -> int:
        return self.sync.pid

    @property
    def output(self) -> str:
        return self.sync.output

    async def restart(self) -> None:
        await asyncio.to_thread(self.sync.restart)

    async def shut_down(self) -> None:
        await asyncio.to_thread(self.sync.shut_down)

    async def kill(self) -> None:
        await asyncio.to_thread(self.sync.kill)

    async def clear(self) -> None:
        await asyncio.to_thread(self.sync.clear)


class AsyncCluster(_Asynchronous[Cluster]):
    """A `Cluster` whose methods are coroutines; what takes no time (`nodes`, `addresses`, `pid`) is at `sync`."""

    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, Setting] | None = None,
        *,
        topics: Topics = (),
        keep: str | os.PathLike[str] | None = None,
        **keywords: Setting,
    ) -> None:
        """As `Cluster`."""
        super().__init__(Cluster(nodes, settings, topics=topics, keep=keep, **keywords))

    async def kill(self, node: int) -> None:
        await asyncio.to_thread(self.sync.kill, node)

    async def pause(self, node: int) -> None:
        await asyncio.to_thread(self.sync.pause, node)

    async def resume(self, node: int) -> None:
        await asyncio.to_thread(self.sync.resume, node)

    async def restart(self, node: int) -> None:
        await asyncio.to_thread(self.sync.restart, node)

    async def partition(self, *groups: int | Iterable[int]) -> None:
        await asyncio.to_thread(self.sync.partition, *groups)

    async def cut(self, source: int, target: int) -> None:
        await asyncio.to_thread(self.sync.cut, source, target)

    async def heal(self) -> None:
        await asyncio.to_thread(self.sync.heal)

    async def leader(self, topic: str, partition: int = 0, *, seen_by: int | None = None) -> int:
        return await asyncio.to_thread(self.sync.leader, topic, partition, seen_by=seen_by)
