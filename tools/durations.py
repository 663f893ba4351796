"""What a run of the tests cost: tables of the JUnit XML that `make test` and `make check` leave behind.

    python -m tools.durations                            # of the last `make test`
    python -m tools.durations FILE --top 40              # of another run
    python -m tools.durations FILE --before OTHER        # by folder, before and after
    python -m tools.durations FILE FILE --write          # replace tests/durations.json, by which tests are ordered:
                                                         # of `make test` and `make check`, .cache/{test,pure}.xml

Seconds by the clock hang on what else the machine does; those of the processor (`tests/costs.py`) hardly.
"""

from __future__ import annotations

import argparse
import json
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAST = ROOT / ".cache" / "test.xml"
KEPT = ROOT / "tests" / "durations.json"
KEPT_FROM_S = 2.0
"""Files that take less are not worth a place in an order."""
SHARED = "(shared)"
"""The row of what is no test's: processes of the whole run."""


@dataclass(frozen=True)
class Cost:
    """One test, or several together."""

    tests: int = 0
    clock_s: float = 0.0
    cpu_s: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tests + other.tests, self.clock_s + other.clock_s, self.cpu_s + other.cpu_s)


@dataclass(frozen=True)
class Test:
    """A row of a run."""

    __test__ = False
    file: str
    name: str
    worker: str
    began: float
    cost: Cost

    @property
    def folder(self) -> str:
        """`tests/unit` and so on."""
        return "/".join(self.file.split("/")[:2])


def read(path: Path) -> list[Test]:
    """The tests of a run, in the order in which they ended. Raises OSError, xml.etree.ElementTree.ParseError."""
    tests = []
    for case in ET.parse(path).getroot().iter("testcase"):
        kept = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        cost = Cost(1, float(case.get("time", 0)), float(kept.get("cpu") or 0))
        module, classes = _module(case.get("classname", ""))
        file = module.replace(".", "/") + ".py"
        name = "::".join((file, *classes, case.get("name", "")))
        tests.append(Test(file, name, kept.get("worker", ""), float(kept.get("began") or 0), cost))
        if shared := float(kept.get("shared") or 0):
            tests.append(Test(SHARED, SHARED, kept.get("worker", ""), 0.0, Cost(cpu_s=shared)))
    return tests


def _module(name: str) -> tuple[str, list[str]]:
    """Module and classes of a JUnit class name. Modules are written in lower case, and classes are not."""
    parts = name.split(".")
    at = next((index for index, part in enumerate(parts) if part[:1].isupper()), len(parts))
    return ".".join(parts[:at]), parts[at:]


def by(key: Callable[[Test], str], tests: Iterable[Test]) -> dict[str, Cost]:
    found: defaultdict[str, Cost] = defaultdict(Cost)
    for test in tests:
        found[key(test)] += test.cost
    return dict(found)


def took_s(tests: Sequence[Test]) -> float:
    """From the first test's beginning to the last one's end."""
    known = [test for test in tests if test.began]
    if not known:
        return sum(test.cost.clock_s for test in tests)
    return max(test.began + test.cost.clock_s for test in known) - min(test.began for test in known)


def table(costs: dict[str, Cost], top: int | None = None) -> list[str]:
    """The dearest first, by the processor's time."""
    width = max(map(len, costs), default=0)
    rows = sorted(costs.items(), key=lambda row: (-row[1].cpu_s, -row[1].clock_s))[:top]
    lines = [f"{'':{width}} {'tests':>6} {'clock s':>9} {'CPU s':>9}"]
    return lines + [f"{name:{width}} {c.tests:6} {c.clock_s:9.1f} {c.cpu_s:9.1f}" for name, c in rows]


def report(tests: Sequence[Test], top: int) -> str:
    folders = by(lambda test: test.folder, tests)
    workers = by(lambda test: test.worker or "-", tests)
    lines = [f"{took_s(tests):.0f} s by the clock on {len(workers)} workers", ""]
    lines += table({**folders, "all": sum(folders.values(), Cost())})
    if top:
        lines += ["", f"The {top} dearest files", *table(by(lambda test: test.file, tests), top)]
        lines += ["", f"The {top} dearest tests", *table(by(lambda test: test.name, tests), top)]
    return "\n".join(lines)


def compared(before: Sequence[Test], after: Sequence[Test]) -> str:
    """By folder, as a table of Markdown."""
    one, two = (by(lambda test: test.folder, tests) for tests in (before, after))
    lines = [
        "| | tests | CPU s | clock s | tests after | CPU s after | clock s after |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for costs in (one, two):
        costs["**all**"] = sum(costs.values(), Cost())
    for name in [*sorted({*one, *two} - {"**all**"}), "**all**"]:
        cells = [f"{c.tests} | {c.cpu_s:.0f} | {c.clock_s:.0f}" for c in (one.get(name, Cost()), two.get(name, Cost()))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kept(tests: Sequence[Test]) -> dict[str, float]:
    """What `tests/order.py` reads: seconds of each file that takes some, by the clock, but the processor's if more."""
    costs = by(lambda test: test.file, (test for test in tests if test.file != SHARED))
    seconds = {file: max(cost.clock_s, cost.cpu_s) for file, cost in sorted(costs.items())}
    return {file: round(each, 1) for file, each in seconds.items() if each >= KEPT_FROM_S}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.durations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", nargs="*", type=Path, default=[LAST], help=f"the JUnit XML of a run ({LAST.relative_to(ROOT)})"
    )
    parser.add_argument("--top", type=int, default=20, help="how many files and tests (%(default)s)")
    parser.add_argument("--before", type=Path, help="an earlier run to compare with, by folder")
    parser.add_argument("--write", action="store_true", help=f"write {KEPT.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    try:
        tests = [test for file in options.file for test in read(file)]
        before = read(options.before) if options.before else None
    except (OSError, ET.ParseError) as error:
        print(f"no run to tell of: {error}", file=sys.stderr)
        return 1
    print(report(tests, options.top) if before is None else compared(before, tests))
    if options.write:
        KEPT.write_text(json.dumps(kept(tests), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
