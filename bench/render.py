"""Write the tables of docs/performance.md, docs/testing.md and README.md from docs/performance.json.

`python -m bench.render` does it.

In a page, what stands between `<!-- bench: KEY -->` and `<!-- end -->` is made from the section KEY of the results;
`rows-KEY` is its table without the title, `table-NAME` are all sections of the table NAME, none if it was not made.
`made`, `warm` and `cold` are how it was measured, and the two tables of the README; `before-after` is what
`python -m bench compare` found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench import compare, group_requests
from bench.results import ROOT, Kept, Results, markdown
from bench.rounds import DISTURBED

RESULTS = ROOT / "docs" / "performance.json"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md", ROOT / "docs" / "testing.md")
NOT_MEASURED = "(Not measured in the stored results.)\n"
PROVISIONAL = "Provisional: the machine had other work while this was measured."
_PLACE = re.compile(r"(<!-- bench: (?P<key>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Line:
    """A row of the README: which figure of which section."""

    label: str
    key: str
    figure: str
    unit: str
    name: str | None = None
    """The load, in a section of several."""


WARM = (
    Line("produce, one 100-byte record a request", "produce-one-record", "req/s", "requests/s"),
    Line("produce, 16 KB batches", "produce-16k", "req/s", "requests/s"),
    Line("the same, CPU of the broker", "produce-16k", "CPU-s/GB", "s/GB"),
    Line("produce, 16 KB batches, fsync each", "produce-fsync", "req/s", "requests/s"),
    Line("produce, 1 MB batches", "produce-1m", "MB/s", "MB/s"),
    Line("produce, 1,000 connections, 1 KB", "produce-1000-connections", "req/s", "requests/s"),
    Line("fetch, 64 KB answers", "fetch-64k", "req/s", "requests/s"),
    Line("fetch, 1 MB answers", "fetch-1m", "MB/s", "MB/s"),
    Line("a record from producer to consumer, median", "round-trip", "p50 ms", "ms"),
    Line("offset commits, 20 partitions, 50 groups", "group-requests", "req/s", "requests/s",
         "commit of 20 partitions, 50 groups x 5 in flight"),
    Line("offset fetches, 20 partitions, 50 groups", "group-requests", "req/s", "requests/s",
         "offset fetch of 20 partitions, 50 groups x 5 in flight"),
    Line("rebalance, one of 100 members leaves", "rebalances", "ms", "ms", "one leaves, 100"),
    Line("rebalance, one of 1,000 members leaves", "rebalances", "ms", "ms", "one leaves, 1,000"),
)  # fmt: skip
COLD = (
    Line("start", "start", "start s", "s"),
    Line("memory when idle", "start", "idle RSS MB", "MB"),
    Line("produce, one record a request, first second", "first-seconds", "0 to 1 s", "requests/s"),
    Line("the same, 18 to 25 s after the start", "first-seconds", "18 to 25 s", "requests/s"),
)
COMPARED = (
    Line("produce, one 100-byte record a request", "compare-produce-one-record", "req/s", "requests/s"),
    Line("produce, 16 KB batches", "compare-produce-16k", "req/s", "requests/s"),
    Line("produce, 64 KB batches of 1 KB records", "compare-produce-64k", "req/s", "requests/s"),
    Line("produce, 1 MB batches", "compare-produce-1m", "req/s", "requests/s"),
    Line("fetch, 64 KB answers", "compare-fetch-64k", "req/s", "requests/s"),
    Line("fetch, 1 MB answers", "compare-fetch-1m", "req/s", "requests/s"),
    Line("a record from producer to consumer, median", "compare-round-trip", "p50 ms", "ms"),
    *(
        Line(name, "compare-group-requests", "req/s", "requests/s", name)
        for name in group_requests.LOADS
        if "50 groups" in name
    ),
    Line("produce, 16 KB batches, fsync each", "compare-produce-fsync", "req/s", "requests/s"),
    Line("produce, 1,000 connections, 1 KB", "compare-produce-1000-connections", "req/s", "requests/s"),
)
CPU = "CPU ms per 1,000"


def readme_table(results: Results, lines: tuple[Line, ...]) -> str:
    """Medians of both sides and the ratio of the pairs with its lowest and highest."""
    out = ["| | Ottla | Apache Kafka | Ottla / Kafka (lowest to highest) |", "|---|---|---|---|"]
    disturbed = False
    for line in lines:
        kept = results.sections[line.key]
        disturbed |= DISTURBED in kept.note
        ours, theirs = (kept.rounds(side, line.name) for side in (compare.OURS, compare.THEIRS))
        cells = [f"{compare.short(compare.medians(side)[line.figure])} {line.unit}" for side in (ours, theirs)]
        out.append(f"| {line.label} | {' | '.join(cells)} | {compare.ratio_text(ours, theirs, line.figure)} |")
    return "\n".join([*out, *(["", PROVISIONAL] if disturbed else [])]) + "\n"


def before_after(results: Results) -> str:
    """Both commits in a row for each load that was measured: the figure, the CPU, and the ratios of the pairs."""
    out = [
        "| | before | after | after / before (lowest to highest) | CPU, after / before |",
        "|---|---|---|---|---|",
    ]
    disturbed = False
    for line in COMPARED:
        kept = results.sections.get(line.key)
        if kept is None or (line.name and line.name not in kept.data):
            continue
        disturbed |= DISTURBED in kept.note
        ours, theirs = (kept.rounds(side, line.name) for side in (compare.OURS, compare.BASE))
        cells = [f"{compare.short(compare.medians(side)[line.figure])} {line.unit}" for side in (theirs, ours)]
        cpu = compare.ratio_text(ours, theirs, CPU) if CPU in ours[0] else ""
        out.append(f"| {line.label} | {' | '.join(cells)} | {compare.ratio_text(ours, theirs, line.figure)} | {cpu} |")
    if len(out) == 2:
        return NOT_MEASURED
    return "\n".join([*out, *(["", PROVISIONAL] if disturbed else [])]) + "\n"


def made(results: Results) -> str:
    """When, where and how: one paragraph for all tables that were made alike."""
    alike: dict[str, list[str]] = {}
    for kept in results.sections.values():
        tables = alike.setdefault(_how(kept), [])
        if kept.table not in tables:
            tables.append(kept.table)
    if len(alike) == 1:
        return f"{next(iter(alike))}\n"
    return "\n\n".join(f"Tables {', '.join(tables)}: {how}" for how, tables in alike.items()) + "\n"


def _how(kept: Kept) -> str:
    how = kept.made
    text = (
        f"Measured on {how['date']} at commit {how['commit']}: {how['machine']}; {how['windows']} of each side. "
        f"Warm-up: {how['rule']}."
    )
    return text + (f" {how['missing']}" if how["missing"] else "")


def page_with(page: str, results: Results) -> str:
    """The page with what the results say in all its places; a section that was not measured is said to be so."""

    def fill(match: re.Match[str]) -> str:
        key = match["key"]
        if key == "made":
            text = made(results)
        elif key in ("warm", "cold"):
            text = readme_table(results, WARM if key == "warm" else COLD)
        elif key == "before-after":
            text = before_after(results)
        elif key.startswith("table-"):
            text = "\n".join(_section(kept) for kept in results.of(key.removeprefix("table-")))
        elif key.startswith("rows-"):
            text = markdown(results.sections[key.removeprefix("rows-")])
        else:
            text = _section(results.sections[key]) if key in results.sections else NOT_MEASURED
        return f"{match[1]}\n{text}\n{match[3]}"

    return _PLACE.sub(fill, page)


def _section(kept: Kept) -> str:
    return f"### {kept.title}\n\n{markdown(kept)}"


def places(page: str) -> list[str]:
    return [match["key"] for match in _PLACE.finditer(page)]


def main() -> None:
    results = Results.read(RESULTS)
    for path in PAGES:
        path.write_text(page_with(path.read_text(), results))


if __name__ == "__main__":
    main()
