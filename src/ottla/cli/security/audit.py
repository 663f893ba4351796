"""`ottla audit ...`: whether an audit log is whole, and what is in it. No node is needed, and a running one is not
disturbed."""

from __future__ import annotations

import fnmatch
import heapq
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import App, Parameter

from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag, parse_time_ms
from ottla.cli.output import json_text, plural, print_json, print_table, visible
from ottla.cli.records.record import Record
from ottla.cli.values import FilePath, Raw, Text, TopicName
from ottla.security.audit import LINE_BYTES_MAX, Check, Head, parse, timestamp

app = App(name="audit", help="Verify and search audit logs; no node is needed.", sort_key=9)

PROBLEMS_MAX = 100
"""Problems of one log that are printed."""

_FILE = re.compile(r"audit-\d{20}\.jsonl")

Places = Annotated[FilePath, Parameter(required=False)]
Topic = Annotated[
    TopicName | None, Parameter(name="--topic", help="Read the topic of `ottla.audit.topic` instead of files.")
]


class Problem(NamedTuple):
    """What does not fit, and where; line 0 stands for the log as a whole."""

    file: str
    line: int
    problem: str


class Log(NamedTuple):
    """The lines of one node, in order."""

    directory: Path
    files: Sequence[Path]
    whole: bool
    """Whether these are all of its files, so that its head tells of its end."""
    records: Sequence[Record] | None = None
    """In place of files: what is in the topic of this name."""

    def lines(self) -> Iterator[tuple[str, int, bytes]]:
        """File and number, or partition and offset, of each line. Raises CommandFailed."""
        if self.records is not None:
            for record in self.records:
                yield f"{record.topic}-{record.partition}", record.offset, (record.value or b"") + b"\n"
            return
        for path in self.files:
            for number, line in _lines(path):
                yield str(path), number, line

    @property
    def name(self) -> str:
        if self.records is not None:
            return str(self.directory)
        return str(self.directory if self.whole else self.files[0])


