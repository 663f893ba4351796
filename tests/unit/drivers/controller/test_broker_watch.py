"""A controller tells a broker whose process is gone from one that it only cannot reach, hear or wait for."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.drivers.controller.broker_watch import BrokerWatch, WatchSettings
from ottla.drivers.metadata.lost_brokers import ANSWER_S, LOST_S_MAX, LostBrokers
from ottla.metadata.image import EMPTY_IMAGE, BrokerRegistration, Endpoint, SecurityProtocol
from ottla.model import random_uuid
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.metadata.metadata_view import MetadataView
from ottla.testing.loop import SimulatedLoop, SimulatedTime
from ottla.testing.network import SimulatedNetwork

PORT = 9092
CONTROLLER = 100
SETTINGS = WatchSettings(CONTROLLER, "PLAINTEXT", confirm_s=0.1, setup_s=5.0)


class Listening(asyncio.Protocol):
    """A broker's listener: answers ApiVersions."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= 4 and len(self.received) >= 4 + struct.unpack_from(">i", self.received)[0]:
            header = messages.read_header(self.received[4:])
            keys = [{"api_key": ApiKey.API_VERSIONS, "min_version": 0, "max_version": 4}]
            answer = messages.encode_response(
                ApiKey.API_VERSIONS, header.api_version, header.correlation_id, {"error_code": 0, "api_keys": keys}
            )
            self.transport.write(struct.pack(">i", len(answer)) + answer)


class Session(asyncio.Protocol):
    """The controller's end of a connection that heartbeats come over."""

    callback: Callable[[], None]

    def when_lost(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def connection_lost(self, error: Exception | None) -> None:
        self.callback()


class World:
    """A controller and brokers 1 to 3, as registered; `active`, `image` and `fence` are the active controller's."""

    def __init__(self, settings: WatchSettings = SETTINGS) -> None:
        self.time = SimulatedTime(1)
        self.network = SimulatedNetwork(self.time)
        self.loop = self.time.loop("controller")
        self.brokers = {number: self.time.loop(f"broker{number}") for number in (1, 2, 3)}
        self.network_here = self.network.of(self.loop, "controller")
        random = self.time.stream("ids")
        registered = {
            number: BrokerRegistration(
                id=number,
                epoch=10 + number,
                incarnation_id=random_uuid(random),
                features={},
                rack=None,
                fenced=False,
                endpoints={"PLAINTEXT": Endpoint(f"broker{number}", PORT, SecurityProtocol.PLAINTEXT)},
            )
            for number in self.brokers
        }
        self.image = replace(EMPTY_IMAGE, brokers=registered)
        self.active = True
        self.fenced: list[int] = []
        self.watch = BrokerWatch(self.network_here, self, settings)
        self.sessions: dict[int, Session] = {}
        for number in self.brokers:
            self.listen(number)
        self.do(self._accept_sessions())

    def fence(self, node_id: int) -> None:
        self.fenced.append(node_id)
        self.change(node_id, fenced=True)

    def change(self, node_id: int, **changes: Any) -> None:
        brokers = {**self.image.brokers, node_id: replace(self.image.brokers[node_id], **changes)}
        self.image = replace(self.image, brokers=brokers)

    def listen(self, number: int) -> None:
        network = self.network.of(self.brokers[number], f"broker{number}")

        async def listen() -> None:
            (await network.listen(Listening, f"broker{number}", PORT)).start()

        self.do(listen(), self.brokers[number])

    async def _accept_sessions(self) -> None:
        (await self.network_here.listen(self._accept, "controller", PORT)).start()

    def _accept(self) -> Session:
        self.accepted = Session()
        return self.accepted

    def beat(self, number: int, *, again: bool = True) -> None:
        """A heartbeat, over a new connection or the one before."""
        if again:

            async def connect() -> None:
                await self.network.of(self.brokers[number], f"broker{number}").connect(
                    asyncio.Protocol, "controller", PORT
                )

            self.do(connect(), self.brokers[number])
            self.sessions[number] = self.accepted
        self.call(lambda: self.watch.heard(number, self.image.brokers[number].epoch, self.sessions[number]))

    def call(self, work: Callable[[], None]) -> None:
        async def do() -> None:
            work()

        self.do(do())

    def do(self, work: Any, loop: SimulatedLoop | None = None) -> None:
        task = (loop or self.loop).create_task(work)
        self.time.run(until=task.done, seconds_max=200)
        task.result()

    def kill(self, number: int, *, power_loss: bool = False) -> None:
        self.brokers[number].kill()
        self.network.ended(self.brokers[number], f"broker{number}", power_loss=power_loss)

    def reset(self, number: int) -> None:
        """The network breaks the connection of a broker's heartbeats."""
        (connection,) = [each for each in self.network.connections() if each.host == f"broker{number}"]
        self.network.reset(connection)

    def cut(self, source: str, target: str) -> None:
        self.network.cut(source, target)

    def wait(self, seconds: float = 60) -> None:
        self.do(asyncio.sleep(seconds))


def test_a_killed_process_is_fenced_at_once() -> None:
    world = World()
    for number in world.brokers:
        world.beat(number)
    world.kill(2)
    killed_s = world.time.now_s
    world.time.run(until=lambda: world.fenced, seconds_max=60)
    assert world.fenced == [2]
    assert SETTINGS.confirm_s <= world.time.now_s - killed_s < 2 * SETTINGS.confirm_s
    world.wait()
    assert world.fenced == [2]


def paused(world: World) -> None:
    world.brokers[2].pause()
    world.reset(2)


def cut_off(*ways: tuple[str, str]) -> Callable[[World], None]:
    def cut(world: World) -> None:
        for way in ways:
            world.cut(*way)
        world.reset(2)

    return cut


TO, BACK = ("controller", "broker2"), ("broker2", "controller")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda world: world.reset(2), id="the connection is reset"),
        pytest.param(lambda world: world.kill(2, power_loss=True), id="the machine is gone"),
        pytest.param(paused, id="it hangs"),
        pytest.param(cut_off(TO), id="it cannot be reached"),
        pytest.param(cut_off(BACK), id="it cannot reach"),
        pytest.param(cut_off(TO, BACK), id="neither"),
    ],
)
def test_what_is_no_proof_is_left_to_the_session(fault: Callable[[World], None]) -> None:
    world = World()
    world.beat(2)
    fault(world)
    world.wait()
    assert world.fenced == []


