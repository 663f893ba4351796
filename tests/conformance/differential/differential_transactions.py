"""What is asked of both brokers about transactions and their coordinator: see differential_cases.py. The order of
states, and every error on the way, is in tests/scripts/transactions_*.txt."""

from __future__ import annotations

import time
from typing import Any

from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential import Of
from tests.conformance.differential.differential_cases import Requests, World, cases

BUSY = {"concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}


def producer(w: World, version: int, name: str) -> tuple[str, Of]:
    """A transactional id that both brokers know in epoch 0 afterwards, and what each calls its producer id."""
    transactional_id = f"{w.prefix}{name}-{version}"
    values = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    for side in w.sides:
        side.ask(ApiKey.FIND_COORDINATOR, 1, {"key": transactional_id, "key_type": 1})
        while (answer := side.ask(ApiKey.INIT_PRODUCER_ID, 2, values))["error_code"]:
            time.sleep(0.05)
        side.known[transactional_id] = answer["producer_id"]
    return transactional_id, Of(transactional_id)


def until_complete(w: World, transactional_id: str) -> None:
    """Markers are written after the answer: until the next epoch can be had, or nothing is open."""
    asked = {"state_filters": ["PrepareCommit", "PrepareAbort"], "producer_id_filters": []}
    for side in w.sides:
        while any(
            row["transactional_id"] == transactional_id
            for row in side.ask(ApiKey.LIST_TRANSACTIONS, 0, asked)["transaction_states"]
        ):
            time.sleep(0.02)


@cases(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(w: World, version: int) -> Requests:
    name, producer_id = producer(w, version, "add")

    def request(*topics: tuple[str, list[int]], epoch: int = 0, of: Any = producer_id, **more: Any) -> dict[str, Any]:
        rows = [{"name": topic, "partitions": numbers} for topic, numbers in topics]
        if version < 4:
            return {
                "v3_and_below_transactional_id": more.get("transactional_id", name),
                "v3_and_below_producer_id": of,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": rows,
            }
        one = {"transactional_id": name, "producer_id": of, "producer_epoch": epoch, "topics": rows, **more}
        return {"transactions": [one]}

    yield request((w.txn, [0]), epoch=1)
    yield request((w.txn, [0]), of=1 << 40)
    yield request((w.txn, [0]), transactional_id="")
    yield request((w.txn, [0]), transactional_id=f"{w.prefix}nobody")
    yield request((w.txn, [0, 7]))
    yield request((w.txn, [0]), (w.nowhere, [0]))
    yield request((w.txn, [0]), verify_only=True)
    yield request((w.txn, [0]))
    yield request((w.txn, [0]), (w.t, [1, 2]))
    yield request((w.txn, [0]), (w.empty, [0]), verify_only=True)


@cases(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(w: World, version: int) -> Requests:
    name, producer_id = producer(w, version, "offsets")
    base = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": 0, "group_id": f"{w.prefix}g"}
    yield {**base, "producer_epoch": 3}
    yield {**base, "producer_id": 1 << 40}
    yield {**base, "transactional_id": ""}
    yield {**base, "transactional_id": f"{w.prefix}nobody"}
    yield base
    yield base
    yield {**base, "group_id": ""}


@cases(ApiKey.END_TXN)
def end_txn(w: World, version: int) -> Requests:
    name, producer_id = producer(w, version, "end")

    def request(committed: bool, epoch: int, of: Any = producer_id, transactional_id: str = name) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "producer_id": of,
            "producer_epoch": epoch,
            "committed": committed,
        }

    def added(epoch: int) -> dict[str, Any]:
        topics = [{"name": w.t, "partitions": [0, 1]}]
        return {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": topics,
        }

    yield request(True, 0, transactional_id="")
    yield request(True, 0, transactional_id=f"{w.prefix}nobody")
    yield request(True, 0, 1 << 40)
    yield request(True, 0)
    yield request(False, 0)
    until_complete(w, name)
    epoch = 1 if version >= 5 else 0
    for committed in (True, False):
        for side in w.sides:
            side.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added(epoch))
        yield request(committed, epoch + 1)
        yield request(committed, epoch)
        until_complete(w, name)
        yield request(committed, epoch)
        yield request(not committed, epoch)
        epoch += version >= 5
        yield request(committed, epoch + 2)


@cases(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(w: World, version: int) -> Requests:
    yield {"transactional_ids": []}
    yield {"transactional_ids": ["", f"{w.prefix}nobody", f"{w.prefix}nobody"]}


@cases(ApiKey.LIST_TRANSACTIONS)
def list_transactions(w: World, version: int) -> Requests:
    name, producer_id = producer(w, version, "list")
    base: dict[str, Any] = {"state_filters": [], "producer_id_filters": [producer_id], "duration_filter": -1}
    yield base
    for states in (["Empty"], ["Ongoing"], ["empty"], ["Lost", "Empty"], ["Dead", "PrepareEpochFence"]):
        yield {**base, "state_filters": states}
    if version >= 1:
        yield {**base, "duration_filter": 0}
        yield {**base, "duration_filter": 1 << 50}
    if version >= 2:
        for pattern in (name, ".*", "", "x", f"{name}x?", r"[\w-]+", f"^{name}$", "(", "a{2000}", r"(a)\1", "(?=a)"):
            yield {**base, "transactional_id_pattern": pattern}
