"""What the tests found out about clients and tools: recorded while they run, kept in a file, rendered as tables.

A test says with `@pytest.mark.client(NAME, STEP, ...)` which client it runs and what that does; `{names}` in a step are
parameters of the test. The fixture `ran` adds what only the run can tell: versions, more steps, what a client lacks.
`pytest --compatibility FILE` puts results there, with the commit that they are of; `python -m
tests.conformance.compatibility FILE PAGE` renders them.
This module is also the plugin; `tests/conftest.py` registers it, for in a run with workers only the root sees reports.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.catalogue import CATALOGUE, SECTIONS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "reference" / "compatibility.json"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
PROPERTY = "client"
VALUES_IN_ORDER = ("none", "gzip", "snappy", "lz4", "zstd")
BEGIN, END = "<!-- begin: made by `make compatibility` -->", "<!-- end: made by `make compatibility` -->"


class Found(NamedTuple):
    """Contents of a file of results."""

    commits: list[str]
    """What they were found at, oldest first; more than one where some tests were run again later."""
    tests: dict[str, dict[str, Any]]


def read(path: Path) -> Found:
    kept = json.loads(path.read_text())
    return Found(kept["commits"], kept["tests"])


def git(*arguments: str) -> str:
    """Output of git, empty if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit_here() -> str:
    """The commit of this tree, with a + if tested code or tests have uncommitted changes."""
    changed = git("status", "--porcelain", "--", "src", "tests", "peers")
    return (git("rev-parse", "HEAD") or "unknown") + ("+" if changed else "")


def commits_behind(commit: str) -> int | None:
    """How many later commits change the package; None where this checkout does not know the commit."""
    count = git("rev-list", "--count", f"{commit.rstrip('+')}..HEAD", "--", "src")
    return int(count) if count else None


@dataclass
class Ran:
    """The steps of one test, by client. Filled from the markers, then by the test itself through the fixture `ran`."""

    clients: dict[str, dict[str, Any]] = field(default_factory=dict)

    def _of(self, client: str) -> dict[str, Any]:
        if client not in CATALOGUE:
            raise ValueError(f"{client} is not in tests/conformance/catalogue.py")
        return self.clients.setdefault(client, {"version": None, "steps": [], "lacks": {}})

    def step(self, client: str, text: str, **values: str) -> None:
        """One thing that the client does in this test, with {names} in the text for the values."""
        step = [text, {name: value for name, value in values.items() if f"{{{name}}}" in text}]
        if step not in self._of(client)["steps"]:
            self.clients[client]["steps"].append(step)

    def version(self, client: str, version: str) -> None:
        """The version that the client itself told, where the catalogue cannot find it."""
        self._of(client)["version"] = version

    def lacks(self, client: str, what: str, why: str) -> None:
        """Something that the client cannot do, whatever the broker: it shows beside its result."""
        self._of(client)["lacks"][what] = why


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compatibility", metavar="FILE", help="put what the client tests found into this file")
    parser.addoption("--declared", metavar="FILE", help="write which client tests there are, without running them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name, *steps): which client or tool a test runs, and what that does")
    config.stash[_COLLECTED] = {}


_COLLECTED: pytest.StashKey[dict[str, dict[str, Any]]] = pytest.StashKey()


def _declared(item: pytest.Item) -> Ran:
    ran = Ran()
    params = getattr(getattr(item, "callspec", None), "params", {})
    values = {name: str(getattr(value, "name", value)).lower() for name, value in params.items()}
    # The nearest marker comes first; written above each other they are read from the top.
    for mark in reversed(list(item.iter_markers("client"))):
        ran._of(mark.args[0])
        for step in mark.args[1:]:
            ran.step(mark.args[0], step, **values)
    return ran


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("client") is None:
        return
    ran = _declared(item)
    share = "make conformance" if item.get_closest_marker("matrix") else "make test"
    item.user_properties.append((PROPERTY, {"share": share, "line": item.location[1], "clients": ran.clients}))
    item.config.stash[_COLLECTED][item.nodeid] = {"share": share, "clients": ran.clients}


def _noted(of: Any) -> dict[str, Any]:
    """What was noted with a test or its report; nothing for a test without a client."""
    return next((value for name, value in of.user_properties if name == PROPERTY), {})


