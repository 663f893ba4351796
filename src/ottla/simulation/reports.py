"""What a run says of itself, and many runs in parallel."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from ottla.simulation import scenario

BYTES_OF_A_DISK = ("write of", "fsync of", "truncate of", "rename of", "removal", "creation")


def is_detail(line: str) -> bool:
    """Whether a line of the trace is about single bytes on the network or the disk."""
    _, _, who, what = line.split(" ", 3)
    return who == "net:" or what.startswith(BYTES_OF_A_DISK)


def summary(outcome: scenario.Outcome) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in sorted(outcome.counts.items()))
    speed = outcome.simulated_s / outcome.real_s
    failures = "".join(f"\n{'not met' if outcome.met_little else 'FAILED'}: {each}" for each in outcome.failures)
    return (
        f"seed {outcome.seed} ({outcome.kind}, {outcome.about}): "
        f"{outcome.simulated_s:.1f} s in {outcome.real_s:.2f} s ({speed:.0f} times as fast), {outcome.steps} events, "
        f"{outcome.digest[:16]}\n{counts}{failures}"
    )


def _play(seed: int, kind: str | None) -> scenario.Outcome:
    outcome = scenario.run(seed, kind)
    outcome.lines = []  # it goes through a pipe
    return outcome


def play_many(seeds: Iterable[int], kind: str | None, jobs: int) -> Iterator[scenario.Outcome]:
    """The outcomes, as they come, of `jobs` processes; without their traces."""
    if jobs == 1:
        yield from (_play(seed, kind) for seed in seeds)
        return
    # A process that simulates has threads of its own, and so is not forked.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = set()
        for seed in seeds:
            waiting.add(pool.submit(_play, seed, kind))
            if len(waiting) >= 4 * jobs:
                done = next(as_completed(waiting))
                waiting.remove(done)
                yield done.result()
        for done in as_completed(waiting):
            yield done.result()


class Tally:
    """What many runs come to."""

    def __init__(self) -> None:
        self.runs = 0
        self.failed: list[tuple[int, str]] = []
        """Seeds and kinds of runs that violated a guarantee."""
        self.met_little = 0
        """Number of runs that met less than the tests ask of theirs, and violated nothing."""
        self.simulated_s = 0.0
        self.real_s = 0.0
        self.node_s = 0.0
        """Simulated seconds times nodes."""
        self.counts: Counter[str] = Counter()
        self.crashed_at: set[str] = set()
        """Places of awaits, over all runs."""

    def add(self, outcome: scenario.Outcome) -> None:
        self.runs += 1
        self.simulated_s += outcome.simulated_s
        self.node_s += outcome.simulated_s * outcome.nodes
        self.real_s += outcome.real_s
        self.counts += outcome.counts
        self.crashed_at |= outcome.crashed_at
        self.met_little += outcome.met_little
        if outcome.failures and not outcome.met_little:
            self.failed.append((outcome.seed, outcome.kind))

    def __str__(self) -> str:
        failed = ", ".join(f"{seed} ({kind})" for seed, kind in sorted(self.failed)) or "none"
        return (
            f"{self.runs} seeds, {self.simulated_s / 3600:.2f} simulated hours ({self.node_s / 3600:.2f} of nodes) in "
            f"{self.real_s:.0f} s, {self.simulated_s / max(self.real_s, 1e-9):.1f} simulated seconds a second\n"
            f"crashes at awaits: {self.counts['crash at an await']}, at {len(self.crashed_at)} different places\n"
            f"met less than a test would ask for: {self.met_little}\n"
            f"failed: {failed}"
        )
