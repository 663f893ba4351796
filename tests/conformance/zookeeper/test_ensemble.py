"""A real ensemble of three: the leader is killed, and a session is ended by the ensemble.

The simulation has a model of how servers keep watches and sessions over such changes; this is what they really do.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.network import SystemNetwork
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, SessionExpiredError, ZooKeeperError
from ottla.zookeeper.messages import EventType
from ottla.zookeeper.watches import State, WatchedEvent
from peers.zookeeper import ZooKeeperEnsemble

TIMEOUT_MS = 8000


class Events:
    """What a watcher was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.found: list[WatchedEvent] = []
        self._more = asyncio.Event()

    def __call__(self, event: WatchedEvent) -> None:
        self.found.append(event)
        self._more.set()

    async def until(self, kind: EventType, path: str) -> None:
        while not any(each.type is kind and each.path == path for each in self.found):
            self._more.clear()
            await self._more.wait()


async def retried(work: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat what fails because there is no leader; a write that was applied, unheard, is done."""
    while True:
        try:
            return await work()
        except ZooKeeperError as error:
            if error.code is Code.NODE_EXISTS:
                return None
            if error.code not in (Code.CONNECTION_LOSS, Code.OPERATION_TIMEOUT):
                raise


def of(connect: str, seed: int) -> ZooKeeper:
    return ZooKeeper(
        SystemNetwork(), connect, random=Random(seed), session_timeout_ms=TIMEOUT_MS, request_timeout_ms=60_000
    )


async def watches_survive_the_leader(ensemble: ZooKeeperEnsemble) -> None:
    leader = ensemble.wait_leader()
    events, persistent = Events(), Events()
    others = ",".join(each.connect for number, each in ensemble.peers.items() if number != leader)
    async with of(ensemble.connect, 1) as watching, of(others, 2) as writing:
        await watching.wait_connected(60_000)
        await watching.create("/a", b"1")
        await watching.create("/own", ephemeral=True)
        await watching.get("/a", events)
        await watching.exists("/new", events)
        await watching.children("/a", events)
        await watching.add_watch("/a", persistent)
        session, lost = watching.session_id, asyncio.Event()
        watching.on_state(lambda state: lost.set() if state is State.CONNECTING else None)
        ensemble.peers[leader].kill()
        await lost.wait()  # every server closes its connections when it has no leader
        await retried(lambda: writing.set("/a", b"2", 0))
        await retried(lambda: writing.create("/new"))
        await retried(lambda: writing.create("/a/child"))
        await events.until(EventType.NODE_DATA_CHANGED, "/a")
        await events.until(EventType.NODE_CREATED, "/new")
        await events.until(EventType.NODE_CHILDREN_CHANGED, "/a")
        assert len(events.found) == 3 and watching.session_id == session
        assert (await retried(lambda: watching.get("/a"))).data == b"2"
        assert any(each.type is EventType.NONE and each.state is State.CONNECTED for each in persistent.found)
        assert (await writing.exists("/own")) is not None


async def the_ensemble_ends_a_session(connect: str) -> None:
    events = Events()
    async with of(connect, 3) as client, of(connect, 4) as other:
        await client.create("/mine", ephemeral=True)
        await client.exists("/never", events)
        ended = asyncio.Event()
        client.on_state(lambda state: ended.set() if state is State.EXPIRED else None)
        # Whoever has the id and the password may go on with a session, and end it.
        thief = of(connect, 5)
        thief._session.id, thief._session._password = client.session_id, client._session._password
        thief.start()
        await thief.wait_connected(60_000)
        assert thief.session_id == client.session_id
        await thief.close()
        await ended.wait()
        assert events.found == [WatchedEvent(EventType.NONE, "", State.EXPIRED)]
        for call in (lambda: client.get("/mine"), lambda: client.set("/mine", b""), lambda: client.sync()):
            with pytest.raises(SessionExpiredError):
                await call()
        await other.sync()
        assert await other.exists("/mine") is None


def test_a_lost_leader_and_an_ended_session(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java here to run Apache ZooKeeper with")
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        asyncio.run(asyncio.wait_for(watches_survive_the_leader(ensemble), 240))
        asyncio.run(asyncio.wait_for(the_ensemble_ends_a_session(ensemble.connect), 240))