@pytest.fixture
def ran(request: pytest.FixtureRequest) -> Ran:
    """Where a test that is marked `client` notes what it found out."""
    if request.node.get_closest_marker("client") is None:
        raise ValueError("the test has no marker: @pytest.mark.client(NAME)")
    return Ran(_noted(request.node)["clients"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Ask for the versions before the test runs, in the process that runs it."""
    for name, found in _noted(item).get("clients", {}).items():
        found["version"] = found["version"] or CATALOGUE[name].found()
    return (yield)


class Results:
    """Collects the reports of a run, of all its workers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commit = commit_here()  # before the run: it may be long, and somebody may commit meanwhile
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = _noted(report)
        if not properties:
            return
        if report.when == "call" or report.outcome != "passed":
            why = {} if report.outcome == "passed" else {"why": _reason(report)}
            self.tests[report.nodeid] = {"result": report.outcome, **why, **properties}

    def pytest_sessionfinish(self) -> None:
        tests = sorted(self.tests.items(), key=lambda each: (each[0].split("::")[0], each[1]["line"], each[0]))
        found = {name: {key: value for key, value in test.items() if key != "line"} for name, test in tests}
        kept = read(self.path) if self.path.exists() else Found([], {})
        commits = [each for each in kept.commits if each != self.commit] + [self.commit]
        text = json.dumps({"commits": commits, "tests": {**kept.tests, **found}}, indent=1, ensure_ascii=False)
        self.path.write_text(text + "\n")


def _reason(report: pytest.TestReport) -> str:
    """A skip's reason, or the last line of a failure; without what differs between runs."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr).splitlines()
    return re.sub(r"topic-\d+-\d+|127\.0\.0\.1:\d+|/tmp/\S+", "…", text[0])[:160] if text else report.outcome


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    target = config.getoption("--compatibility")
    if target and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(Path(target)))


def pytest_collection_finish(session: pytest.Session) -> None:
    if target := session.config.getoption("--declared"):
        chosen = {item.nodeid for item in session.items}
        collected = session.config.stash[_COLLECTED]
        Path(target).write_text(json.dumps({name: test for name, test in collected.items() if name in chosen}))


def _steps(found: list[tuple[str, dict[str, str]]]) -> str:
    """Steps that differ only in their values become one."""
    texts: dict[str, dict[str, list[str]]] = {}
    for text, values in found:
        known = texts.setdefault(text, {})
        for name, value in values.items():
            if value not in known.setdefault(name, []):
                known[name].append(value)
    return "; ".join(
        re.sub(r"\{(\w+)\}", lambda match, known=known: _listed(known[match[1]]), text)  # type: ignore[misc]
        for text, known in texts.items()
    )


def _listed(values: list[str]) -> str:
    if set(values) <= set(VALUES_IN_ORDER):
        values = sorted(values, key=VALUES_IN_ORDER.index)
    return ", ".join(values)


def _row(name: str, tests: list[dict[str, Any]]) -> str:
    """One client's row: unhappy results and what it lacks stand in it by name."""
    mine = [test["clients"][name] for test in tests]
    versions = sorted({each["version"] for each in mine if each["version"]})
    steps = [tuple(step) for each in mine for step in each["steps"]]
    counts = {result: sum(test["result"] == result for test in tests) for result in ("passed", "failed", "skipped")}
    remarks = [", ".join(f"{count} {result}" for result, count in counts.items() if count)]
    for test in tests:
        if test["result"] != "passed":
            undone = _steps([tuple(step) for step in test["clients"][name]["steps"]])
            remarks.append(f"**{test['result']}**: {undone} ({test['why']})")
    lacks = {what: why for each in mine for what, why in each["lacks"].items()}
    remarks += [f"without {what}: {why}" for what, why in lacks.items()]
    apart = sum(test["share"] != "make test" for test in tests)
    if 0 < apart < len(tests):
        remarks[0] += f" ({apart} of them by `make conformance`)"
    star = " *" if apart == len(tests) else ""
    cells = (
        name + star,
        CATALOGUE[name].language,
        ", ".join(versions) or "not found",
        _steps(steps),
        "; ".join(remarks),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def made_from(commits: list[str]) -> str:
    """The sentence above the tables."""
    names = [f"`{each[:12]}`{' with changes' if each.endswith('+') else ''}" for each in commits]
    return f"Found at commit {' and later '.join(names)}."


def render(results: dict[str, dict[str, Any]], commits: list[str]) -> str:
    """The tables of docs/reference/compatibility.md."""
    by_client: dict[str, list[dict[str, Any]]] = {}
    for test in results.values():
        for name in test["clients"]:
            by_client.setdefault(name, []).append(test)
    lines = [made_from(commits), ""]
    for section, title in SECTIONS.items():
        rows = [
            _row(name, by_client[name])
            for name, each in CATALOGUE.items()
            if each.section == section and name in by_client
        ]
        if rows:
            lines += [
                f"### {title}",
                "",
                "| name | language | version | what was run | result |",
                "|---|---|---|---|---|",
                *rows,
                "",
            ]
    return "\n".join(lines).strip()


def page_with(page: str, tables: str) -> str:
    """The page with the tables between its two marks. Raises ValueError where a mark is missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no marks for the tables")
    return f"{head}{BEGIN}\n{tables}\n{END}{tail}"


if __name__ == "__main__":
    results_path, page_path = map(Path, sys.argv[1:3])
    results = read(results_path)
    tables = render(results.tests, results.commits)
    page_path.write_text(page_with(page_path.read_text(), tables))
