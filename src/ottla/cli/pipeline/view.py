"""How a run is shown: a table that changes on a terminal, lines in a pipe, JSON for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from ottla.cli import interrupts
from ottla.cli.output import bold, human_bytes, plural, print_json_line, print_table, visible
from ottla.cli.units import duration
from ottla.pipelines.runner.state import STARTING, STOPPING, QueryStatus, Status

COLUMNS: Final = ("QUERY", "ROWS>", "ROWS/S>", "LAG>", "BEHIND>", "BATCH>", "TOOK>", "STATE>", "LATE>", "RESTARTS>")


FIRST_S: Final = 1.0
LONG_S: Final = 10.0
"""A batch is spoken of when it takes longer: the first one, and any other."""
AGAIN_S: Final = 10.0
"""Between two lines about the same batch, in a pipe."""


def row(query: QueryStatus) -> tuple[str, ...]:
    state = f"{query.state_rows:,} ({human_bytes(query.state_bytes)})" if query.state_rows else "-"
    return (
        query.name,
        f"{query.rows:,}",
        f"{query.rows_per_s:,.0f}",
        "-" if query.lag_records is None else f"{query.lag_records:,}",
        "-" if query.lag_s is None else duration(query.lag_s),
        str(query.batch) if query.batch >= 0 else "-",
        duration(query.batch_s),
        state,
        f"{query.late_rows:,}",
        str(query.restarts),
    )


def under_way(query: QueryStatus) -> str:
    """A sentence about a batch that takes long, above all the first one, before which all else is nought."""
    if query.running_s < (FIRST_S if query.batch < 0 else LONG_S):
        return ""
    batch = "first batch" if query.batch < 0 else f"batch {query.batch + 1}"
    behind = "" if query.lag_records is None else f", {query.lag_records:,} behind"
    return f"{query.name}: {batch} since {query.running_s:.0f} s{behind}"


def waiting(status: Status) -> str:
    """What a run that was asked to stop is waiting for."""
    if status.state == STARTING:
        return "waits for Spark to start"
    if not status.waits_for:
        return "waits for Spark to stop" if status.state == STOPPING else "waits for the pipeline to notice the request"
    since = {query.name: f" (for {query.running_s:.0f} s now)" for query in status.queries if query.running_s >= 1}
    return f"waits for the batch of {', '.join(name + since.get(name, '') for name in status.waits_for)} to finish"


def head(status: Status) -> str:
    letters = f", {plural(status.dead_letters, 'dead letter')}" if status.dead_letters else ""
    wait = f", {waiting(status)}" if status.state == STOPPING else ""
    return f"{status.name}: {status.state}{wait}{letters}"


def print_statuses(found: Sequence[Status]) -> None:
    """A heading and a table for each."""
    if not found:
        print("no pipeline has run here")
    for status in found:
        print(f"{bold(visible(status.name))}: {head(status).partition(': ')[2]}, since {status.started_at}")
        if status.error:
            print(f"  {visible(status.error)}")
        if status.queries:
            print_table(COLUMNS, [row(query) for query in status.queries], indent=2)
        for text in filter(None, map(under_way, status.queries)):
            print(f"  {visible(text)}")
    sys.stdout.flush()


@contextmanager
def screen(name: str, as_json: bool) -> Iterator[Callable[[Status], None]]:
    """A function that shows a status; called from any thread."""
    if as_json:
        yield _print_json
    elif sys.stdout.isatty():
        with _live(name) as show:
            yield show
    else:
        yield Lines()


def _print_json(status: Status) -> None:
    print_json_line(asdict(status))
    sys.stdout.flush()


class Lines:
    """A line when a query has done a batch, was started again, or the state is another."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[int, int, int | None]] = {}
        self._state = ""
        self._said: dict[str, float] = {}

    def __call__(self, status: Status) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for query in status.queries:
            self._under_way(now, status, query)
            at = (query.rows, query.restarts, query.lag_records)
            if self._shown.get(query.name, (0, 0, None)) == at:
                continue
            self._shown[query.name] = at
            cells = [cell.replace(",", "").replace(" ", "") for cell in row(query)]
            print(
                f"{now} {status.name}.{query.name} rows={query.rows} rows_per_s={query.rows_per_s:.0f}"
                f" lag={cells[3]} behind={cells[4]} batch={query.batch} took={query.batch_s:.2f}s"
                f" state={query.state_rows} late={query.late_rows} restarts={query.restarts}"
            )
        if status.state != self._state:
            self._state = status.state
            print(f"{now} {head(status)}")
        sys.stdout.flush()

    def _under_way(self, now: str, status: Status, query: QueryStatus) -> None:
        said = self._said.get(query.name)
        text = under_way(query)
        if text and (said is None or not said <= query.running_s < said + AGAIN_S):  # less: it is another batch
            self._said[query.name] = query.running_s
            print(f"{now} {status.name}.{text}")


@contextmanager
def _live(name: str) -> Iterator[Callable[[Status], None]]:
    """Drawn in place, so that the last picture stays where the shell goes on."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    live = Live(Text(f"{name}: Spark starts ..."), console=console, auto_refresh=False)
    with interrupts.held():
        interrupts.restore_at_end(interrupts.SHOW_CURSOR)
        live.start(refresh=True)
    try:
        yield lambda status: live.update(_picture(status, console.width), refresh=True)
    finally:
        with interrupts.held():
            live.stop()
            interrupts.restore_at_end(b"")


EXPENDABLE: Final = ("RESTARTS>", "LATE>", "STATE>", "TOOK>", "BATCH>")
"""Columns that a narrow terminal can do without, in this order."""


def _picture(status: Status, width: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = [row(query) for query in status.queries]
    kept = list(range(len(COLUMNS)))
    for column in EXPENDABLE:
        if sum(max(len(COLUMNS[at]), *(len(each[at]) for each in rows), 0) + 2 for at in kept) <= width:
            break
        kept.remove(COLUMNS.index(column))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at in kept:
        table.add_column(
            COLUMNS[at].rstrip(">"), justify="right" if COLUMNS[at].endswith(">") else "left", no_wrap=True
        )
    for each in rows:
        table.add_row(*(Text(each[at]) for at in kept))
    ends = "   Ctrl-C to stop" if status.state in ("starting", "running") else ""
    parts: list[Any] = [Text.assemble((status.name, "bold"), head(status)[len(status.name) :], ends)]
    errors = [f"  {text}" for text in map(under_way, status.queries) if text]
    errors += [f"  {query.name}: {query.error}" for query in status.queries if query.error and query.restarts]
    return Group(*parts, table, *map(Text, errors)) if rows else Group(*parts)
