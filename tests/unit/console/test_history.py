"""Rates and trends of the last minutes, who is sampled, and the lines that are drawn of them."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.console import history as history_module
from ottla.console import trends as module
from ottla.console.asking import Site
from ottla.console.history import RATE_S_MAX, SAMPLES_MAX, SEEN_MAX, History, Paces, Trend, Written
from ottla.console.masks import Masks
from ottla.console.pages import amount, points
from ottla.console.sampling import LOOKED_S, USERS_MAX, Sampler, sample
from ottla.console.trends import ALL
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.fake_cluster import NOW_MS, FakeBrokers, user


def test_rates_are_of_neighbours() -> None:
    history = History()
    assert history.rate("t") is None
    history.add(10.0, {"t": 100})
    assert history.rate("t") is None
    assert history.level("t") is None
    history.add(20.0, {"t": 150})
    history.add(40.0, {"t": 150})
    assert history.rate("t") == Trend(20, [5.0, 0.0], 0.0, 5.0, 0.0)
    assert history.level("t") == Trend(30, [100.0, 150.0, 150.0], 100.0, 150.0, 150.0)
    assert history.rate("other") is None


def test_what_is_not_known_and_what_shrinks() -> None:
    history = History()
    for at, value in ((0.0, 10), (10.0, None), (20.0, 30), (30.0, 5), (40.0, 25)):
        history.add(at, {"t": value})
    rate, level = history.rate("t"), history.level("t")
    assert rate is not None
    assert level is not None
    # Nothing between what is not known, and a topic that was recreated has no negative rate.
    assert rate.values == [None, None, None, 2.0]
    assert level.values == [10.0, None, 30.0, 5.0, 25.0]
    history.add(50.0, {"new": 1})
    history.add(60.0, {"new": 1})
    assert history.rate("new") == Trend(50, [None, None, None, None, None, 0.0], 0.0, 0.0, 0.0)


def test_it_is_bounded() -> None:
    history = History()
    for number in range(3 * SAMPLES_MAX):
        history.add(float(number), {f"t{number}-{each}": number for each in range(100)} | {"stays": number})
    assert len(history) == SAMPLES_MAX
    assert len(history._slots) <= 2 * 101 + 1_000 + 101
    found = history.level("stays")
    assert found is not None
    assert found.values == [float(each) for each in range(2 * SAMPLES_MAX, 3 * SAMPLES_MAX)]


def test_lines_have_a_gap_where_nothing_is_known() -> None:
    trend = Trend(40, [0.0, 4.0, None, 2.0, None], 0.0, 4.0, None)
    assert points(trend) == ["0.0,23.0 25.0,1.0", "75.0,12.0 76.0,12.0"]
    assert points(Trend(0, [0.0], 0.0, 0.0, 0.0)) == ["0.0,23.0 1.0,23.0"]
    assert [amount(each) for each in (None, 0.25, 3.0, 1234.5)] == ["–", "0.25", "3", "1,234"]


def test_a_sample_is_few_requests() -> None:
    def asked(count: int) -> int:
        brokers = FakeBrokers(
            [f"t{n}" for n in range(count)],
            [(f"g{n}", "classic") for n in range(count)],
            records=[SimpleRecord(NOW_MS, None, b"")],
        )
        one = user(brokers)
        for _ in range(2):
            sample(one, Site(Masks()))
            one.snapshots._kept.clear()
        trend = one.trends.written(ALL)
        assert trend is not None
        assert one.trends.lag_of_group("g0") is not None
        assert one.trends.lag_of_topic("t0") is not None
        return len(brokers.asked)

    assert asked(1) == asked(500)


def test_who_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = Sampler(Site(Masks()))
    users = [user(FakeBrokers(), f"u{number}") for number in range(USERS_MAX + 3)]
    for each in users:
        sampler.watch(each)
    assert sampler.looking() == []
    for number, each in enumerate(users):
        each.trends.look()
        each.trends.looked += number
        each.trends.add({"t": 1}, {}, {})
        each.trends.add({"t": 1}, {}, {})
    assert [each.name for each in sampler.looking()] == [each.name for each in reversed(users[3:])]
    assert users[0].trends.written("t") is None, "what nobody looks at is dropped"
    assert users[-1].trends.written("t") is not None
    users[-1].brokers.close()
    assert users[-1].name not in [each.name for each in sampler.looking()]
    later = time.monotonic() + LOOKED_S + 100
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    assert sampler.looking() == []


def test_a_pace_is_from_one_look_to_the_next() -> None:
    now = 0.0
    paces = Paces()

    def look(sequence: int, epoch: int = 0) -> float | None:
        row = Written(0, 7, epoch, sequence)
        return paces.look(now, "t", [row]).get(row)

    assert look(2**31 - 51) is None
    now = 0.5
    assert look(2**31 - 41) is None  # too soon
    now = 10.0
    assert look(49) == 10.0  # sequences wrap
    now = 10.5
    assert look(1_000) == 10.0
    now = 20.0
    assert look(49) == 0.0
    assert look(0, epoch=1) is None
    now += RATE_S_MAX + 1
    assert look(5_000) is None
    paces.look(now, "u", [Written(number, 1, 0, 0) for number in range(SEEN_MAX)])
    now += 10
    assert look(6_000) is None  # dropped: what is kept is bounded


def test_two_pages_may_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both drop what was seen long ago."""
    monkeypatch.setattr(history_module, "SEEN_MAX", 2)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        paces = Paces()
        rows = [Written(0, producer, 0, 1) for producer in range(50)]
        with ThreadPoolExecutor(8) as executor:
            every = [executor.submit(lambda: [paces.look(1.0, "t", rows) for _ in range(100)]) for _ in range(8)]
            assert all(each.result() == [{}] * 100 for each in every)
    finally:
        sys.setswitchinterval(interval)