def test_a_suspect_that_dies_before_its_next_heartbeat_is_fenced_at_once() -> None:
    """It answered when it was asked, and nobody would hear of its end: no connection of its own is left."""
    world = World()
    world.beat(2)
    world.reset(2)
    world.wait(5)
    assert world.fenced == []
    world.kill(2)
    world.wait(1)
    assert world.fenced == [2]


def test_a_heartbeat_ends_the_suspicion() -> None:
    """It lives, whatever its listener does."""
    world = World()
    world.beat(2)
    world.kill(2)
    world.do(asyncio.sleep(SETTINGS.confirm_s / 2))
    world.brokers[2] = world.time.loop("broker2 again")
    world.beat(2)
    world.wait()
    assert world.fenced == []


def test_a_new_controller_suspects_everybody() -> None:
    world = World()
    world.beat(1)
    world.change(3, fenced=True)
    world.kill(2)
    world.kill(3)
    world.call(world.watch.activated)
    world.wait()
    assert world.fenced == [2]


def test_a_broker_that_was_heard_before_the_activation_ended_is_watched() -> None:
    """The first decisions of a new controller are committed together with the answer to a heartbeat: which is heard of
    first is chance. A death after the new controller has looked, and before the next heartbeat, was not noticed."""
    world = World()
    world.beat(2)
    world.call(world.watch.activated)
    world.wait(1)
    assert world.fenced == []
    world.kill(2)
    world.wait(1)
    assert world.fenced == [2]


