"""The conformance suite against clusters: every test that takes its broker from `bootstrap`. What starts nodes of its
own would be the same everywhere.

`python -m tests.cluster conformance [CLUSTER ...] [PYTEST'S ARGUMENTS]` runs all of it against each cluster that has a
node of Ottla (`kafka` is the control) and prints what became of the tests, a row for each file; `test_conformance.py` a
part. The Kafka to compare with is a controller and a broker, so that also the quorums are alike.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.processes import CLUSTERS

SUITE = "tests/conformance"
OTTLA = ("pair", "under-kafka", "over-kafka")
_RESULTS = "OTTLA_TEST_RESULTS"
"""Names the file into which a run writes one line for each test: the outcome, the seconds, the test."""


_SECURITY = "Kafka's broker serves this: it says that no authorizer is configured, or does it"
_OF_KAFKAS_BROKER = {
    "libraries/test_java_admin.py::test_acls_are_refused_clearly": _SECURITY,
    "libraries/test_java_admin.py::test_quotas_are_refused_clearly": _SECURITY,
    "differential/test_malformed_like_kafka.py::test_closed_or_answered_as_by_kafka[METADATA]":
        "for a topic without a name Kafka says UNKNOWN_SERVER_ERROR, which no answer of Ottla may",
    "groups/test_group_protocols.py::test_librdkafka_ends_with_a_fatal_error": "Kafka's broker serves newer groups",
}  # fmt: skip
FAILS: Mapping[str, Mapping[str, str]] = {
    "pair": {},
    "under-kafka": {},
    "over-kafka": _OF_KAFKAS_BROKER,
    "kafka": _OF_KAFKAS_BROKER,
}
"""Tests that fail in these clusters, each time, and why: what no longer does is told."""

_SOON = "reads what it has just changed: Kafka's broker may answer before it has heard of it from its controller"
_BY_LUCK = {
    "clients/test_rounds.py::test_round[franz-go]": _SOON,
    "clients/test_rounds.py::test_round[kafka-python]": _SOON,
    "clients/test_rounds.py::test_round[sarama]": _SOON,
    "libraries/test_aiokafka.py::test_admin": _SOON,
    "cli/test_cli.py::test_an_interrupted_producer_says_what_is_written": _SOON,
    "libraries/test_confluent.py::test_topics_are_created_described_grown_and_deleted": _SOON,
    "libraries/test_confluent.py::test_topic_settings_are_described_and_altered": _SOON,
}
MAY_FAIL: Mapping[str, Mapping[str, str]] = {
    "pair": {},
    "under-kafka": {},
    "over-kafka": _BY_LUCK,
    "kafka": _BY_LUCK,
}
"""Tests that fail in these clusters or do not, and why."""

_CHANGES_THE_CLUSTER = re.compile(r"\[cluster (add|drain|remove)\b|\[quorum (add|remove)\b")
"""Calls that a node by itself refuses; to a cluster they would add a node, and later tests would see it."""


def paths(names: Iterable[str]) -> list[str]:
    """The files of the suite that are called so, without `.py`: they lie in folders by subject."""
    return [path.as_posix() for name in names for path in Path(SUITE).rglob(f"{name}.py")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what takes its broker from `bootstrap`, but for calls that would change the cluster."""
    asked = [
        item
        for item in items
        if "bootstrap" in getattr(item, "fixturenames", ()) and not _CHANGES_THE_CLUSTER.search(item.name)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in asked])
    items[:] = asked


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The controller of xdist hears of every worker's tests; an error before or after a test is a row of its own."""
    path = os.environ.get(_RESULTS)
    if path is None or "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    with open(path, "a") as out:
        out.write(f"{report.outcome}\t{report.duration:.1f}\t{report.nodeid}\n")


class Results:
    """Results of the tests: `outcomes` and `seconds` by file; `failed` tests; `wrong`: what was not expected."""

    def __init__(self, cluster: str, status: int, lines: str) -> None:
        self.outcomes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.failed: set[str] = set()
        ran: set[str] = set()
        for line in lines.splitlines():
            outcome, duration, test = line.split("\t")
            name = test.removeprefix(f"{SUITE}/")
            file = name.partition("::")[0]
            ran.add(name)
            if outcome == "failed":
                self.failed.add(name)
            self.outcomes[file][outcome] += 1
            self.seconds[file] += float(duration)
        fails, may_fail = FAILS[cluster], MAY_FAIL[cluster]
        self.wrong = [f"fails: {each}" for each in sorted(self.failed - fails.keys() - may_fail.keys())]
        self.wrong += [f"no longer fails: {each}" for each in sorted((fails.keys() & ran) - self.failed)]
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not ran:
            self.wrong.append(f"pytest ended with status {status}")

    def passed(self) -> int:
        return sum(each["passed"] for each in self.outcomes.values())

    def __str__(self) -> str:
        columns = ("passed", "failed", "skipped")
        rows = [(file, self.outcomes[file], self.seconds[file]) for file in sorted(self.outcomes)]
        total = sum((each for _, each, _ in rows), collections.Counter())
        rows.append(("all", total, sum(self.seconds.values())))
        lines = [f"{'':32}" + "".join(f"{each:>9}" for each in (*columns, "seconds"))]
        lines += [
            f"{name:32}" + "".join(f"{outcomes[each]:9}" for each in columns) + f"{seconds:9.0f}"
            for name, outcomes, seconds in rows
        ]
        return "\n".join([*lines, *self.wrong])


@contextlib.contextmanager
def oracle() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory, CLUSTERS["kafka"](Path(directory)) as bootstrap:
        yield bootstrap


def run(name: str, kafka: str, arguments: Sequence[str]) -> Results:
    """Run the tests against a new cluster of this name, compared with the Kafka at this address."""
    with tempfile.TemporaryDirectory() as directory, CLUSTERS[name](Path(directory)) as bootstrap:
        results = Path(directory) / "results"
        results.touch()
        places = {"OTTLA_TEST_BOOTSTRAP": bootstrap, "OTTLA_ORACLE": kafka, _RESULTS: str(results)}
        chosen = "not matrix and not slow"
        command = [sys.executable, "-m", "pytest", "-p", "tests.cluster.suite", "-m", chosen, *arguments]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        status = subprocess.run(command, env=own | places, stdin=subprocess.DEVNULL, check=False).returncode
        return Results(name, status, results.read_text())


def main(arguments: Sequence[str]) -> int:
    names = [each for each in arguments if each in CLUSTERS] or list(OTTLA)
    options = [each for each in arguments if each not in CLUSTERS]
    chosen = [] if any(each.startswith(SUITE) for each in options) else [SUITE]
    with oracle() as kafka:
        found = {name: run(name, kafka, ["-n", "2", "--dist", "loadfile", *options, *chosen]) for name in names}
    for name, results in found.items():
        print(f"\n{name}\n{results}", flush=True)
    return min(1, sum(len(each.wrong) for each in found.values()))
