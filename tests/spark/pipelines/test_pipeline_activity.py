"""Page views to sessions and funnels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.spark.pipelines.pipelines import dead_letters, feed, names, rows, run_once


def view(user: str, page: str, at: str) -> dict[str, str]:
    return {"user": user, "page": page, "at": f"2026-11-25T{at}Z"}


VIEWS = [
    view("ada", "/", "09:00:00"),
    view("ben", "/product", "09:01:00"),
    view("ada", "/cart", "09:02:00"),  # no step: /product was not visited yet
    view("ada", "/product", "09:05:00"),
    view("ada", "/cart", "09:30:00"),
    view("ben", "/", "09:40:00"),  # another session: 39 minutes later
    view("ada", "/checkout", "09:59:00"),
    view("cyd", "/", "10:20:00"),
]


def test_sessions_and_funnels(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names("input", "sessions", "funnels")
    feed(bootstrap, settings["input"], [*VIEWS, b"not json"])
    run_once(spark, "activity", bootstrap, tmp_path, settings)
    # What comes much later ends what was open.
    feed(bootstrap, settings["input"], [view("dan", "/", "23:00:00"), view("dan", "/", "23:59:00")])
    status = run_once(spark, "activity", bootstrap, tmp_path, settings)
    found = sorted(rows(bootstrap, settings["sessions"]), key=lambda row: row["start"])
    assert [(row["user"], row["views"], row["entry"], row["exit"], row["depth"]) for row in found] == [
        ("ada", 5, "/", "/checkout", 4),
        ("ben", 1, "/product", "/product", 0),
        ("ben", 1, "/", "/", 1),
        ("cyd", 1, "/", "/", 1),
        ("dan", 1, "/", "/", 1),
    ]
    hours = sorted(rows(bootstrap, settings["funnels"]), key=lambda row: row["start"])
    assert [(hour["sessions"], [step["sessions"] for step in hour["steps"]]) for hour in hours] == [
        (1, [0, 0, 0, 0]),
        (3, [3, 1, 1, 1]),
    ]
    assert status.dead_letters >= 1
    assert len(dead_letters(bootstrap, "activity", settings["input"])) == 1
