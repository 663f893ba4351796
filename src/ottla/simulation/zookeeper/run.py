"""Sessions of Ottla's client with a model ensemble of three, under faults of the network and of servers.

Clients read and write a few nodes, set watches, keep a cache by a persistent watch, and begin a new session when one
has expired. `zookeeper` has faults, `zookeeper calm` has none: there no session may end and no request may fail,
however long a client is idle.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any

from ottla.simulation.world import World
from ottla.simulation.zookeeper.checks import Committed, View
from ottla.simulation.zookeeper.ensemble import Ensemble
from ottla.simulation.zookeeper.server import PORT, Server
from ottla.testing.loop import SimulatedLoop
from ottla.testing.transport import SimulatedTransport
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, NoNodeError, SessionExpiredError, ZooKeeperError
from ottla.zookeeper.messages import Check, Create, SetData
from ottla.zookeeper.watches import State, WatchedEvent

ZOOKEEPER, CALM = "zookeeper", "zookeeper calm"
KINDS = ZOOKEEPER, CALM

SERVERS = ("zk1", "zk2", "zk3")
CLIENTS = 3
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x")
CACHED = "/a"
TIMEOUT_MS = 3000
REQUEST_TIMEOUT_MS = 6000
SECONDS = 8.0, 16.0
SETTLED_S = 30.0
"""With all faults healed every session answers again within this."""


class User:
    """A client's process: one session after the other."""

    def __init__(self, play: ZooKeeperRun, name: str) -> None:
        self.play = play
        self.name = name
        self.random = play.world.random(name)
        self.loop: SimulatedLoop = play.world.process(name)
        self.network = play.world.network.of(self.loop, name)
        self.sessions = 0
        self.writes = 0
        self.client: ZooKeeper | None = None
        self.view: View | None = None
        self.cached: tuple[bytes, int] | None = None
        self._stale = asyncio.Event()

    async def main(self) -> None:
        while not self.play.is_over:
            await self._session()

    async def _session(self) -> None:
        self.sessions += 1
        view = self.view = View(self.play.committed, f"{self.name}/{self.sessions}", self.play.counted)
        self.play.views.append(view)
        connect = ",".join(f"{each}:{PORT}" for each in SERVERS)
        client = self.client = ZooKeeper(
            self.network,
            connect,
            random=self.random,
            session_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            auth=(("digest", b"user:secret"),),
        )
        client.on_state(partial(self._state, client, view))
        client.start()
        tasks = [self.loop.create_task(each) for each in (self._work(client, view), self._work(client, view))]
        tasks.append(self.loop.create_task(self._cache(client, view)))
        for task in tasks:
            await task
        if client.state is State.CONNECTING:  # the run is over
            return
        if client.state is State.EXPIRED:
            self.play.counted["sessions expired"] += 1
            try:
                await client.get("/a")
            except SessionExpiredError:
                return
            self.play.committed.violated(f"{view.name} has expired and still reads")

    def _state(self, client: ZooKeeper, view: View, state: State) -> None:
        if state is State.CONNECTED:
            self.play.counted["connected"] += 1
            if view.session_id not in (0, client.session_id):
                self.play.committed.violated(f"{view.name} went on with another session")
            view.session_id = client.session_id
        elif state is not State.CONNECTING:
            view.ended(state)
            if self.play.is_calm:
                self.play.committed.violated(f"{view.name} is {state.name} where nothing went wrong")

    async def _work(self, client: ZooKeeper, view: View) -> None:
        while not self.play.is_over and client.state < State.EXPIRED:
            if self.play.is_quiet:
                await asyncio.sleep(0.2)
                continue
            kinds = (self._read, self._read, self._list, self._write, self._multi, self._numbered, self._sync)
            try:
                await self.random.choice(kinds)(client, view)
                self.play.counted["answers"] += 1
            except ZooKeeperError as error:
                self.play.counted[f"failed: {getattr(error.code, 'name', error.code)}"] += 1
                if self.play.is_calm and error.code in (Code.CONNECTION_LOSS, Code.OPERATION_TIMEOUT):
                    self.play.committed.violated(f"{view.name}: {error} where nothing went wrong")
            long = self.random.random() < 0.02
            await asyncio.sleep(self.random.uniform(1, 7) if long else self.random.expovariate(10))

    async def _read(self, client: ZooKeeper, view: View) -> None:
        path = self.random.choice(PATHS)
        watch = view.watch(path, children=False) if self.random.random() < 0.5 else None
        if self.random.random() < 0.5:
            stat = await client.exists(path, watch)
            if stat is None:
                state = view.read(path, None, children=False)
            else:
                states = view.committed.states(path, children=False)
                value = next((each.value for each in states if _mzxid(each.value) == stat.mzxid), stat)
                state = view.read(path, value, children=False)
        else:
            try:
                data, stat = await client.get(path, watch)
            except NoNodeError:
                view.read(path, None, children=False)
                return  # which sets no watch
            state = view.read(path, (stat.mzxid, data), children=False)
        if watch is not None:
            view.set_at(watch, state)

    async def _list(self, client: ZooKeeper, view: View) -> None:
        path = self.random.choice(("/a", "/b"))
        watch = view.watch(path, children=True) if self.random.random() < 0.5 else None
        try:
            names, _ = await client.children(path, watch)
        except NoNodeError:
            view.read(path, None, children=True)
            return
        state = view.read(path, tuple(sorted(names)), children=True)
        if watch is not None:
            view.set_at(watch, state)

    def _text(self) -> bytes:
        self.writes += 1
        return f"{self.name}-{self.writes}".encode()

    async def _applied(self, view: View, text: bytes, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except ZooKeeperError as error:
            if error.maybe_applied:
                self.play.counted["outcomes unknown"] += 1
            else:
                view.refused.append(text)
            raise
        view.wrote(text)

    async def _write(self, client: ZooKeeper, view: View) -> None:
        path, text = self.random.choice(PATHS), self._text()
        action = self.random.random()
        if action < 0.4:
            await self._applied(view, text, client.create(path, text, ephemeral=self.random.random() < 0.3))
        elif action < 0.75:
            await self._applied(view, text, client.set(path, text))
        else:
            await client.delete(path)

    async def _multi(self, client: ZooKeeper, view: View) -> None:
        """As a controller commits: nothing happens unless the node that is checked still has its version."""
        found = await client.exists("/b")
        if found is None:
            await client.create("/b")
            return
        text = self._text()
        ops = (Check("/b", found.version), SetData("/b", text, found.version), Create(f"/{text.decode()}"))
        await self._applied(view, text, client.multi(ops))
        self.play.counted["multis"] += 1

    async def _numbered(self, client: ZooKeeper, view: View) -> None:
        text = self._text()
        work = client.create("/n-", text, ephemeral=self.random.random() < 0.5, sequence=True)
        await self._applied(view, text, work)

    async def _sync(self, client: ZooKeeper, view: View) -> None:
        before = self.play.ensemble.tree.zxid
        await client.sync()
        view.zxid = max(view.zxid, before)

    # A cache by a persistent watch.

    def _changed(self, event: WatchedEvent) -> None:
        self._stale.set()

    async def _cache(self, client: ZooKeeper, view: View) -> None:
        self._stale.set()
        watched = False
        while not self.play.is_over and client.state < State.EXPIRED:
            await self._stale.wait()
            self._stale.clear()
            try:
                if not watched:
                    await client.add_watch(CACHED, self._changed)
                    watched = True
                data, stat = await client.get(CACHED)
                self.cached = data, stat.mzxid
            except NoNodeError:
                self.cached = None
            except ZooKeeperError:
                self._stale.set()
                await asyncio.sleep(0.05)


def _mzxid(value: object) -> int | None:
    return value[0] if isinstance(value, tuple) else None


class Nemesis:
    """Breaks the network and servers, and heals all in the end."""

    def __init__(self, play: ZooKeeperRun) -> None:
        self.play = play
        self.random = play.world.random("nemesis")

    async def main(self) -> None:
        faults = [self._connection, self._under_way, self._cut] * 2
        faults += [self._clog, self._lag, self._lag, self._stop, self._leader]
        while True:
            await asyncio.sleep(self.random.uniform(0.05, 1))
            fault = self.random.choice(faults)
            self.play.counted["faults"] += 1
            self.play.counted[fault.__name__] += 1
            await fault()

    async def _connection(self) -> None:
        connections = self.play.world.network.connections()
        if connections:
            self._break(self.random.choice(connections))

    def _break(self, end: SimulatedTransport) -> None:
        network, random = self.play.world.network, self.random
        what = random.random()
        if what < 0.4:
            network.reset(end)
        elif what < 0.6:
            network.half_open(end)
        else:
            network.strand(end, random.uniform(0.01, 2))

    async def _under_way(self) -> None:
        """Break a connection whose client waits for an answer."""
        network = self.play.world.network
        for _ in range(200):
            await asyncio.sleep(0.002)
            for user in self.play.users:
                if user.client is not None and user.client.waiting:
                    for end in network.connections():
                        if end.host == user.name:
                            self._break(end)
                    return

    async def _cut(self) -> None:
        """Cut a client from one server, or from all of them: its session may expire."""
        network, user = self.play.world.network, self.random.choice(self.play.users)
        for each in [self.random.choice(SERVERS)] if self.random.random() < 0.5 else SERVERS:
            network.cut(user.name, each)
            network.cut(each, user.name)
        await asyncio.sleep(self.random.choice((0.3, 1, 3, 5)))
        network.heal()

    async def _clog(self) -> None:
        user = self.random.choice(self.play.users)
        self.play.world.network.clog(user.name, self.random.choice(SERVERS), self.random.uniform(0.2, 3))

    async def _lag(self) -> None:
        """Copies fall behind; clients of the others have seen more, and come to them."""
        world, random = self.play.world, self.random
        behind = random.sample(self.play.servers, random.choice((1, 2)))
        for server in behind:
            server.lags_until_s = world.time.now_s + random.uniform(1, 6)
        await asyncio.sleep(random.uniform(0.2, 1))
        names = [server.network.host for server in behind]
        for end in world.network.connections():
            if end.peer.host not in names and random.random() < 0.7:
                world.network.reset(end)

    async def _stop(self) -> None:
        server = self.random.choice(self.play.servers)
        server.is_up = False
        server.drop_all()
        await asyncio.sleep(self.random.uniform(0.1, 3))
        server.is_up = True

    async def _leader(self) -> None:
        """The leader is lost, and with it what it was handed and has not committed."""
        self.play.ensemble.lose_leader()
        for each in self.play.servers:
            each.drop_all()
        await asyncio.sleep(self.random.uniform(0.1, 2))
        self.play.ensemble.elect()

    def heal(self) -> None:
        self.play.world.network.heal()
        for server in self.play.servers:
            server.is_up = True
        if self.play.ensemble.is_down:
            self.play.ensemble.elect()


class ZooKeeperRun:
    seconds_max = 400.0

    def __init__(self, seed: int, kind: str) -> None:
        self.kind = kind
        self.is_calm = kind == CALM
        self.world = World(seed)
        random: Random = self.world.random("plan")
        self.seconds = random.uniform(*SECONDS)
        self.about = f"{CLIENTS} clients, {len(SERVERS)} servers, {self.seconds:.0f} s"
        self.counted: Counter[str] = Counter()
        self.is_over = False
        self.is_quiet = False
        """Nothing is written any more."""
        self.views: list[View] = []
        self.ensemble = Ensemble(self.world.process("ensemble"), self.world.random("ensemble"))
        self.committed = Committed(self.ensemble, self._violated)
        self.servers = []
        for name in SERVERS:
            loop = self.world.process(name)
            network = self.world.network.of(loop, name)
            self.servers.append(Server(loop, network, self.ensemble, self.world.random(name)))
        noted = self.ensemble.on_commit

        def committed(txn: Any) -> None:
            noted(txn)
            for each in self.servers:
                each.committed()

        self.ensemble.on_commit = committed
        self.users = [User(self, f"client{number}") for number in range(1, CLIENTS + 1)]

    def _violated(self, what: str) -> Exception:
        """Note it: a watcher may be its finder, and its errors are swallowed."""
        self.world.violations.append(what)
        return AssertionError(what)

    async def main(self) -> None:
        for server in self.servers:
            await server.start()
        tasks = [user.loop.create_task(user.main()) for user in self.users]
        nemesis = Nemesis(self)
        if not self.is_calm:
            breaking = asyncio.get_running_loop().create_task(nemesis.main())
            await asyncio.sleep(self.seconds)
            breaking.cancel()
            nemesis.heal()
        else:
            await asyncio.sleep(self.seconds / 2)
            self.is_quiet = True
            await asyncio.sleep(3 * TIMEOUT_MS / 1000)
            self.is_quiet = False
            await asyncio.sleep(self.seconds / 2)
        await self._settle()
        self.is_over = True
        for user in self.users:
            user._stale.set()
        while not all(task.done() for task in tasks):  # noqa: ASYNC110 - they are tasks of other loops
            await asyncio.sleep(0.1)
        for task in tasks:
            task.result()
        for user in self.users:
            for failure in user.loop.failures:
                self._violated(f"{user.name}: {failure}")

    async def _settle(self) -> None:
        """Every session answers, shows everything, and was told of everything."""
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        deadline_s = self.world.time.now_s + SETTLED_S
        self.is_quiet = True
        await asyncio.sleep(REQUEST_TIMEOUT_MS / 1000 + 2)  # what is under way is answered or given up
        if not self.is_calm:
            await self._change_unseen()
        for user in self.users:
            while not (user.client and user.view and user.client.state is State.CONNECTED):
                if self.world.time.now_s > deadline_s:
                    self._violated(f"{user.name} is not connected {SETTLED_S} s after the last fault")
                    return
                await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        for user in self.users:
            assert user.view is not None
            user.view.settled()
            last = self.committed.states(CACHED, children=False)[-1]
            cached = None if user.cached is None else (user.cached[1], user.cached[0])
            if cached != last.value:
                self._violated(f"{user.name} has cached {cached}, and {CACHED} is {last.value}")
        for view in self.views:
            view.check_refused()

    async def _change_unseen(self) -> None:
        """The last change comes while a client has no connection."""
        user, hand = self.users[0], self.ensemble.open(1 << 30, 0)
        for name in SERVERS:
            self.world.network.cut(user.name, name)
        for end in self.world.network.connections():
            if end.host == user.name:
                self.world.network.reset(end)
        exists = CACHED in self.ensemble.tree.nodes
        self.ensemble.write(hand.id, 0, (SetData(CACHED, b"last") if exists else Create(CACHED, b"last"),))
        await asyncio.sleep(0.5)
        self.world.network.heal()

    def missed(self) -> list[str]:
        wanted = ["answers", "multis", "watches fired", "connected"]
        if not self.is_calm:
            wanted += ["faults"]
        return [f"the run met no {each}" for each in wanted if not self.counted[each]]

    def counts(self) -> Counter[str]:
        return self.counted
