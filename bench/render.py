"""Write the tables of the documentation from docs/performance.json: `python -m bench.render`.

In a page, what stands between `<!-- bench: KEY -->` and `<!-- end -->` is replaced:

    made           the commit, the date and the machine of all tables
    summary        who is ahead in what; `three` three rows of it
    subject-NAME   a table of `bench/subjects.py`, with the commit that it measured
    failover       what producers notice of a node that is killed; `flood` what others notice of attacks
    table-NAME     all sections of the table NAME in full; `rows-KEY` one section without its title
    instructions   bench/instructions.json

A place whose table was not measured stays empty. `--one-commit` fails unless all tables are of one commit.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import subjects
from bench.method.rounds import DISTURBED
from bench.plan import RESULTS, STEPS
from bench.results import ROOT, Kept, Results, markdown
from bench.subjects import SUBJECTS

INSTRUCTIONS = ROOT / "bench" / "instructions.json"
_PLACE = re.compile(r"(<!-- bench: (?P<key>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_README = {"warm", "cold"}
"""Places that README.md had once: what stands there is left as it is."""


def pages() -> list[Path]:
    """The pages that have a place for a table."""
    every = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in every if places(path.read_text(encoding="utf-8"))]


def places(page: str) -> list[str]:
    return [match["key"] for match in _PLACE.finditer(page) if match["key"] not in _README]


def commits(results: Results) -> dict[str, list[str]]:
    """The steps of the plan by the commits that they measured, the commit of most steps first."""
    found: dict[str, list[str]] = {}
    for step in STEPS:
        for commit in sorted({results.sections[key].made["commit"] for key in step.keys if key in results.sections}):
            if not step.is_extra:
                found.setdefault(commit, []).append(step.name)
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def made(results: Results) -> str:
    """When and where: one sentence where all tables are of one commit, else a list of them."""
    by_commit = commits(results)
    lines = []
    for commit, steps in by_commit.items():
        kept = next(each for each in results.sections.values() if each.made["commit"] == commit)
        what = "All tables" if len(by_commit) == 1 else f"- {', '.join(steps)}"
        lines.append(f"{what}: commit {commit}, {kept.made['date']}, {kept.made['machine']}.")
    if len(lines) > 1:
        what = "The tables are not all of one commit. Each says its own; by the steps of `python -m bench page`:"
        lines = [what, "", *lines]
    return "\n".join(lines) + "\n"


def measured(sections: Sequence[Kept]) -> str:
    """The line below a table: commit and date, how often, and what else the machine did."""
    found: dict[str, float] = {}
    for kept in sections:
        text = f"commit {kept.made['commit']}, {kept.made['date']}, {kept.made['windows']}"
        others = re.search(rf"{DISTURBED} ([\d.]+) cores", kept.note)
        found[text] = max(found.get(text, 0.0), float(others[1]) if others else 0.0)
    parts = [text + f" (other processes used up to {cores} cores)" * bool(cores) for text, cores in found.items()]
    return f"*{'; '.join(parts).capitalize()}.*\n"


def _with_commit(text: str, sections: Sequence[Kept]) -> str:
    return f"{text}\n{measured(sections)}" if text else ""


def _in_full(kept: Kept) -> str:
    return f"#### {kept.title}\n\n{_with_commit(markdown(kept), [kept])}"


def instructions() -> str:
    """The figures that a test holds."""
    kept = json.loads(INSTRUCTIONS.read_text(encoding="utf-8"))
    lines = [f"| {name} | {count:,} |" for name, count in kept["loads"].items()]
    return "\n".join([f"| {kept['build']} | user instructions |", "|---|---|", *lines]) + "\n"


def _of(key: str) -> Callable[[Results], list[Kept]]:
    return lambda results: [results.sections[key]] if key in results.sections else []


MADE: dict[str, Callable[[Results], str]] = {
    "made": made,
    "summary": subjects.summary,
    "failover": lambda results: _with_commit(subjects.failover(results), _of("killed-nodes")(results)),
    "flood": lambda results: _with_commit(subjects.flood(results), _of("flood")(results)),
    "instructions": lambda _: instructions(),
}


def text_of(key: str, results: Results) -> str:
    """What stands at a place. Raises KeyError for a key that there is not."""
    kind, _, name = key.partition("-")
    if key in MADE:
        return MADE[key](results)
    if kind == "subject":
        return _with_commit(SUBJECTS[name].markdown(results), SUBJECTS[name].sections(results))
    if kind == "table":
        return "\n".join(_in_full(kept) for kept in results.of(name))
    if kind == "rows":
        return markdown(results.sections[name]) if name in results.sections else ""
    raise KeyError(f"no table {key!r}")


def page_with(page: str, results: Results) -> str:
    """The page with what the results say in all its places."""

    def fill(match: re.Match[str]) -> str:
        if match["key"] in _README:
            return match[0]
        text = text_of(match["key"], results)
        return f"{match[1]}\n{text}\n{match[3]}" if text else f"{match[1]}{match[3]}"

    return _PLACE.sub(fill, page)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.render", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one-commit", action="store_true", help="write nothing unless all tables are of one commit")
    parser.add_argument("--json", type=Path, default=RESULTS, help="file of the results (docs/performance.json)")
    options = parser.parse_args()
    results = Results.read(options.json)
    if options.one_commit and len(commits(results)) > 1:
        sys.exit(f"not of one commit:\n{made(results)}")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if text != (new := page_with(text, results)):
            path.write_text(new, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
