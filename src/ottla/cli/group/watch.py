"""`ottla group watch`: how far behind groups are, again and again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Any

from cyclopts import Parameter

from ottla.cli import interrupts
from ottla.cli.client import admin_client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import OK
from ottla.cli.group.requests import names_of_groups
from ottla.cli.group.view import Ages, Group, Progress, groups
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from ottla.cli.output import iso_time, plural, print_json_line
from ottla.cli.units import duration
from ottla.cli.values import Count, GroupId, Seconds

Row = tuple[str, ...]

COLUMNS_OF_ONE = ("TOPIC", "PARTITION>", "COMMITTED>", "END>", "LAG>", "BEHIND>", "READS/S>", "CLIENT")
COLUMNS_OF_A_SHARE_GROUP = (
    "TOPIC", "PARTITION>", "START>", "END>", "LAG>", "BEHIND>", "IN FLIGHT>", "REDELIVERED>", "READS/S>",
)  # fmt: skip
EXPENDABLE = ("ARRIVES/S>", "END>", "COMMITTED>", "START>", "READS/S>", "CLIENT", "MEMBERS>", "STATE")
"""Columns that a narrow terminal can do without, in this order."""
COLUMNS_OF_MANY = ("GROUP", "STATE", "MEMBERS>", "LAG>", "BEHIND>", "READS/S>", "ARRIVES/S>")


def watch(
    *names: GroupId,
    interval: Annotated[Seconds, Parameter(alias="-i")] = 2.0,
    count: Annotated[Count | None, Parameter(alias="-n")] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Show the lag of groups live, until Ctrl-C.

    One group is shown per partition, several are shown per group. For a share group, lag is its backlog and the rate
    counts records it has finished. A terminal shows one table that is updated; a pipe gets a line per row at each
    update.

    Parameters
    ----------
    names
        The groups. Default: all.
    interval
        Seconds between updates.
    count
        Stop after this many updates.
    json
        One JSON object a line: each group at each look.
    """
    wanted = list(dict.fromkeys(names))
    rates = Rates()
    looks = 0
    try:
        with closing(Ages(bootstrap)) as ages:
            client = admin_client(bootstrap)
            with _screen(json) as show:
                while count is None or looks < count:
                    if looks:
                        time.sleep(interval)
                    asked = wanted or names_of_groups(bootstrap)
                    found = groups(bootstrap, client, asked, known=bool(looks) or not wanted)
                    ages.add(found)
                    rates.look(found, time.monotonic())
                    show(found, rates, single=len(wanted) == 1)
                    looks += 1
    except KeyboardInterrupt:
        pass
    return OK


