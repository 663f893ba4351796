"""The order in which sides are warmed and measured, with loads that only write down when they ran."""

from __future__ import annotations

import os

import pytest

from bench.method import counters, rounds
from bench.method.counters import Meter
from bench.method.load import Result
from bench.method.rounds import Load, Measured, figures, measure
from bench.method.steady import WarmUp
from bench.tables import Run


class Diary:
    """Loads of several sides, with the calls in their order."""

    def __init__(self, rates: dict[str, list[int]]) -> None:
        self.rates = rates
        self.calls: list[tuple[str, float]] = []

    def load(self, side: str) -> Load:
        def window(seconds: float, meter: Meter) -> Result:
            self.calls.append((side, seconds))
            rates = self.rates[side]
            rate = rates.pop(0) if len(rates) > 1 else rates[0]
            return Result(requests=int(rate * seconds), seconds=seconds, cpu_seconds=1.0)

        return Load(os.getpid(), window)


@pytest.fixture(autouse=True)
def _without_perf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "available", lambda: ())
    monkeypatch.setattr(os, "sync", lambda: None)


def test_every_side_is_warm_before_the_first_measurement_and_then_they_alternate(run: Run) -> None:
    diary = Diary({"ottla": [100], "kafka": [10, 30, 80, 81, 82, 200]})
    found = measure(run, {side: diary.load(side) for side in ("ottla", "kafka")})
    warming = [("ottla", 2.0)] * 3 + [("kafka", 2.0)] * 5
    assert diary.calls == warming + [("ottla", 3.0), ("kafka", 3.0)] * 3
    assert [result.requests_per_s for result in found["kafka"].rounds] == [200, 200, 200]
    assert found["kafka"].warmth.is_steady
    assert rounds.warmth(found["kafka"]) == "10 s, rose by 147% since"
    assert rounds.warmth(found["ottla"]) == "6 s"
    assert found["kafka"].counted is None


def test_a_side_that_is_not_steady_is_measured_and_marked(run: Run) -> None:
    diary = Diary({"kafka": [10, 20] * 20})
    found = measure(run, {"kafka": diary.load("kafka")})
    assert "not steady" in rounds.beside(found["kafka"])["warm-up"]
    assert len(found["kafka"].rounds) == 3


def test_a_generator_that_was_the_limit_is_said(run: Run) -> None:
    busy = [Result(requests=1, seconds=1.0, client_cpu_seconds=share) for share in (0.2, 0.95, 0.3)]
    assert rounds.generator_share(busy) == "95%, the limit"
    assert rounds.generator_share(busy[::2]) == "30%"


def test_other_work_of_the_machine_is_said(run: Run) -> None:
    def measured(*shares: float) -> Measured:
        found = [Result(requests=1, seconds=2.0, other_cpu_seconds=2.0 * share) for share in shares]
        return Measured(WarmUp(run.rule), found)

    assert rounds.busy([measured(0.1, 0.2), measured(0.0)]) == ""
    assert "1.5 cores" in rounds.busy([measured(0.1), measured(0.0, 1.5)])


def test_counts_are_per_request(run: Run) -> None:
    counted = Result(requests=200, seconds=1.0, counts={"instructions:u": 2_000_000.0, "raw_syscalls:sys_enter": 300.0})
    measured = Measured(WarmUp(run.rule), [Result(requests=1, seconds=1.0)], [1.0], counted)
    beside = rounds.beside(measured)
    assert beside["instructions (user) per request"] == "10,000"
    assert beside["system calls per request"] == "1.5"


def test_costs_are_per_request_and_per_byte() -> None:
    found = figures(Result(requests=1000, bytes=2_000_000_000, seconds=2.0, cpu_seconds=3.0, latencies_ms=[1.0, 2.0]))
    assert found["req/s"] == 500
    assert found["CPU ms per 1,000"] == 3000
    assert found["CPU-s/GB"] == 1.5


def test_what_perf_did_not_count_is_left_out() -> None:
    output = (
        "1234,,instructions:u,100,100.00,,\n<not supported>,,cycles,0,100.00,,\n"
        "<not counted>,,instructions:k,0,0.00,,\n56,,raw_syscalls:sys_enter,100,100.00,,\n\nnoise\n"
    )
    assert counters.parse(output) == {"instructions:u": 1234.0, "raw_syscalls:sys_enter": 56.0}
