"""The client against a real server: bytes that only the server's own code can judge."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from random import Random

import pytest

from ottla.network import SystemNetwork
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, NoNodeError
from ottla.zookeeper.messages import Check, Create, Delete, EventType, SetData
from ottla.zookeeper.watches import State, WatchedEvent
from peers.zookeeper import ZooKeeperPeer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperPeer]:
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache ZooKeeper with")
    with ZooKeeperPeer(tmp_path_factory.mktemp("zookeeper")) as peer:
        yield peer


def test_nodes_watches_and_multi_below_a_chroot(server: ZooKeeperPeer) -> None:
    async def walk() -> None:
        async with ZooKeeper(SystemNetwork(), server.connect, random=Random(1)) as root:
            await root.create("/below")
        events: list[WatchedEvent] = []
        client = ZooKeeper(SystemNetwork(), f"{server.connect}/below", random=Random(2))
        async with client:
            assert await client.exists("/a", events.append) is None
            created = await client.create("/a", b"x")
            assert created.path == "/a" and events == [WatchedEvent(EventType.NODE_CREATED, "/a", State.CONNECTED)]
            checked, made, stat, deleted = await client.multi(
                [Check("/a", 0), Create("/a/b", b"1"), SetData("/a", b"y", 0), Delete("/a/b")]
            )
            assert (checked, made.path, stat.version, deleted) == (None, "/a/b", 1, None)
            assert await client.get("/a") == (b"y", stat._replace(cversion=2, num_children=0, pzxid=stat.mzxid))
            with pytest.raises(NoNodeError) as refused:
                await client.multi([Create("/q"), Delete("/nothing"), Create("/r")])
            assert refused.value.path == "/nothing"
            codes = [each.code for each in refused.value.results]  # type: ignore[attr-defined]
            assert codes == [Code.OK, Code.NO_NODE, Code.RUNTIME_INCONSISTENCY]
            await client.add_watch("/a", events.append, recursive=True)
            numbered = await client.create("/a/n-", ephemeral=True, sequence=True)
            assert numbered.path == "/a/n-0000000001" and numbered.stat.ephemeral_owner == client.session_id
            assert events[1:] == [WatchedEvent(EventType.NODE_CREATED, numbered.path, State.CONNECTED)]
            assert (await client.children("/")).names == ["a"]
        assert client.state is State.CLOSED
        async with ZooKeeper(SystemNetwork(), f"{server.connect}/below", random=Random(3)) as after:
            assert (await after.children("/a")).names == []  # closing ended the session at the server

    asyncio.run(walk())
