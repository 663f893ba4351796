"""The page of SQL with queries that answer from memory: what is asked as whom, files, pictures, limits, the audit."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ottla.console.access.roles import Forbidden, parse_roles
from ottla.console.asking import QUERIES_AT_ONCE, Asking, Invalid, NotFound, Site
from ottla.console.masks import Masks, Rule
from ottla.console.routes import PAGES, QUERIED
from ottla.console.views.plots import plotted
from ottla.sql import queries
from ottla.sql.queries import Answer, Column, Query
from tests.unit.console.fake_cluster import FakeBrokers, user

(PAGE,) = (each for each in PAGES if each.name == "sql")
COLUMNS = [Column("kind", "string", "text"), Column("n", "int64", "number"), Column("at", "timestamp", "time"),
           Column("more", "struct", "json")]  # fmt: skip
ROWS: list[list[str | None]] = [
    ["a", "2", "2026-01-01T00:00:00.000Z", '{"x": 1}'], ["b", None, "2026-01-02T00:00:00.000Z", None],
    ["c", "9007199254740993", "2026-01-03T00:00:00.000Z", '{"cut'],
]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """The queries that were run; each is answered by what the test put into `ANSWER`."""
    found: list[Query] = []

    def run(query: Query, halt: threading.Event, progress: Callable[[int], None]) -> Answer:
        found.append(query)
        progress(7)
        return Answer(COLUMNS, [*ROWS], ["t"], 7)

    monkeypatch.setattr(queries, "run", run)
    return found


def asking(page: Any = PAGE, site: Site | None = None, name: str | None = None, **query: str) -> Asking:
    made = user(FakeBrokers(["t", "cards", "__hidden"]), name)
    return Asking(made, site or Site(Masks()), page.parameters({}, query))


def test_without_a_statement_topics_are_offered(asked: list[Query]) -> None:
    page = PAGE.view(asking())
    assert not page.is_asked
    assert page.offered == ['select * from "cards" limit 20', 'select * from "t" limit 20']
    assert asked == []


def test_without_the_library_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "missing", lambda: "duckdb")
    assert PAGE.view(asking(sql="select 1")).missing == "duckdb"
    with pytest.raises(NotFound, match="pip install"):
        QUERIED.view(asking(QUERIED, sql="select 1"))


def test_what_is_asked(asked: list[Query], caplog: pytest.LogCaptureFixture) -> None:
    rule = Rule(("cards",), ("number",), (), False, False, ("ann",))
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        page = PAGE.view(asking(site=Site(Masks((rule,))), name="bob", sql="from t", seconds="3", rows="9"))
        PAGE.view(asking(site=Site(Masks((rule,))), name="ann", sql="from t", **{"from": "last", "last": "4"}))
    bob, ann = asked
    assert (bob.statement, bob.seconds, bob.rows_max, bob.allowed) == ("from t", 3.0, 9, ("__hidden", "cards", "t"))
    assert dict(bob.masks) == {"cards": Masks((rule,)).of("cards", "bob")}
    assert ann.masks == {}
    assert (ann.allowed, ann.start, ann.last) == (("__hidden", "cards", "t"), "last", 4)
    assert page.records_read == "7"
    assert page.command.startswith("ottla sql 'from t' --key-format string")
    lines = [record.__dict__ for record in caplog.records]
    assert [each["message"] for each in lines] == ["records queried"] * 2
    assert "bob" in str(lines[0]) and "from t" in str(lines[0])


def test_roles_say_what_may_be_read(asked: list[Query]) -> None:
    """What no role gives is not in the list, whether it is there or made later."""
    given = {"name": "r", "users": ["*"], "data": ["c*", "new"], "mask": [{"topics": ["cards"], "key": True}]}
    site = Site(Masks(), roles=parse_roles({"role": [given, {"name": "s", "users": ["bob"], "data": ["t"]}]}, "f", ()))
    PAGE.view(asking(site=site, name="bob", sql="from t"))
    PAGE.view(asking(site=site, name="ann", sql="from t"))
    assert [each.allowed for each in asked] == [("cards", "t"), ("cards",)]
    for each in asked:
        (hidden,) = each.masks.values()
        assert list(each.masks) == ["cards"] and hidden.key is not None
    with pytest.raises(Forbidden):
        QUERIED.view(asking(QUERIED, site=site, name="ann", sql="from t"))


def test_files_have_all_values(asked: list[Query]) -> None:
    lines = QUERIED.view(asking(QUERIED, sql="from t")).data.decode().splitlines()
    assert lines[0] == "kind,n,at,more"
    assert lines[2] == "b,,2026-01-02T00:00:00.000Z,"
    rows = [json.loads(line) for line in QUERIED.view(asking(QUERIED, sql="from t", form="json")).data.splitlines()]
    assert rows[0] == {"kind": "a", "n": 2, "at": "2026-01-01T00:00:00.000Z", "more": {"x": 1}}
    assert rows[2]["n"] == 9007199254740993
    assert rows[2]["more"] == '{"cut'


def test_formats_of_a_registry_need_one(asked: list[Query]) -> None:
    with pytest.raises(Invalid, match="--registry"):
        PAGE.view(asking(sql="from t", values="avro"))
    site = Site(Masks(), registry_options={"schema.registry.url": "http://r"})
    PAGE.view(asking(site=site, sql="from t", values="avro"))
    assert asked[-1].options["value.format"] == "avro"
    assert asked[-1].registry == {"schema.registry.url": "http://r"}
    assert "http://r" not in repr(asked[-1])  # it may hold a password


def test_queries_have_a_limit_and_give_it_back(asked: list[Query], monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(Masks())
    for _ in range(QUERIES_AT_ONCE):
        assert site.queries.acquire(blocking=False)
    with pytest.raises(Invalid, match="try again"):
        PAGE.view(asking(site=site, sql="from t"))
    site.queries.release()
    PAGE.view(asking(site=site, sql="from t"))

    def fail(*_: Any) -> Answer:
        raise OSError("no process")

    monkeypatch.setattr(queries, "run", fail)
    for _ in range(QUERIES_AT_ONCE):
        with pytest.raises(OSError, match="no process"):
            PAGE.view(asking(site=site, sql="from t"))


def test_a_missing_right_is_a_problem_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Answer(error="topic t: you need Read on it", is_refused=True)
    monkeypatch.setattr(queries, "run", lambda *_: refused)
    made = asking(sql="from t")
    assert PAGE.view(made).error == ""
    assert "you need Read" in made.problems["sql"].sentence


@pytest.mark.parametrize(
    ("kind", "x", "y", "chosen", "shown"),
    [
        ("auto", "", "", ("bars", "kind", "n"), 2),
        ("auto", "at", "", ("line", "at", "n"), 2),
        ("points", "at", "n", ("points", "at", "n"), 2),
        ("line", "kind", "n", ("line", "kind", "n"), 2),
        ("bars", "nothing", "kind", ("bars", "kind", "n"), 2),
        ("none", "", "", None, 0),
    ],
)
def test_a_picture_of_columns(kind: str, x: str, y: str, chosen: tuple[str, str, str] | None, shown: int) -> None:
    found = plotted(Answer(COLUMNS, ROWS), kind, x, y)
    assert (None if found is None else (found.kind, found.x, found.y)) == chosen
    if found is not None:
        assert (found.shown, found.left_out) == (shown, 1)
        assert bool(found.line) == (found.kind == "line")
        assert len(found.bars) == (2 if found.kind == "bars" else 0)


@pytest.mark.parametrize(
    "cells", [["1.7e308", "-1.7e308"], ["nan", "inf"], ["0"], ["5", "5"], [None], ["-3", "4"], ["x"], []]
)
def test_a_picture_stays_in_its_frame(cells: list[str | None]) -> None:
    columns = [Column("x", "double", "number"), Column("y", "double", "number")]
    for kind in ("line", "bars", "points"):
        found = plotted(Answer(columns, [[each, each] for each in cells]), kind, "x", "y")
        if found is None:
            assert not any(each and each.lstrip("-").replace(".", "").replace("e308", "").isdigit() for each in cells)
            continue
        pairs = [*found.dots, *(tuple(map(float, each.split(","))) for each in found.line.split())]
        assert all(0 <= left <= 600 and 0 <= top <= 200 for left, top in pairs)
        assert all(0 <= bar.y <= 200 and bar.height <= 200 and 0 <= bar.x <= 600 for bar in found.bars)


def test_without_numbers_there_is_no_picture() -> None:
    assert plotted(Answer(COLUMNS[:1], [["a"]]), "auto", "", "") is None
    assert plotted(Answer(COLUMNS[1:2], [["1"]]), "auto", "", "") is None
