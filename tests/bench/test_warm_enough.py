"""The other side is a JVM: it has 25 seconds of load before anything of it is measured, in every table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench import attacks
from bench.method.rounds import first_rule
from bench.method.steady import Rule
from bench.spark import AGAIN_S, KAFKA, OTTLA, Bench, Cost
from bench.tables import Run
from bench.workloads import throughput

WARM_UP_S = 25.0


def test_a_brokers_first_load_takes_so_long_and_what_it_had_before_counts(run: Run) -> None:
    assert run.first_warm_up_s >= WARM_UP_S and attacks.WARM_UP_S >= WARM_UP_S
    assert first_rule(run, 0.0).seconds_min == WARM_UP_S <= first_rule(run, 0.0).seconds_max
    assert first_rule(run, 10.0).seconds_min == 15.0
    assert first_rule(run, 100.0) == Rule(windows=3, window_s=2.0, seconds_min=6.0, requests_min=1, seconds_max=20.0)


def test_brokers_that_had_no_load_get_it_before_tables_of_small_pieces(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[int, float]] = []
    monkeypatch.setattr(
        throughput,
        "Client",
        lambda port: SimpleNamespace(create_topic=lambda *_: None, delete_topic=lambda *_: None, close=lambda: None),
    )
    monkeypatch.setattr(throughput, "Meter", lambda pid: None)
    monkeypatch.setattr(
        throughput, "produce_window", lambda port, *_: lambda seconds, meter: loaded.append((port, seconds))
    )
    brokers = {name: SimpleNamespace(port=port, pid=0) for name, port in (("ottla", 1), ("kafka", 2))}
    warm: Any = SimpleNamespace(brokers=brokers, loaded_s={"ottla": 40.0, "kafka": 5.0})
    throughput.preheat(run, warm)
    throughput.preheat(run, warm)
    assert loaded == [(2, 20.0)]


def test_sparks_connector_has_each_load_for_so_long(run: Run) -> None:
    calls = {KAFKA: 0, OTTLA: 0}

    def act(side: str, seconds: float) -> Any:
        def work() -> Cost:
            calls[side] += 1
            return Cost(seconds, 1.0, 1.0)

        return work

    bench: Any = SimpleNamespace(warm_up_s=WARM_UP_S, rounds=2, _warm=set())
    sides = {KAFKA: act(KAFKA, 4.0), OTTLA: act(OTTLA, 1.0)}
    found = Bench.measure(bench, "source", sides, 1000, 100)
    assert calls == {KAFKA: 7 + 2, OTTLA: 7 + 2}, "28 seconds of the connector, then two rounds"
    assert [len(each) for each in found.values()] == [2, 2]
    calls.update({KAFKA: 0, OTTLA: 0})
    Bench.measure(bench, "source", sides, 1000, 1000)
    assert calls[KAFKA] * 4.0 - 2 * 4.0 >= AGAIN_S, "with other values a shorter warm-up, of the same code"
    calls.update({KAFKA: 0, OTTLA: 0})
    Bench.measure(bench, "sink", sides, 1000, 100)
    assert calls[KAFKA] == 7 + 2
