"""Orders and payments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.spark.pipelines.pipelines import feed, names, rows, run_once


def order(number: int, at: str) -> dict[str, Any]:
    return {"order": str(number), "customer": "ada", "amount": 10.0 * number, "at": f"2026-11-25T{at}Z"}


def payment(number: int, at: str, part: str = "") -> dict[str, Any]:
    return {"payment": f"p{number}{part}", "order": str(number), "amount": 10.0, "at": f"2026-11-25T{at}Z"}


def test_paid_and_unpaid(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names("orders", "payments", "paid", "unpaid")
    feed(bootstrap, settings["orders"], [order(number, "09:00:00") for number in (1, 2, 3, 4, 5)])
    feed(
        bootstrap,
        settings["payments"],
        [
            payment(1, "09:30:00"),
            payment(2, "10:00:01"),
            payment(3, "08:59:30"),
            payment(5, "09:10:00", "a"),
            b"?",
        ],
    )
    run_once(spark, "join", bootstrap, tmp_path, settings)
    feed(bootstrap, settings["payments"], [payment(5, "09:50:00", "b"), payment(9, "09:50:00")])
    feed(bootstrap, settings["orders"], [order(6, "12:00:00")])
    feed(bootstrap, settings["payments"], [payment(7, "12:00:00")])
    run_once(spark, "join", bootstrap, tmp_path, settings)
    feed(bootstrap, settings["orders"], [order(8, "12:01:00")])
    feed(bootstrap, settings["payments"], [payment(7, "12:01:00", "c")])
    status = run_once(spark, "join", bootstrap, tmp_path, settings)
    paid = rows(bootstrap, settings["paid"])
    assert sorted((row["order"], row["payment"], row["amount"], row["paid_amount"]) for row in paid) == [
        ("1", "p1", 10, 10),
        ("3", "p3", 30, 10),
        ("5", "p5a", 50, 10),
        ("5", "p5b", 50, 10),
    ]
    assert sorted(row["order"] for row in rows(bootstrap, settings["unpaid"])) == ["2", "4"]
    assert status.dead_letters == 1
    # What can have no other half any more is dropped: orders 6 and 8 wait, and payments about them.
    assert all(query.state_rows <= 6 for query in status.queries), status.queries