@app.command
def verify(
    *places: Places,
    expect: Annotated[
        Text | None, Parameter(name="--expect", help="SEQ:HASH that an earlier verification printed: it must be there.")
    ] = None,
    topic: Topic = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Verify that no line of an audit log was changed, removed, added or moved. Exit code 1 if one was.

    Each line has a hash over the line before it. The end of a log that was cut off is found by the file `head` beside
    it, or by --expect: keep what this command prints where whoever writes to the log's directory cannot write.

    Parameters
    ----------
    places
        The directory of `ottla.audit.directory`, the part of it of one node, or a file.
    """
    kept: tuple[Head, ...] = ()
    if expect is not None:
        try:
            kept = (Head.read(expect),)
        except ValueError as error:
            raise CommandFailed(f"--expect: {error}", MISUSED) from None
    logs = _logs(places, topic, bootstrap)
    if kept and len(logs) > 1:
        raise CommandFailed("--expect is for the log of one node: name its directory", MISUSED)
    reports = [_verified(log, kept) for log in logs]
    if json:
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    return FAILED if any(report["problems"] for report in reports) else OK


def _verified(log: Log, kept: Sequence[Head]) -> dict[str, Any]:
    head = _head(log) if log.whole else None  # before the lines: a running node writes it behind them
    check = Check((*kept, *(() if head is None else (head,))), is_part=not log.whole)
    problems: list[Problem] = []
    incomplete = False
    last = str(log.files[-1]) if log.files else log.name
    for where, number, line in log.lines():
        incomplete = not line.endswith(b"\n")
        if incomplete and where == last:
            continue
        problem = check.line(line.rstrip(b"\n"))
        if problem is not None:
            problems.append(Problem(where, number, problem))
    if log.whole or kept:
        problems += [Problem(last, 0, problem) for problem in check.end()]
    return {
        "log": log.name,
        "files": len(log.files),
        "events": check.events,
        "first": check.first,
        "head": None if check.last is None else str(check.last),
        "incomplete_line": incomplete,
        "problems": [each._asdict() for each in problems],
    }


def _head(log: Log) -> Head | None:
    """Raises CommandFailed."""
    try:
        text = (log.directory / "head").read_bytes()[:200].decode("ascii", "replace")
        return Head.read(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{log.directory / 'head'} cannot be read: {error}", FAILED) from None


def _print(report: Mapping[str, Any]) -> None:
    problems = report["problems"]
    for each in problems[:PROBLEMS_MAX]:
        at = "line" if report["files"] else "offset"
        where = f"{each['file']} {at} {each['line']}" if each["line"] or not report["files"] else each["file"]
        print(f"{visible(where)}: {each['problem']}")
    if len(problems) > PROBLEMS_MAX:
        print(f"and {plural(len(problems) - PROBLEMS_MAX, 'problem')} more")
    counted = plural(report["events"], "event")
    if report["files"]:
        counted = f"{counted} in {plural(report['files'], 'file')}"
    verdict = plural(len(problems), "problem") if problems else "whole"
    print(f"{visible(report['log'])}: {counted}: {verdict}")
    if report["incomplete_line"]:
        print("  the last line is incomplete: it is being written, or the node was killed")
    if report["head"] is not None and not problems:
        print(f"  newest event: {report['head']}")


@app.command
def search(
    *places: Places,
    user: Annotated[
        Text | None,
        Parameter(name="--user", help="Only events of this user: alice; failed logins included."),
    ] = None,
    resource: Annotated[
        Text | None,
        Parameter(name="--resource", help="Only events about it: topic:orders, user:*, cluster; * is any text."),
    ] = None,
    event: Annotated[
        Text | None, Parameter(name="--event", help="Only these events: CreateAcls, LoginFailed, Delete*.")
    ] = None,
    denied: Annotated[Flag, Parameter(name="--denied", help="Only what was denied, failed logins included.")] = False,
    since: Annotated[
        Raw | None, Parameter(name="--since", help="Only events after that: 10m (ago), 2h, 7d, 2026-05-01T10:00.")
    ] = None,
    topic: Topic = None,
    json: Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print the lines.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Search audit logs: who did what, when, from where, and by which rule; of several nodes in the order of time.

    Parameters
    ----------
    places
        The directory of `ottla.audit.directory`, the part of it of one node, or a file.
    """
    least = ""
    if since is not None:
        since_ms = parse_time_ms(since, time.time_ns() // 1_000_000)
        if since_ms is None:
            raise CommandFailed(f"--since {visible(since)[:100]}: write 10m, 2h, 7d or 2026-05-01T10:00", MISUSED)
        least = timestamp(min(since_ms, 253_402_300_799_000))
    name = None if user is None else user.removeprefix("User:")
    unreadable = [0]
    logs = [_events(log, unreadable) for log in _logs(places, topic, bootstrap)]
    found = (
        each
        for each in heapq.merge(*logs, key=lambda each: str(each.get("time")))
        if str(each.get("time")) >= least
        and (name is None or name in _users(each))
        and _matches(each.get("resource"), resource)
        and _matches(each.get("event"), event)
        and not (denied and each.get("allowed") is not False)
    )
    if json:
        for each in found:
            print(json_text(each, sys.stdout))
    else:
        print_table(("TIME", "EVENT", "USER", "FROM", "RESOURCE", "RESULT", "WHY"), map(_row, found))
    if unreadable[0]:
        print(
            f"ottla: warning: {plural(unreadable[0], 'line')} cannot be read: see ottla audit verify", file=sys.stderr
        )
    return OK


def _users(event: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(event.get("principal")).removeprefix("User:"), str(event.get("claimed")))


def _matches(text: Any, pattern: str | None) -> bool:
    return pattern is None or (isinstance(text, str) and fnmatch.fnmatchcase(text, pattern))


def _row(event: Mapping[str, Any]) -> tuple[Any, ...]:
    user = event.get("principal") or event.get("claimed") or ""
    allowed = event.get("allowed")
    result = "" if allowed is None else "allowed" if allowed else "denied"
    error = event.get("error")
    why = event.get("reason") or event.get("rule") or ""
    changes = "; ".join(_change(each) for each in event.get("changes") or ())
    times = event.get("times")
    name = event.get("event")
    return (
        event.get("time"),
        f"{name} x{times}" if times else name,
        str(user).removeprefix("User:"),
        event.get("host"),
        event.get("resource") or event.get("listener") or "",
        result if error is None else f"{result}, {error}",
        f"{why}: {changes}" if why and changes else changes or why,
    )


def _change(change: Mapping[str, Any]) -> str:
    before, after = change.get("before"), change.get("after")
    if before is None and after is not None:
        return f"{change.get('what')} = {after}"
    return f"{change.get('what')}: {before} -> {'gone' if after is None else after}"


def _events(log: Log, unreadable: list[int]) -> Iterator[Mapping[str, Any]]:
    for _, _, line in log.lines():
        found = parse(line.rstrip(b"\n"))
        if found is None:
            unreadable[0] += line.endswith(b"\n")
        else:
            yield {**found.event, "hash": found.hash}


def _logs(places: Sequence[Path], topic: str | None, bootstrap: str) -> list[Log]:
    """Raises CommandFailed."""
    if (topic is None) == (not places):
        raise CommandFailed("name the directory of ottla.audit.directory, or --topic NAME", MISUSED)
    if topic is None:
        return [log for place in places for log in found_logs(place)]
    return _in_topic(topic, bootstrap)


def _in_topic(topic: str, bootstrap: str) -> list[Log]:
    """The lines of each node in a topic. A line that was shipped twice counts once. Raises CommandFailed."""
    from ottla.cli.records.positions import stretch
    from ottla.cli.records.reader import Reader

    reader = Reader(bootstrap, topic)
    starts, stops = stretch(reader, reader.partitions, "beginning", "end", False)
    found: dict[str, list[tuple[int, Record]]] = {}
    for records in reader.read(starts, stops):
        for record in records:
            line = parse(record.value or b"")
            node = (record.key or b"").decode("utf-8", "replace")
            found.setdefault(node, []).append((0 if line is None else line.seq, record))
    logs = []
    for node, rows in sorted(found.items()):
        seen: set[tuple[int, bytes | None]] = set()
        once = []
        for seq, record in rows:
            if (seq, record.value) not in seen:
                once.append((seq, record))
            seen.add((seq, record.value))
        once.sort(key=lambda row: row[0])
        logs.append(Log(Path(f"{topic} {node}"), (), whole=False, records=[record for _, record in once]))
    return logs


def found_logs(place: Path) -> list[Log]:
    """The logs of a directory, or of a part of it. Raises CommandFailed where there is none."""
    try:
        if not place.is_dir():
            if not place.exists():
                raise CommandFailed(f"{place} does not exist: name the directory of ottla.audit.directory", FAILED)
            return [Log(place.parent, [place], whole=False)]
        own = _files(place)
        logs = [Log(place, own, whole=True)] if own or (place / "head").exists() else []
        for below in sorted(place.iterdir()):
            if below.is_dir() and (files := _files(below)):
                logs.append(Log(below, files, whole=True))
            elif below.is_dir() and (below / "head").exists() and below.name.startswith("node-"):
                logs.append(Log(below, [], whole=True))
    except OSError as error:
        raise CommandFailed(f"{place} cannot be read: {error.strerror or error}", FAILED) from None
    if not logs:
        raise CommandFailed(f"{place} has no audit log: name the directory of ottla.audit.directory", FAILED)
    return logs


def _files(directory: Path) -> list[Path]:
    return sorted(each for each in directory.iterdir() if _FILE.fullmatch(each.name))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; a longer one than any event comes in parts. Raises CommandFailed."""
    number = 0
    try:
        with path.open("rb") as file:
            whole = True
            while line := file.readline(2 * LINE_BYTES_MAX):
                number += whole
                whole = line.endswith(b"\n")
                yield number, line
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror or error}", FAILED) from None
