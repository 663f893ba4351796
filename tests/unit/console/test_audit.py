"""The audit log: what it has of whom, who may see it, and its limits."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from ottla.console.access import trail as module
from ottla.console.access.roles import Identity
from ottla.console.access.trail import ENTRIES_MAX, TEXT_MAX, Trail
from ottla.console.asking import Asking, Site
from ottla.console.masks import Masks
from ottla.console.routes import API, PAGES
from ottla.console.views.audit import AuditPage, audit
from tests.unit.console.fake_changes import GOOD, TOPIC
from tests.unit.console.fake_cluster import user
from tests.unit.console.test_roles import Acted, addresses, all_pages, site_of

(PAGE,) = [each for each in PAGES if each.name == "audit"]


def page(site: Site, name: str | None, **query: str) -> AuditPage:
    return audit(Asking(user(name=name), site, PAGE.parameters({}, query)))


def test_every_reading_and_every_act_is_a_line() -> None:
    acted = Acted(site_of({"data": ["*"], "download": True, "acts": ["*"], "audit": True}))
    for each in all_pages():
        if each.name in ("messages", "tail", "content"):
            acted.ask("GET", addresses(each)[0])
            (line,) = acted.site.trail.entries()[:1]
            assert line.kind == ("download" if each.name == "content" else "records read")
            assert line.outcome == "read" and f"topic={TOPIC}" in line.what
    acted.api("delete-topic", GOOD["delete-topic"])
    acted.api("delete-topic", {"topic": "none"})
    rows = acted.ask("GET", f"{API}/audit").json()["data"]["rows"]
    assert [(row["kind"], row["outcome"]) for row in rows[:2]] == [("act", "refused"), ("act", "done")]
    assert "act=delete-topic" in rows[0]["what"]
    text = acted.ask("GET", "/audit").text
    assert "delete-topic" in text and "records read" in text
    assert acted.ask("GET", "/audit?kind=act&outcome=done").text.count("<tr>") == 2


def test_what_was_searched_for_is_not_in_it() -> None:
    acted = Acted(site_of({"data": ["*"], "audit": True}))
    acted.ask("GET", f"/topics/{TOPIC}/messages?q=cAnArY")
    (line,) = acted.site.trail.entries()
    assert "search=True" in line.what and "cAnArY" not in line.what


def test_who_sees_which_lines() -> None:
    """With the right all, else those of the same user, who has the same name at the same provider."""
    site = site_of({"users": ["ann"], "audit": True})
    corp, other = "https://corp.example ann", "https://other.example ann"
    for who in (Identity("ann"), Identity("bob"), Identity("bob", "corp", corp), Identity(None, "", other)):
        site.trail.note("act", who, "done", act="x")
    assert [each.user for each in page(site, "ann").rows] == [None, "bob", "bob", "ann"]
    assert [each.subject for each in page(site, "bob").rows] == [""]
    assert page(site, "carl").rows == []
    # Without a file of roles everyone sees the own lines, and whoever needs no login all.
    free = Site(Masks(), trail=site.trail)
    assert [each.user for each in page(free, "bob").rows] == ["bob"]
    assert len(page(free, None).rows) == 4


def test_filters() -> None:
    site = site_of({"audit": True})
    for number in range(120):
        site.trail.note("act" if number % 2 else "login", Identity(f"u{number % 3}"), "done", what=f"n{number}.")
    assert page(site, "x", q="N7.").paging.found == 1
    assert {each.user for each in page(site, "x", user="u1").rows} == {"u1"}
    found = page(site, "x", kind="act", page="2")
    assert (found.paging.found, len(found.rows), found.rows[0].kind) == (60, 10, "act")
    assert page(site, "x", outcome="refused").rows == []


def test_it_has_a_limit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    trail = Trail()
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        for number in range(ENTRIES_MAX + 5):
            trail.note("act", Identity("x" * 5_000 if not number else "a"), "done", text="y" * 5_000)
    entries = trail.entries()
    assert len(entries) == ENTRIES_MAX and entries[0].number == ENTRIES_MAX + 5
    assert len(entries[0].what) == TEXT_MAX + len("text=")
    assert max(len(json.dumps(each.__dict__)) for each in caplog.records[:1]) < 20_000
    assert module.ENTRIES_MAX * (2 * TEXT_MAX) <= 16 * 1024 * 1024


def test_the_subject_at_the_provider_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        Trail().note("login", Identity("ann", "corp", "https://corp.example 7"), "accepted", client="127.0.0.1")
    line: dict[str, Any] = vars(caplog.records[0])["ottla_fields"]
    assert line == {
        "user": "ann",
        "subject": "https://corp.example 7",
        "outcome": "accepted",
        "client": "127.0.0.1",
    }
