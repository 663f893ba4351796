"""Metrics to windows, and alerts that are raised and resolved once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.metrics import rules_of
from ottla.pipelines.runner import PipelineError
from tests.spark.pipelines.pipelines import feed, names, rows, run_once


def metric(name: str, value: float, minute: int, second: int = 0, host: str = "web-1") -> dict[str, Any]:
    return {"host": host, "name": name, "value": value, "at": f"2026-11-25T10:{minute:02}:{second:02}Z"}


FIRST = [
    metric("cpu", 0.95, 0),
    metric("cpu", 0.99, 1),
    metric("cpu", 0.5, 0, 30),  # late: it changes the window, not the alert
    metric("cpu", 0.97, 2, 59),
    metric("disk_free", 50, 0),
    metric("cpu", 0.99, 0, host="web-2"),
    metric("cpu", 0.1, 2, host="web-2"),
    metric("disk_free", 9, 1),
    metric("disk_free", 8, 2),
    b"",
    b'{"host": "web-1", "name": "cpu", "value": "much"}',
    {"host": "web-1", "name": "cpu", "value": 1.0},
]
SECOND = [
    metric("cpu", 0.91, 3),
    metric("cpu", 0.92, 4),
    metric("disk_free", 10, 3),
    metric("cpu", 0.9, 5),
    metric("disk_free", 1, 6),
    metric("nothing", 0, 30),
    metric("nothing", 0, 59),
]


def test_windows_and_alerts(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names("input", "rollups", "alerts")
    for half in (FIRST, SECOND):
        feed(bootstrap, settings["input"], half)
        status = run_once(spark, "metrics", bootstrap, tmp_path, settings)
    alerts = rows(bootstrap, settings["alerts"])
    found = [(each["host"], each["rule"], each["what"], each["value"], each["at"][14:19]) for each in alerts]
    assert sorted(found) == [
        ("web-1", "cpu > 0.9 for 3 minutes", "raised", 0.91, "03:00"),
        ("web-1", "cpu > 0.9 for 3 minutes", "resolved", 0.9, "05:00"),
        ("web-1", "disk_free < 10", "raised", 1.0, "06:00"),
        ("web-1", "disk_free < 10", "raised", 9.0, "01:00"),
        ("web-1", "disk_free < 10", "resolved", 10.0, "03:00"),
    ]
    windows = {
        (each["host"], each["name"], each["start"][14:16]): each for each in rows(bootstrap, settings["rollups"])
    }
    assert len(windows) == len(rows(bootstrap, settings["rollups"])) == 14
    first = windows["web-1", "cpu", "00"]
    assert (first["count"], first["min"], first["max"], first["mean"]) == (2, 0.5, 0.95, 0.725)
    assert windows["web-2", "cpu", "00"]["p95"] == 0.99 and windows["web-1", "disk_free", "06"]["p50"] == 1.0
    assert status.dead_letters == 2


def test_rules() -> None:
    (one, two) = rules_of("cpu > 0.9 for 3 minutes;disk_free<=-10 for 1 hour;")
    assert (one.name, one.limit, one.for_s, one.compare(0.91, 0.9)) == ("cpu", 0.9, 180, True)
    assert (two.name, two.limit, two.for_s, two.compare(-10, -10)) == ("disk_free", -10.0, 3600, True)
    with pytest.raises(PipelineError, match=r"rules: expected .* got 'cpu = 3'"):
        rules_of("cpu > 1; cpu = 3")
