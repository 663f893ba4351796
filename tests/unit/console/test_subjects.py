"""Two versions of a schema, line by line."""

from __future__ import annotations

import json
import time

from ottla.console.app import Application
from ottla.console.asking import Site
from ottla.console.masks import Masks
from ottla.console.views.schemas import COMPARED_LINES_MAX, pretty
from ottla.schemas.client import Registered, Schema
from tests.unit.console.acting import Acting, ChangingRegistry
from tests.unit.console.fake_cluster import FakeBrokers, user

TEXTS = {
    1: '{"type": "record", "name": "R", "fields": ["id"]}',
    2: '{"type": "record", "name": "<b>R</b>", "fields": ["id", "total"]}',
    3: "message R {}\n",
    4: "\n".join(["}"] * (COMPARED_LINES_MAX + 10)),
    5: "\n".join(["}", "x"] * COMPARED_LINES_MAX),
}


class Versions(ChangingRegistry):
    def versions(self, subject: str) -> list[int]:
        return list(TEXTS)

    def version(self, subject: str, version: int | str = "latest") -> Registered:
        return Registered(subject, int(version), 7, Schema(TEXTS[int(version)]))


def console() -> Acting:
    acting = Acting()
    site = Site(Masks(), Versions(), None, "http://r")
    acting.app = Application(site, anonymous=user(FakeBrokers())).asgi()
    return acting


def compared(old: int, new: int) -> dict[str, object]:
    answer = console().ask("GET", f"/api/v1/schemas/s?old={old}&new={new}")
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()["data"]["compared"]
    return found


def lines(old: int, new: int) -> list[str]:
    rows = compared(old, new)["lines"]
    assert isinstance(rows, list)
    return [f"{each['mark']}{each['text'].strip()}" for each in rows]


def test_each_line_is_kept_came_or_went() -> None:
    assert lines(1, 2) == [
        "{", '"type": "record",', '-"name": "R",', '+"name": "<b>R</b>",', '"fields": [', '-"id"', '+"id",', '+"total"',
        "]", "}",
    ]  # fmt: skip
    assert [each.lstrip("-+") for each in lines(1, 2) if not each.startswith("+")] == [
        each.strip() for each in pretty(TEXTS[1]).splitlines()
    ]
    assert lines(3, 3) == ["message R {}"]
    assert lines(3, 1)[0] == "-message R {}"


def test_the_page_says_it_and_shows_text_only() -> None:
    page = console().ask("GET", "/schemas/s?old=1&new=2").text
    assert "From version 1 to 2" in page
    assert "&lt;b&gt;R" in page
    assert "<b>R" not in page
    assert "Both have the same schema." in console().ask("GET", "/schemas/s?old=1&new=1").text
    assert "From version" not in console().ask("GET", "/schemas/s").text


def test_a_version_that_is_not_there_is_named() -> None:
    for query in ("old=1&new=9", "old=9&new=1"):
        answer = console().ask("GET", f"/api/v1/schemas/s?{query}")
        assert answer.status_code == 404
        assert "no version 9" in answer.json()["error"]
    assert console().ask("GET", "/schemas/s?old=-1&new=1").status_code == 400


def test_long_schemas_are_cut_and_cost_no_time() -> None:
    began = time.process_time()
    assert compared(4, 5)["is_cut"]
    assert time.process_time() - began < 5
    assert not compared(1, 2)["is_cut"]


def test_what_is_no_json_is_compared_as_it_is() -> None:
    deep = "[" * 100_000
    assert pretty(deep) == deep
    assert json.loads(pretty(TEXTS[1])) == json.loads(TEXTS[1])
