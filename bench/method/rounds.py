"""How sides are compared: each warmed until it is steady, then measured in alternation, on brokers that all run.

A load is prepared for each side and then called with the length of a window and a meter. Between two windows everything
that was written goes to the disk, and free memory becomes page cache, so that no side pays for the one before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bench.method import compare, counters
from bench.method.counters import Meter
from bench.method.load import Result
from bench.method.steady import Rule, WarmUp, Window, warm_up
from bench.tables import Run, Section

GENERATOR_SHARE_MAX = 0.9
"""A load generator that ran for more of the time than this was the limit itself."""
RISE_MAX = 0.15
"""Rise of the rate from the end of the warm-up to the measurement above which the side was not warm."""
OTHERS_SHARE_MAX = 0.25
"""Share of a core that other processes may use, the idle broker included, before they disturb a measurement."""
DISTURBED = "Other processes used up to"
"""Beginning of the note of a section that other processes disturbed."""
COUNTED_S = 1.0


class Warmed(Protocol):
    """`WarmBrokers`, or clusters."""

    loaded_s: dict[str, float]
    """Seconds that each side has been under load."""


@dataclass
class Load:
    """A load on one side."""

    pid: int | Sequence[int]
    """Process id of the broker, or those of all nodes of a cluster."""
    window: Callable[[float, Meter], Result]
    """Load for so many seconds; the meter is started and stopped around what is measured."""
    broker: Warmed | None = None
    """Where the time under load is kept; the bare loop has nothing to warm."""
    warmed: Callable[[], None] | None = None
    """Called once between the warm-up of all sides and the first measured window."""


@dataclass
class Measured:
    warmth: WarmUp
    rounds: list[Result] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Rates of the rounds, in the figure that the warm-up looked at."""
    counted: Result | None = None
    """A window in which perf counted."""


def rate(result: Result) -> float:
    return result.requests_per_s


def measure(run: Run, loads: Mapping[str, Load], rate: Callable[[Result], float] = rate) -> dict[str, Measured]:
    """Warm every side, then `run.rounds` windows of each in alternation, then one in which perf counts."""
    found = {}
    for side, load in loads.items():
        run.settle()
        found[side] = Measured(_warm(run, side, load, rate))
    for load in loads.values():
        if load.warmed is not None:
            load.warmed()
    for side in compare.alternate(list(loads), run.rounds):
        run.settle()
        result = loads[side].window(run.seconds, Meter(loads[side].pid))
        found[side].rounds.append(result)
        found[side].rates.append(rate(result))
    if counters.available():
        for side, load in loads.items():
            found[side].counted = load.window(min(COUNTED_S, run.seconds), Meter(load.pid, with_perf=True))
    return found


def _warm(run: Run, side: str, load: Load, rate: Callable[[Result], float]) -> WarmUp:
    rule = first_rule(run, load.broker.loaded_s[side]) if load.broker else run.rule

    def window(seconds: float) -> Window:
        result = load.window(seconds, Meter(load.pid))
        return Window(result.seconds, result.requests, rate(result))

    warmth = warm_up(window, rule)
    if load.broker:
        load.broker.loaded_s[side] += warmth.seconds + run.rounds * run.seconds
    return warmth


def first_rule(run: Run, loaded_s: float) -> Rule:
    """The rule of the run, with as much more time as a broker that was under load for `loaded_s` still needs."""
    least = max(run.rule.seconds_min, run.first_warm_up_s - loaded_s)
    return replace(run.rule, seconds_min=least, seconds_max=max(run.rule.seconds_max, least))


def figures(result: Result) -> dict[str, float]:
    """Figures of a window in a table of rates."""
    found = {"req/s": result.requests_per_s}
    if result.bytes:
        found |= {"MB/s": result.mb_per_s}
    found["CPU ms per 1,000"] = result.cpu_ms_per_1000
    if result.bytes:
        found["CPU-s/GB"] = result.cpu_s_per_gb
    return found | {f"p{q * 100:g} ms": result.percentile(q) for q in (0.5, 0.99, 0.999)}


RANGED = ("req/s", "CPU ms per 1,000")


def resident(result: Result) -> dict[str, float]:
    """The memory of a broker, which is no figure of a round in the tables; nothing for a cluster."""
    return {"RSS MB": result.resident_mb} if result.resident_mb else {}


def beside(measured: Measured) -> dict[str, str]:
    """The columns that are no medians: counts per request, memory, the generator's share, the warm-up."""
    found = {}
    if measured.counted is not None:
        for event, count in measured.counted.counts.items():
            found[f"{counters.EVENTS[event]} per request"] = compare.short(count / measured.counted.requests)
    if resident_mb := measured.rounds[-1].resident_mb:
        found["RSS MB"] = compare.short(resident_mb)
    found["generator"] = generator_share(measured.rounds)
    found["warm-up"] = warmth(measured)
    return found


def warmth(measured: Measured) -> str:
    """How long the warm-up was, and a warning where it ended on a plateau that the side has left since."""
    now = statistics.median(measured.rates)
    last = [window.rate for window in measured.warmth.windows[-measured.warmth.rule.windows :]]
    rise = now / statistics.median(last) - 1 if last else 0.0
    return str(measured.warmth) + (f", rose by {rise:.0%} since" if rise > RISE_MAX else "")


def generator_share(rounds: list[Result]) -> str:
    """The share of the time that the load generator ran, in the round in which it was busiest."""
    share = max(result.client_share for result in rounds)
    return f"{share:.0%}" + (", the limit" if share > GENERATOR_SHARE_MAX else "")


def busy(measured: Sequence[Measured]) -> str:
    """A warning where other processes had a part of the machine; empty where they had not."""
    share = max(result.others_share for each in measured for result in each.rounds)
    if share <= OTHERS_SHARE_MAX:
        return ""
    return f"{DISTURBED} {share:.1f} cores meanwhile."


def data(measured: Mapping[str, Measured], figures: Callable[[Result], dict[str, float]]) -> dict[str, Any]:
    """The data that is kept with the results, by side."""
    return {
        side: {
            "rounds": [{**figures(result), **resident(result)} for result in each.rounds],
            "warm_up_rates": [window.rate for window in each.warmth.windows],
            "steady": each.warmth.is_steady,
            "generator_share": [result.client_share for result in each.rounds],
            "others_share": [result.others_share for result in each.rounds],
        }
        for side, each in measured.items()
    }


def section(
    title: str,
    key: str,
    measured: Mapping[str, Measured],
    figures: Callable[[Result], dict[str, float]] = figures,
    ranged: tuple[str, ...] = RANGED,
    note: str = "",
) -> Section:
    """The table of one load: medians and spread of each side, the ratio pair by pair, and what stands beside."""
    rounds = {side: [figures(result) for result in each.rounds] for side, each in measured.items()}
    extra = {side: beside(each) for side, each in measured.items()}
    rows = compare.rows(rounds, ranged, extra)
    note = " ".join(part for part in (note, busy(list(measured.values()))) if part)
    return Section(title, rows, note, key, data(measured, figures))