class Rates:
    """Records a second between two looks: read (by commits) and arrived (by ends)."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._before: dict[tuple[str, str, int], tuple[int | None, int | None]] = {}
        self._rates: dict[tuple[str, str, int], tuple[float | None, float | None]] = {}

    def look(self, found: Iterable[Group], now_s: float) -> None:
        now = {
            (group.name, each.topic, each.partition): (each.done, each.end)
            for group in found
            for each in group.progress
        }
        elapsed = now_s - self._at if self._at is not None else 0.0
        self._rates = {}
        for key, (committed, end) in now.items():
            old_committed, old_end = self._before.get(key, (None, None))
            self._rates[key] = (_rate(committed, old_committed, elapsed), _rate(end, old_end, elapsed))
        self._at, self._before = now_s, now

    def reads(self, group: str, topic: str, partition: int) -> float | None:
        return self._rates.get((group, topic, partition), (None, None))[0]

    def of_group(self, name: str) -> tuple[float | None, float | None]:
        """(read, arrived) in all partitions."""
        mine = [rates for (group, _, _), rates in self._rates.items() if group == name]
        return _sum(each[0] for each in mine), _sum(each[1] for each in mine)


def _rate(now: int | None, before: int | None, elapsed_s: float) -> float | None:
    return None if now is None or before is None or elapsed_s <= 0 else (now - before) / elapsed_s


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def columns_of_one(group: Group) -> tuple[str, ...]:
    return COLUMNS_OF_A_SHARE_GROUP if group.is_shared else COLUMNS_OF_ONE


def _row_of_shared(group: Group, each: Progress, rates: Rates) -> Row:
    held, redelivered, *_ = each.in_flight or (None, None)
    return (
        each.topic,
        str(each.partition),
        _number(each.committed),
        _number(each.end),
        _number(each.lag),
        "-" if each.lag_s is None else duration(each.lag_s),
        _number(held),
        _number(redelivered),
        _number(rates.reads(group.name, each.topic, each.partition)),
    )


def rows_of_one(group: Group, rates: Rates) -> list[Row]:
    if group.is_shared:
        return [_row_of_shared(group, each, rates) for each in group.progress]
    clients = names_of_members(group)
    return [
        (
            each.topic,
            str(each.partition),
            _number(each.committed),
            _number(each.end),
            _number(each.lag),
            "-" if each.lag_s is None else duration(each.lag_s),
            _number(rates.reads(group.name, each.topic, each.partition)),
            clients.get(each.member_id or "", "-"),
        )
        for each in group.progress
    ]


def names_of_members(group: Group) -> dict[str, str]:
    """Member ids to the names of their clients; those that share one are numbered as `group describe` does."""
    shared = Counter(member.client_id for member in group.members)
    return {
        member.member_id: member.client_id + (f" #{number}" if shared[member.client_id] > 1 else "")
        for number, member in enumerate(group.members, 1)
    }


def rows_of_many(found: Iterable[Group], rates: Rates) -> list[Row]:
    rows: list[Row] = []
    for group in found:
        read, arrived = rates.of_group(group.name)
        behind = "-" if group.lag_s is None else duration(group.lag_s)
        members = str(len(group.members))
        rows.append((group.name, group.state, members, _number(group.lag), behind, _number(read), _number(arrived)))
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


@contextmanager
def _screen(as_json: bool) -> Iterator[Callable[..., None]]:
    """Where looks go: JSON Lines, plain lines, or a table on the terminal that is drawn over."""
    if as_json or not sys.stdout.isatty():
        yield _print_json if as_json else _print_lines
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    last: Any = None
    try:
        # A screen of its own, as `top` has, so that nothing is left over when the terminal is resized.
        live = Live(console=console, auto_refresh=False, screen=True)
        with interrupts.held():
            interrupts.restore_at_end(interrupts.LEAVE_SCREEN + interrupts.SHOW_CURSOR)
            live.start(refresh=True)
        try:

            def draw(found: Sequence[Group], rates: Rates, *, single: bool) -> None:
                nonlocal last
                last = _picture(found, rates, single, console.width, console.height - 3)
                live.update(last, refresh=True)

            yield draw
        finally:
            with interrupts.held():
                live.stop()
                interrupts.restore_at_end(b"")
    finally:
        if last is not None:
            console.print(last)


def _print_json(found: Sequence[Group], rates: Rates, *, single: bool) -> None:
    now = iso_time(time.time_ns() // 1_000_000)
    for group in found:
        print_json_line({"time": now, **group.as_json()})
    sys.stdout.flush()


def _print_lines(found: Sequence[Group], rates: Rates, *, single: bool) -> None:
    now = (iso_time(time.time_ns() // 1_000_000) or "")[:19] + "Z"
    for row in rows_of_one(found[0], rates) if single and found else rows_of_many(found, rates):
        columns = columns_of_one(found[0]) if single else COLUMNS_OF_MANY
        pairs = zip(columns, row, strict=True)
        print(now, *(f"{name.rstrip('>').lower().replace(' ', '_')}={v.replace(' ', '')}" for name, v in pairs))
    sys.stdout.flush()


def fitting(columns: Sequence[str], rows: Sequence[Row], width: int) -> list[int]:
    """Indexes of the columns that fit, in order; those that say least go first."""
    sizes = [max(len(name.rstrip(">")), *(len(row[at]) for row in rows), 0) for at, name in enumerate(columns)]
    kept = list(range(len(columns)))
    for name in EXPENDABLE:
        if sum(sizes[at] + 1 for at in kept) - 1 <= width:
            break
        kept = [at for at in kept if columns[at] != name]
    return kept


def _picture(found: Sequence[Group], rates: Rates, single: bool, width: int, height: int) -> Any:
    """A heading and as many rows as the terminal has lines, those furthest behind first where not all fit."""
    from rich.console import Group as Stack
    from rich.table import Table
    from rich.text import Text

    columns = columns_of_one(found[0]) if single and found else COLUMNS_OF_MANY
    rows = rows_of_one(found[0], rates) if single and found else rows_of_many(found, rates)
    lag = columns.index("LAG>")
    left_out = len(rows) - height
    if left_out > 0:
        height = max(1, height - 1)
        left_out = len(rows) - height
        rows = sorted(rows, key=lambda row: -float(row[lag].replace(",", "").replace("-", "-1")))[:height]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    kept = fitting(columns, rows, width)
    for name in (columns[at] for at in kept):
        side: Any = "right" if name.endswith(">") else "left"
        table.add_column(name.rstrip(">"), justify=side, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(row[at]) for at in kept))
    what = "all groups"
    if single and found:
        what = f"{found[0].name}  {found[0].state}, {plural(len(found[0].members), 'member')}"
    head = Text(f"{what}   {time.strftime('%H:%M:%S')}   Ctrl-C to stop", no_wrap=True, overflow="ellipsis")
    parts: list[Any] = [head, Text(""), table if rows else Text("nothing to show yet")]
    if left_out > 0:
        parts.append(Text(f"and {left_out} more with less lag"))
    return Stack(*parts)
