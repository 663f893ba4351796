"""Snapshots are read once for all who ask together, and old ones are shown while they are read again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.console import snapshots as module
from ottla.console.asking import MISSED_S, Asking, NotFound, Site
from ottla.console.masks import Masks
from ottla.console.snapshots import KEPT_MAX, Snapshots
from ottla.console.views.topic import found_topic
from tests.unit.console.fake_cluster import FakeBrokers, user


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_kept_while_fresh(clock: Clock) -> None:
    with ThreadPoolExecutor(1) as executor:
        kept, reads = Snapshots(executor), iter(range(10))
        assert kept.get("a", 5, lambda: next(reads)).value == 0
        clock.now += 5
        again = kept.get("a", 5, lambda: next(reads))
        assert (again.value, again.age_s) == (0, 5)
        assert kept.get("b", 5, lambda: next(reads)).value == 1


def test_an_old_one_is_shown_while_it_is_read_again(clock: Clock) -> None:
    with ThreadPoolExecutor(1) as executor:
        kept = Snapshots(executor)
        kept.get("a", 5, lambda: "old")
        clock.now += 6
        begun, done = threading.Event(), threading.Event()

        def read() -> str:
            begun.set()
            assert done.wait(30)
            return "new"

        assert kept.get("a", 5, read).value == "old"
        assert begun.wait(30)
        # A second one asks for nothing of its own.
        assert kept.get("a", 5, lambda: pytest.fail("read twice")).value == "old"
        done.set()
    assert kept.get("a", 5, lambda: pytest.fail("read again")).value == "new"


def test_a_very_old_one_is_not_shown(clock: Clock) -> None:
    with ThreadPoolExecutor(1) as executor:
        kept = Snapshots(executor)
        kept.get("a", 5, lambda: "old")
        clock.now += 5 * module.SHOWN_AGAIN + 1
        assert kept.get("a", 5, lambda: "new").value == "new"


def test_all_who_ask_together_share_one_reading() -> None:
    with ThreadPoolExecutor(1) as executor, ThreadPoolExecutor(8) as asking:
        kept, done, reads = Snapshots(executor), threading.Event(), []

        def read() -> int:
            assert done.wait(30)
            reads.append(1)
            return len(reads)

        futures = [asking.submit(kept.get, "a", 60, read) for _ in range(8)]
        done.set()
        assert {each.result(30).value for each in futures} == {1}


def test_failures_are_raised_and_not_kept() -> None:
    def fail() -> None:
        raise OSError("away")

    with ThreadPoolExecutor(1) as executor:
        kept = Snapshots(executor)
        with pytest.raises(OSError, match="away"):
            kept.get("a", 5, fail)
        assert kept.get("a", 5, lambda: "there").value == "there"


def test_soon_does_not_wait() -> None:
    with ThreadPoolExecutor(1) as executor:
        kept, done = Snapshots(executor), threading.Event()

        def read() -> str:
            assert done.wait(30)
            return "late"

        assert kept.soon("a", 5, 0.01, read) is None
        done.set()
        found = kept.soon("a", 5, 30, read)
        assert found is not None
        assert found.value == "late"


def test_soon_waits_once_for_what_hangs() -> None:
    with ThreadPoolExecutor(1) as executor:
        kept, done, wait_s = Snapshots(executor), threading.Event(), 0.3
        assert kept.soon("a", 5, wait_s, lambda: done.wait(30)) is None
        began = time.monotonic()
        assert kept.soon("a", 5, wait_s, lambda: done.wait(30)) is None
        assert time.monotonic() - began < wait_s / 2
        done.set()


def test_what_failed_when_nobody_waited_is_raised_once() -> None:
    with ThreadPoolExecutor(1) as executor:
        kept, done = Snapshots(executor), threading.Event()

        def fail() -> None:
            assert done.wait(30)
            raise OSError("away")

        assert kept.soon("a", 60, 0.01, fail) is None
        done.set()
        executor.submit(lambda: None).result(30)  # behind it in the only thread
        with pytest.raises(OSError, match="away"):
            kept.soon("a", 60, 30, lambda: None)
        found = kept.soon("a", 60, 30, lambda: "there")
        assert found is not None
        assert found.value == "there"


def test_only_so_many_are_kept() -> None:
    with ThreadPoolExecutor(1) as executor:
        kept = Snapshots(executor)
        for number in range(KEPT_MAX + 1):
            kept.get(number, 60, lambda number=number: number)  # type: ignore[misc]
        assert kept.get(0, 60, lambda: "read again").value == "read again"
        assert kept.get(KEPT_MAX, 60, lambda: "read again").value == KEPT_MAX


def test_a_topic_that_is_new_is_found_at_once(clock: Clock) -> None:
    """Not only when the cluster is read again; what is missing is asked for twice a second at most."""
    brokers = FakeBrokers(["old"])
    asking = Asking(user(brokers), Site(masks=Masks()), {"topic": "new"})
    for age_s, is_found in ((0.0, False), (MISSED_S, False), (MISSED_S + 0.1, True)):
        clock.now = 100.0
        asking.user.snapshots.drop()
        assert list(asking.cluster().topics) == ["old"]
        brokers.topics, clock.now = ["old", "new"], clock.now + age_s
        if is_found:
            assert found_topic(asking).name == "new"
        else:
            with pytest.raises(NotFound):
                found_topic(asking)
        brokers.topics = ["old"]
    asked = len(brokers.asked)
    with pytest.raises(NotFound):
        found_topic(Asking(asking.user, asking.site, {"topic": "none"}))
    assert len(brokers.asked) == asked
