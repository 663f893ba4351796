"""What the pipelines have to come to, worked out in plain Python from what was acknowledged, and whether they did."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from demo.events import Event
from ottla import arrow
from ottla.schemas.client import Registry
from ottla.schemas.json_codecs import Reader

Row = dict[str, Any]


def rows(bootstrap: str, topic: str) -> list[Row]:
    """The committed values of a topic."""
    return [
        json.loads(value)
        for value in arrow.read(topic, bootstrap, columns=["value"]).read_all().column("value").to_pylist()
    ]


def rows_by_registry(bootstrap: str, topic: str, url: str) -> list[Row]:
    """The same of values in Avro, with schemas of a registry."""
    texts = Reader(Registry(url), "AVRO")
    values = arrow.read(topic, bootstrap, columns=["value"]).read_all().column("value").to_pylist()
    return [json.loads(texts.read(value)) for value in values]


def sessions(views: Iterable[Event], gap_s: float, delay_s: float) -> Counter[tuple[str, str, str, int]]:
    """(user, first page, last page, views) of the sessions that are over when all has been read."""
    by_user: defaultdict[str, list[Event]] = defaultdict(list)
    newest = 0
    for view in views:
        by_user[view.key].append(view)
        newest = max(newest, view.timestamp_ms)
    over = newest - delay_s * 1000
    found: Counter[tuple[str, str, str, int]] = Counter()
    for user, seen in by_user.items():
        seen.sort(key=lambda view: (view.timestamp_ms, view.value["page"]))
        began = 0
        for number, view in enumerate(seen):
            last = number + 1 == len(seen)
            if last or seen[number + 1].timestamp_ms - view.timestamp_ms >= gap_s * 1000:
                if view.timestamp_ms + gap_s * 1000 <= over:
                    found[user, seen[began].value["page"], view.value["page"], number + 1 - began] += 1
                began = number + 1
    return found


def found_sessions(found: Iterable[Row]) -> Counter[tuple[str, str, str, int]]:
    return Counter((row["user"], row["entry"], row["exit"], row["views"]) for row in found)


def windows(metrics: Iterable[Event], window_s: int, delay_s: float) -> dict[tuple[str, int], int]:
    """How many there were by name and start (s since the epoch) of the windows that are over."""
    found: Counter[tuple[str, int]] = Counter()
    newest = 0
    for metric in metrics:
        newest = max(newest, metric.timestamp_ms)
        found[metric.value["name"], metric.timestamp_ms // 1000 // window_s * window_s] += 1
    over = newest / 1000 - delay_s
    return {(name, start): count for (name, start), count in found.items() if start + window_s <= over}


def found_windows(found: Iterable[Row]) -> dict[tuple[str, int], int]:
    return {(row["name"], int(datetime.fromisoformat(row["start"]).timestamp())): row["count"] for row in found}


def ledger_mistakes(events: Iterable[Event], entries: list[Row], refused: list[Row]) -> list[str]:
    """What is wrong with the books: nothing, if each id is there once, no balance is negative and no cent is lost."""
    wrong = []
    history: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(entries, key=lambda row: row["sequence"]):
        history[row["account"]].append(row)
    for account, done in history.items():
        balance = 0
        for number, row in enumerate(done, 1):
            balance += row["amount"]
            if row["sequence"] != number or row["balance"] != balance or balance < 0:
                wrong.append(f"entry {number} of {account} does not follow from those before it")
    given = {event.value["id"] for event in events}
    done_ids = Counter(row["id"] for row in entries if row["kind"] != "credit")
    credits = Counter(row["id"] for row in entries if row["kind"] == "credit")
    transfers = {row["id"] for row in entries if row["kind"] == "transfer"}
    if set(done_ids) | {row["id"] for row in refused} != given or max(done_ids.values(), default=1) != 1:
        wrong.append("not every transaction is done once or refused")
    if set(credits) != transfers or max(credits.values(), default=1) != 1:
        wrong.append("not every transfer was given once")
    return wrong
