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

from tools import guarantees
from tools.pages import write_page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "reference" / "guarantees.json"

INTRODUCTION = """\
# Guarantees, measured

What a replicated topic loses, and for how long it is unavailable for writes, depends on its settings. This page is
measured: `python -m tools.guarantees_page --measure {seeds} docs/reference/guarantees.md`, at commit {commit}, played
each cell (runs each: {seeds}) in the simulation, which runs the real code of three controllers and three brokers
([architecture.md](../architecture.md)). One producer without idempotence writes to a partition with three replicas.
After three seconds a fault is injected for eight seconds, then everything is healed.

Each cell says how many acknowledged records were lost of how many (in all seeds together), and the longest time without
an acknowledgement. The client's request timeout is 3 s: if a node is paused or loses power, the connection does not
end, and the time includes these 3 s. With acks=0 nothing is acknowledged: the loss counts sent records, and there is no
time.

A killed process loses nothing that it wrote, as the page cache remains; a machine that loses power loses what was not
fsynced. `flush.messages=1` fsyncs before the answer; the default leaves fsyncing to the operating system.
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
    yield "A loss is certain; 'nothing' means that neither these runs nor those of `ottla sim` lost anything."
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

The tables are about the log; this section is about a program that reads it, dies and is restarted. Its guarantee
depends on when it commits its position. For writing, the answer costs nothing: a producer with
`enable.idempotence=true` (the default of Java's and franz-go's, must be set in librdkafka) retries unacknowledged
records, and each record is in the log once and in order.

Exactly once holds for records read from topics and written to topics. Side effects of `transform`, such as a mail or a
row in a database, may happen again. Readers need `isolation.level=read_committed` (the default of librdkafka and of
`ottla consume`, must be set in Java) and see only committed records. `ottla txn list` shows open transactions.
"""
EXAMPLES = ROOT / "docs" / "reference" / "examples"


def delivery() -> list[str]:
    """The examples that `tests/conformance/pages/test_delivery_examples.py` runs."""
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
