"""Transactions: what coordinators know of each transactional id, and those that hang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.config.units import iso_time
from ottla.console.asking import Asking, now_ms
from ottla.console.brokers import ensure_none
from ottla.console.cluster import on_every_node
from ottla.console.views.paging import Paging, paged
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey

AT_REST: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
STATES: Final = ("open", "all")
DESCRIBED_MAX: Final = 1_000
"""Open transactions that are described; the others are only counted."""


@dataclass(frozen=True)
class TransactionRow:
    transactional_id: str
    state: str
    is_open: bool
    producer_id: str
    producer_epoch: int | None
    coordinator: int
    started: str | None
    open_s: int | None
    timeout_s: float | None
    is_overdue: bool
    """Open for longer than its timeout: its coordinator should have aborted it."""
    partitions: list[str]


@dataclass(frozen=True)
class Transactions:
    rows: list[TransactionRow]
    paging: Paging
    open: int
    overdue: int
    total: int


def transactions(asking: Asking) -> Transactions:
    cluster = asking.cluster()
    values = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}
    listed: list[tuple[int, dict[str, Any]]] = []
    for node, answer in on_every_node(asking.brokers, cluster, ApiKey.LIST_TRANSACTIONS, values).items():
        try:
            if isinstance(answer, Exception):
                raise answer
            ensure_none(ApiKey.LIST_TRANSACTIONS, answer, f"transactions of broker {node}")
        except (KafkaError, OSError) as error:
            asking.fail("transactions", error)
            continue
        listed += [(node, row) for row in answer["transaction_states"]]
    running = [(node, row) for node, row in listed if row["transaction_state"] not in AT_REST]
    details = _described(asking, running[:DESCRIBED_MAX])
    now = now_ms()
    wanted = asking.text("q").lower()
    rows = [_row(node, row, details.get(row["transactional_id"]), now) for node, row in listed]
    shown = [
        each
        for each in rows
        if wanted in each.transactional_id.lower() and (each.is_open or asking.text("state") == "all")
    ]
    shown.sort(key=lambda each: (not each.is_overdue, not each.is_open, -(each.open_s or 0), each.transactional_id))
    page, paging = paged(shown, asking.number("page"), len(rows))
    return Transactions(list(page), paging, len(running), sum(each.is_overdue for each in rows), len(rows))


def _described(asking: Asking, running: list[tuple[int, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    by_node: dict[int, list[str]] = {}
    for node, row in running:
        by_node.setdefault(node, []).append(row["transactional_id"])

    def asked(node: int) -> dict[str, Any]:
        return asking.brokers.ask(node, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": by_node[node]})

    found: dict[str, dict[str, Any]] = {}
    for answer in asking.brokers.gather([lambda node=node: asked(node) for node in by_node]):  # type: ignore[misc]
        if isinstance(answer, Exception):
            asking.fail("details", answer)
            continue
        for row in answer["transaction_states"]:
            try:
                ensure_none(ApiKey.DESCRIBE_TRANSACTIONS, row, row["transactional_id"])
            except KafkaError as error:
                if error.code is not ErrorCode.transactional_id_not_found:
                    asking.fail("details", error)
                continue
            found[row["transactional_id"]] = row
    return found


def _row(node: int, row: dict[str, Any], details: dict[str, Any] | None, now: int) -> TransactionRow:
    known = details or {}
    state = known.get("transaction_state") or row["transaction_state"]
    started = known.get("transaction_start_time", -1)
    is_open = state not in AT_REST
    open_s = max(0, (now - started) // 1000) if is_open and started > 0 else None
    timeout = known.get("transaction_timeout")
    return TransactionRow(
        row["transactional_id"],
        state,
        is_open,
        str(row["producer_id"]),
        known.get("producer_epoch"),
        node,
        iso_time(started) if is_open and started > 0 else None,
        open_s,
        None if timeout is None else timeout / 1000,
        open_s is not None and timeout is not None and open_s * 1000 > timeout,
        [f"{topic['topic']}-{number}" for topic in known.get("topics", ()) for number in topic["partitions"]],
    )
