"""The demo's sources: this machine's logs and metrics as events."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from demo import answers
from demo.events import Event, Metrics, page_views, transactions


def test_outside_of_a_repository_there_is_nothing(tmp_path: Path) -> None:
    assert page_views(tmp_path) == []


def test_commits_become_page_views(tmp_path: Path) -> None:
    def git(*arguments: str, at: str = "2026-01-01T00:00:00Z") -> None:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "core.hooksPath=/dev/null"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "GIT_AUTHOR_DATE": at})

    git("init")
    (tmp_path / "src").mkdir()
    for file in ("a", "src/b", "src/c"):
        (tmp_path / file).write_text("1\n")
    git("add", "src/b", "src/c")
    git("commit", "-m", "second", at="2026-01-02T00:00:00Z")
    git("add", "a")
    git("commit", "-m", "first")
    assert [(view.key, view.value) for view in page_views(tmp_path)] == [
        ("Ada", {"user": "Ada", "page": "/", "at": "2026-01-01T00:00:00.000Z"}),
        ("Ada", {"user": "Ada", "page": "/src", "at": "2026-01-02T00:00:00.000Z"}),
    ]


def test_a_bank_has_transactions_that_come_twice() -> None:
    found = list(transactions(500, seed=1))
    ids = [event.value["id"] for event in found]
    assert len(set(ids)) == 500 < len(ids)
    assert [event.value["id"] for event in transactions(500, seed=1)] == ids
    assert all((event.value["to"] is not None) == (event.value["kind"] == "transfer") for event in found)


def test_metrics_tell_what_changed_since_the_last_sample() -> None:
    metrics = Metrics()
    first = metrics.sample(1000)
    assert "memory_used" in {event.value["name"] for event in first}
    sum(range(2_000_000))  # something to see
    second = metrics.sample(1100)
    assert {event.timestamp_ms for event in second} == {1100}
    for event in second:
        assert event.value["value"] >= 0
        assert event.value["unit"] in ("%", "MiB", "KiB/s")


def view(user: str, page: str, minute: int) -> Event:
    return Event(minute * 60_000, user, {"user": user, "page": page})


def test_sessions_in_plain_python() -> None:
    views = [view("a", "/1", 0), view("a", "/2", 29), view("a", "/3", 59), view("b", "/1", 3), view("b", "/1", 100)]
    assert answers.sessions(views, 1800, 60) == {
        ("a", "/1", "/2", 2): 1,
        ("a", "/3", "/3", 1): 1,
        ("b", "/1", "/1", 1): 1,
    }
    assert answers.sessions(views[:3], 1800, 60) == {}


def test_windows_in_plain_python() -> None:
    metrics = [Event(ms, "h", {"name": "cpu"}) for ms in (0, 4999, 5000, 9999, 12_000)]
    assert answers.windows(metrics, 5, 2) == {("cpu", 0): 2, ("cpu", 5): 2}
    assert answers.windows(metrics[:4], 5, 2) == {("cpu", 0): 2}


def entry(number: str, kind: str, account: str, amount: int, balance: int, sequence: int) -> dict[str, Any]:
    return {"id": number, "kind": kind, "account": account, "amount": amount, "balance": balance, "sequence": sequence}


GOOD = [
    entry("1", "deposit", "a", 5, 5, 1), entry("2", "transfer", "a", -3, 2, 2), entry("2", "credit", "b", 3, 3, 1),
]  # fmt: skip
EVENTS = [Event(0, "a", {"id": number}) for number in ("1", "2", "3", "1")]
REFUSED = [{"id": "3"}]


def test_books_that_are_right_and_books_that_are_not() -> None:
    assert answers.ledger_mistakes(EVENTS, GOOD, REFUSED) == []
    for wrong in (
        GOOD[:2],  # what was given is lost
        [*GOOD, entry("2", "credit", "b", 3, 6, 2)],  # given twice
        [*GOOD, entry("1", "deposit", "a", 5, 7, 3)],  # counted twice
        [GOOD[0], entry("2", "transfer", "a", -6, -1, 2), entry("2", "credit", "b", 6, 6, 1)],
        [{**GOOD[0], "sequence": 3}, *GOOD[1:]],
    ):
        assert answers.ledger_mistakes(EVENTS, wrong, REFUSED) != []
    assert answers.ledger_mistakes(EVENTS, GOOD, []) != []
