"""SQL over topics: a statement, its rows, and one column over another as a picture. The query runs in a process of its
own, as the user who asks (`ottla.sql.queries`)."""

from __future__ import annotations

import csv
import io
import json
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.console.asking import Asking, Invalid, NotFound, Problem
from ottla.console.records.reading import Limits
from ottla.console.views.messages import Content, moment_of
from ottla.console.views.plots import Plot, plotted
from ottla.sql import queries
from ottla.sql.queries import Answer, Column, Query

if TYPE_CHECKING:
    from ottla.sql.masked import Mask

STATEMENT_MAX: Final = 4_000
ROWS_MAX: Final = 1_000
FILE_ROWS_MAX: Final = 50_000
STARTS: Final = ("begin", "last", "time")
FORMATS: Final = ("json", "string", "binary", "avro", "json-schema", "protobuf")
BY_REGISTRY: Final = ("avro", "json-schema", "protobuf")
TOPICS_OFFERED: Final = 8
_NO_END: Final = 1 << 62


@dataclass(frozen=True)
class SqlPage:
    is_asked: bool
    missing: str
    """A library that is not installed; empty where queries can run."""
    columns: list[Column]
    rows: list[list[str | None]]
    topics: list[str]
    """Topics that were read."""
    records_read: str
    seconds: float
    stopped: str
    """Why there may be more: rows, bytes, time, memory, stopped; empty where this is all."""
    error: str
    plot: Plot | None
    command: str
    """The same with `ottla sql`."""
    offered: list[str]
    """Statements to begin with."""


def sql(asking: Asking) -> SqlPage:
    missing = queries.missing()
    if missing or not asking.text("sql").strip():
        return SqlPage(False, missing, [], [], [], "0", 0.0, "", "", None, "", [] if missing else _offered(asking))
    began = time.monotonic()
    answer = _asked(asking, asking.number("rows"))
    if answer.is_refused:
        asking.problems.setdefault("sql", Problem(f"This is not shown: {answer.error}.", None))
        answer.error = ""
    return SqlPage(
        True,
        "",
        answer.columns,
        answer.rows,
        answer.topics,
        str(answer.records_read),
        round(time.monotonic() - began, 2),
        answer.stopped,
        answer.error,
        plotted(answer, asking.text("plot"), asking.text("x"), asking.text("y")),
        _command(asking),
        [],
    )


def file(asking: Asking) -> Content:
    """The rows as CSV, or as lines of JSON."""
    asking.rights.ensure_download()
    if missing := queries.missing():
        raise NotFound(f"{missing} is not installed: pip install 'ottla[sql]'")
    answer = _asked(asking, FILE_ROWS_MAX)
    if answer.error or answer.stopped not in ("", "rows", "bytes"):
        raise Invalid(answer.error or f"the query did not end within its limits ({answer.stopped})")
    form = asking.text("form")
    return Content((_csv if form == "csv" else _json)(answer), f"result.{form}")


def _seen(asking: Asking) -> tuple[tuple[str, ...] | None, dict[str, Mask]]:
    """The topics that may be read, and what is hidden of them. It is a list of what may be read, not of what may not: a
    topic may be made at any moment."""
    rights = asking.rights
    if rights.is_free and not asking.site.masks.rules:
        return None, {}
    allowed = tuple(each for each in asking.cluster().topics if rights.may_read(each))
    masks = {topic: rights.mask(topic) for topic in allowed}
    return allowed, {topic: mask for topic, mask in masks.items() if not mask.is_empty}


def _command(asking: Asking) -> str:
    start = {"last": f"-{asking.number('last')}", "time": asking.text("time")}.get(asking.text("from"))
    words = ["ottla", "sql", asking.text("sql").replace("\r\n", "\n"), *([] if start is None else [f"--from={start}"])]
    words += ["--key-format", asking.text("keys"), "--value-format", asking.text("values")]
    bootstrap = ["-b", asking.site.bootstrap] if asking.site.bootstrap else []
    return shlex.join([*words, "--bad-records", "column", *bootstrap])


def _csv(answer: Answer) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([each.name for each in answer.columns])
    writer.writerows(answer.rows)
    return out.getvalue().encode()


def _json(answer: Answer) -> bytes:
    lines = (
        json.dumps({each.name: _value(each, cell) for each, cell in zip(answer.columns, row, strict=True)})
        for row in answer.rows
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _value(column: Column, cell: str | None) -> Any:
    """A cell as JSON has it; one that was cut, and what is no number, stay text."""
    if cell is None or column.kind not in ("number", "boolean", "json"):
        return cell
    try:
        return json.loads(cell, parse_constant=str)
    except ValueError:
        return cell


def _offered(asking: Asking) -> list[str]:
    def some() -> list[str]:
        names = (each for each in asking.cluster().topics if not each.startswith("__"))
        return [
            f'select * from "{name}" limit 20'
            for name, _ in zip(names, range(TOPICS_OFFERED), strict=False)
            if '"' not in name
        ]

    none: list[str] = []
    return asking.attempt("sql", some, none)


def _asked(asking: Asking, rows_max: int) -> Answer:
    """Raises Invalid, KafkaError, OSError."""
    query = _query(asking, rows_max)
    if not asking.site.queries.acquire(blocking=False):
        raise Invalid("other queries are running, as many as may: try again when one of them has ended")
    limits = Limits(time.monotonic() + query.seconds, _NO_END, _NO_END, asking.halt.is_set)
    answer = Answer(error="the query was not run")

    def progress(records: int) -> None:
        limits.records_read = records

    try:
        with asking.site.searches.running(asking.user.name, asking.text("run"), limits, asking.halt):
            answer = queries.run(query, asking.halt, progress)
    finally:
        asking.site.queries.release()
        asking.site.trail.note(
            "records queried",
            asking.user.identity,
            "refused" if answer.is_refused else "failed" if answer.error else "read",
            topic=",".join(answer.topics),
            shown=len(answer.rows),
            masked=any(each in query.masks for each in answer.topics),
            statement=query.statement,
        )
    return answer


def _query(asking: Asking, rows_max: int) -> Query:
    """Raises Invalid."""
    site, config = asking.site, asking.brokers.config
    options = {
        "key.format": asking.text("keys"),
        "value.format": asking.text("values"),
        "bad.records": "column",
    }
    if not site.registry_options and any(each in BY_REGISTRY for each in options.values()):
        raise Invalid("this format needs a schema registry: start the console with --registry URL")
    allowed, masks = _seen(asking)
    return Query(
        asking.text("sql"),
        ",".join(config.bootstrap),
        config.security.as_of_now(),
        config.client_id or "ottla-console",
        asking.text("from"),
        asking.number("last"),
        moment_of(asking.text("time")) if asking.text("from") == "time" else 0,
        False,
        options,
        site.registry_options,
        allowed,
        masks,
        rows_max,
        float(asking.number("seconds")),
    )