def test_its_own_broker_lives_as_long_as_it_does() -> None:
    world = World(SETTINGS._replace(node_id=2))
    world.kill(2)
    world.call(world.watch.activated)
    world.wait()
    assert world.fenced == []


def test_who_lives_elsewhere_than_it_says_is_fenced_once_and_never_again() -> None:
    world = World()
    world.change(2, endpoints={"PLAINTEXT": Endpoint("broker2", PORT + 1, SecurityProtocol.PLAINTEXT)})
    world.beat(2)
    world.reset(2)
    world.wait()
    assert world.fenced == [2]
    world.change(2, fenced=False)
    for _ in range(3):
        world.beat(2)
        world.reset(2)
        world.wait()
    assert world.fenced == [2]
    world.change(2, epoch=99)  # another incarnation
    world.beat(2)
    world.reset(2)
    world.wait()
    assert world.fenced == [2, 2]


@pytest.mark.parametrize("off", ["setting", "not active", "stopped"])
def test_nobody_is_suspected(off: str) -> None:
    world = World(SETTINGS._replace(confirm_s=-0.001) if off == "setting" else SETTINGS)
    world.beat(2)
    if off == "stopped":
        world.call(world.watch.stop)
    world.active = off != "not active"
    world.kill(2)
    world.wait()
    assert world.fenced == []


class TestLostBrokers:
    """What another broker says of a leader whose connection to it has ended."""

    def alive(self, world: World, lost: LostBrokers) -> list[int]:
        return list(MetadataView(world.image, "PLAINTEXT", lost.epochs).alive)

    def listed(self, world: World, lost: LostBrokers) -> list[int]:
        return [each.id for each in MetadataView(world.image, "PLAINTEXT", lost.epochs).listed()]

    def test_a_killed_one_is_listed_until_it_is_fenced(self) -> None:
        """From then on `AwayBrokers` says so."""
        world = World()
        world.kill(2)
        lost = self.lost(world)
        assert (self.alive(world, lost), self.listed(world, lost)) == ([1, 3], [1, 2, 3])
        world.change(2, fenced=True)
        assert self.listed(world, lost) == [1, 3]
        world.wait(2 * LOST_S_MAX)

    def lost(self, world: World, confirm_s: float = SETTINGS.confirm_s) -> LostBrokers:
        made = LostBrokers(world.network_here, "PLAINTEXT", confirm_s)
        world.call(lambda: made.suspect(world.image.brokers[2]))
        return made

    def test_a_killed_one_is_not_alive_from_the_first_moment_on(self) -> None:
        world = World()
        world.kill(2)
        lost = self.lost(world)
        assert self.alive(world, lost) == [1, 3]
        world.wait(LOST_S_MAX / 2)
        assert self.alive(world, lost) == [1, 3]
        world.change(2, epoch=99)  # it is there again
        assert self.alive(world, lost) == [1, 2, 3]
        world.wait(LOST_S_MAX)
        assert lost.epochs == {}

    @pytest.mark.parametrize("fault", [lambda world: None, paused, cut_off(TO), cut_off(BACK)])
    def test_one_that_cannot_be_said_to_be_gone_is_alive_again_soon(self, fault: Callable[[World], None]) -> None:
        world = World()
        world.beat(2)
        fault(world)
        lost = self.lost(world)
        assert self.alive(world, lost) == [1, 3]
        world.wait(2 * ANSWER_S)
        assert self.alive(world, lost) == [1, 2, 3]

    def test_off(self) -> None:
        world = World()
        world.kill(2)
        assert self.alive(world, self.lost(world, -0.001)) == [1, 2, 3]

    def test_who_is_not_registered_or_elsewhere_is_not_looked_for(self) -> None:
        world = World()
        lost = LostBrokers(world.network_here, "OTHER", 0.1)
        world.call(lambda: lost.suspect(None))
        world.call(lambda: lost.suspect(world.image.brokers[2]))
        assert lost.epochs == {}
