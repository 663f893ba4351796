"""Work of a simulated thread stops at its disk calls; other events happen, and a crash may fall, in between."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import SimulatedCrash
from ottla.testing.loop import SimulatedLoop, SimulatedTime
from ottla.testing.threads import SimulatedMutex


class World:
    """A process with a disk, whose work stops for a millisecond before every call."""

    def __init__(self) -> None:
        self.time = SimulatedTime(1)
        self.loop: SimulatedLoop = self.time.loop("node")
        self.disk = SimulatedFileSystem(Random(1))
        self.disk.before_call = self._before_call
        self.seen: list[str] = []

    def _before_call(self) -> None:
        if self.time.work is not None:
            self.time.work.at_disk_call()

    def start(self, work: Callable[[], object]) -> object:
        return self.loop.run_interleaved(work, 0.001, lambda: 0.001)

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        self.loop.call_later(seconds, event)

    def run(self, seconds: float) -> None:
        end: list[bool] = []
        self.time.loop("end").call_later(seconds, end.append, True)
        self.time.run(until=lambda: end, seconds_max=seconds + 1)

    def write(self, path: str) -> None:
        self.disk.write_atomic(path, path.encode(), fsync=False)
        self.seen.append(path)


def test_other_events_happen_between_two_disk_calls_of_one_piece_of_work() -> None:
    world = World()
    found: list[dict[str, bytes]] = []
    future = world.start(lambda: [world.write("/a"), world.write("/b")])
    for number in range(20):
        world.at(0.0005 + number / 1000, lambda: found.append(world.disk.files()))
    world.run(0.1)
    assert future.result() == [None, None]  # type: ignore[attr-defined]
    states = [tuple(each) for each in found]
    assert states[0] == () and states[-1] == ("/a", "/b")
    assert ("/a",) in states and ("/a.tmp",) in states, "each step of it is seen"


def test_a_process_that_is_killed_in_between_never_goes_on() -> None:
    world = World()
    world.start(lambda: [world.write("/a"), world.write("/b")])
    world.at(0.0065, world.loop.kill)
    world.run(0.1)
    left = world.disk.files()
    assert left and "/b" not in left
    world.disk.crash()
    world.loop.bury()
    assert not world.loop.working, "its thread is given back"
    assert world.disk.files() == left and "/b" not in world.seen


def test_what_fails_in_the_thread_is_raised_where_it_is_awaited() -> None:
    world = World()
    world.disk.crash_after(0)
    future = world.start(lambda: world.write("/a"))
    world.run(0.1)
    with pytest.raises(SimulatedCrash):
        future.result()  # type: ignore[attr-defined]


@pytest.mark.parametrize("waiter", ["another thread", "the loop"])
def test_who_needs_a_lock_that_a_stopped_thread_holds_gets_it_when_that_is_done(waiter: str) -> None:
    world = World()
    mutex = SimulatedMutex(world.loop)

    def work(name: str) -> None:
        with mutex:
            world.seen.append(f"{name} begins")
            world.disk.exists("/")
            world.seen.append(f"{name} ends")

    world.start(lambda: work("first"))
    if waiter == "the loop":
        world.at(0.0015, lambda: work("second"))
    else:
        world.loop.run_interleaved(lambda: work("second"), 0.0015, lambda: 0.001)
    world.run(0.1)
    assert world.seen == ["first begins", "first ends", "second begins", "second ends"]
