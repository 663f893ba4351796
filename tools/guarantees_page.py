"""Writes docs/reference/guarantees.md from docs/reference/guarantees.json: `python -m tools.guarantees_page [FILE]`.

`--measure N` plays N seeds of each configuration and event in the simulation first, and writes the JSON file. A test
fails when the page in the repository is not what this gives.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ottla.simulation import guarantees
from tools.pages import write_page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "reference" / "guarantees.json"

INTRODUCTION = """\
# Guarantees, measured

What a replicated topic loses, and for how long it takes no records, is a matter of its settings. This page is no
promise on paper: `python -m tools.guarantees_page --measure {seeds} docs/reference/guarantees.md`, at commit {commit},
played each cell (runs each: {seeds}) in the simulation, which runs the real code of three controllers and three brokers
([architecture.md](../architecture.md)).
One producer without idempotence writes to a partition with three replicas; three seconds later something happens to
them, for eight seconds; then everything comes back.

Each cell says how many acknowledged records were lost of how many (in all seeds together), and the longest time without
an acknowledgement. That is what a client sees which gives a request up after 3 s: where a node is paused, or loses its
power, the connection does not end, and those 3 s are in it. With acks=0 nothing is acknowledged: lost is what was sent,
and there is no time.

A process that is killed loses nothing of what it wrote, as the page cache stays; a machine without power loses what was
not fsynced. `flush.messages=1` fsyncs before the answer, the default leaves that to the system.
"""


def words(row: dict[str, Any]) -> str:
    lost = f"{row['lost']} of {row['acknowledged']}" if row["lost"] else "none"
    waited = "" if row["acks"] == 0 else f"; {row['unavailable_s']:g} s"
    return lost + waited


def table(rows: list[dict[str, Any]], event: str) -> Iterator[str]:
    yield "| acks | min.insync.replicas | default | flush.messages=1 | unclean | unclean, flush.messages=1 |"
    yield "|---|---|---|---|---|---|"
    found = {
        (row["acks"], row["min_isr"], row["is_unclean"], row["is_flushed"]): row
        for row in rows
        if row["event"] == event
    }
    kinds = sorted({(acks, min_isr) for acks, min_isr, *_ in found}, key=lambda kind: (kind[0] % 3, kind[1]))
    for acks, min_isr in kinds:
        cells = [
            words(found[acks, min_isr, *each]) for each in ((False, False), (False, True), (True, False), (True, True))
        ]
        required = min_isr if acks == -1 else "any"
        yield f"| {'all' if acks == -1 else acks} | {required} | {' | '.join(cells)} |"


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A table to decide by: each configuration in one line, over all events."""
    yield "## In short"
    yield ""
    yield "What was lost is certain; that nothing was is what these runs, and those of `ottla sim`, saw."
    yield ""
    yield "| acks | min.insync.replicas | flush.messages=1 | unclean | acknowledged records were lost in |"
    yield "|---|---|---|---|---|"
    for acks, min_isr, is_flushed, is_unclean in dict.fromkeys(
        (row["acks"], row["min_isr"], row["is_flushed"], row["is_unclean"]) for row in rows
    ):
        chosen = (acks, min_isr, is_flushed, is_unclean)
        lost = [
            row["event"]
            for row in rows
            if (row["acks"], row["min_isr"], row["is_flushed"], row["is_unclean"]) == chosen and row["lost"]
        ]
        name, required = ("all", min_isr) if acks == -1 else (acks, "any")
        flags = f"{'yes' if is_flushed else 'no'} | {'yes' if is_unclean else 'no'}"
        yield f"| {name} | {required} | {flags} | {'; '.join(lost) or 'nothing'} |"
    yield ""


def page(results: dict[str, Any]) -> str:
    rows = results["rows"]
    lines = [INTRODUCTION.format(seeds=results["seeds"], commit=results["commit"]), *summary(rows)]
    for event in dict.fromkeys(row["event"] for row in rows):
        lines += [f"## {event[0].upper()}{event[1:]}", "", guarantees.MEANING[event], "", *table(rows, event), ""]
    return "\n".join([*lines, *delivery()])


DELIVERY = """## At most once, at least once, exactly once

What the tables say of the log, these say of a program that reads it, and dies and is started again. It is a matter of
when it commits its position. Writing has the same question, and an answer without a price: a producer with
`enable.idempotence=true` (the default of Java's and franz-go's, in librdkafka to be set) repeats what was not
acknowledged, and each record is in the log once and in its order.

Exactly once holds for what is read from topics and written to topics. What `transform` does elsewhere, a mail or a row
in a database, happens again. Readers want `isolation.level=read_committed` (the default of librdkafka and of `ottla
consume`, in Java to be set), and see what was committed. `ottla txn list` shows what is open.
"""
EXAMPLES = ROOT / "docs" / "reference" / "examples"


def delivery() -> list[str]:
    """The examples that `tests/conformance/test_delivery_examples.py` runs."""
    lines = [DELIVERY]
    for name in ("at_most_once", "at_least_once", "exactly_once"):
        text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        says, _, code = text.removeprefix('"""').partition('"""\n\n')
        title = name.replace("_", " ")
        meaning = says.partition(": ")[2]
        lines += [
            f"### {title.capitalize()}",
            "",
            meaning[:1].upper() + meaning[1:],
            "",
            "```python",
            code.rstrip(),
            "```",
            "",
        ]
    return lines


def commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write_results(seeds: int, made_from: str, rows: list[dict[str, Any]]) -> None:
    text = ",\n".join(json.dumps(row) for row in rows)
    RESULTS.write_text(f'{{"seeds": {seeds}, "commit": "{made_from}", "rows": [\n{text}\n]}}\n', encoding="utf-8")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--measure"]:
        seeds, arguments = int(arguments[1]), arguments[2:]
        rows = []
        for row in guarantees.measure_all(seeds):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
        write_results(seeds, commit(), rows)
    write_page(page(json.loads(RESULTS.read_text(encoding="utf-8"))), arguments)


if __name__ == "__main__":
    main()
