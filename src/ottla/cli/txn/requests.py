"""What brokers know of transactions (KIP-664): coordinators of their states, leaders of partitions of their writers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.cli import wire
from ottla.cli.client import REQUEST_TIMEOUT_S
from ottla.cli.exits import UNREACHABLE, CommandFailed
from ottla.client.requests import OpenAt, asked_producers, open_transactions
from ottla.errors import ErrorCode
from ottla.model import TRANSACTION_TOPIC
from ottla.protocol.messages import ApiKey

Place = tuple[str, int]
"""A topic and a partition's number."""

TRANSACTION_KEY = 1
"""FindCoordinator's type of a transactional id."""

AT_REST = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
PAUSE_S = 0.1
NAMES_PER_REQUEST = 1_000

_PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator,
        ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition,
        ErrorCode.concurrent_transactions,
    }
)  # fmt: skip
"""Errors that pass: a leader moves, a topic is being deleted, or a transaction ends."""

T = TypeVar("T")


class Passing(CommandFailed):
    """Failed with what passes: worth another try."""


def patiently(attempt: Callable[[], T]) -> T:
    """The result of an attempt that does not end with what passes. Raises CommandFailed."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return attempt()
        except Passing:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)


def ensure_none(code: int, subject: str, text: str | None = None) -> None:
    """Raises CommandFailed for an error, Passing for one that passes."""
    if not code:
        return
    failure = wire.failure_of(code, f"{subject}: ", text)
    raise Passing(str(failure), failure.exit_code) if code in _PASSING else failure


def ask_broker(address: str, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
    """One request to a broker that the cluster named: where it does not answer, another takes its place soon."""
    try:
        return wire.ask(address, key, values)
    except CommandFailed as failure:
        raise Passing(str(failure), failure.exit_code) if failure.exit_code == UNREACHABLE else failure from None


@dataclass(frozen=True)
class Transaction:
    """A transactional id at one moment, as its coordinator sees it. What only DescribeTransactions says is None for
    one at rest that was only listed."""

    transactional_id: str
    coordinator: str
    state: str
    producer_id: int
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_ms: int | None = None
    partitions: tuple[Place, ...] = ()
    """Partitions of the open transaction; once its outcome is decided, those whose marker is still to be written."""

    @property
    def is_open(self) -> bool:
        return self.state not in AT_REST

    def open_s(self, now_s: float) -> float | None:
        """Seconds since it began; None at rest."""
        known = self.is_open and self.start_ms is not None and self.start_ms >= 0
        return max(0.0, now_s - (self.start_ms or 0) / 1000) if known else None


def coordinators(bootstrap: str) -> list[str]:
    """The addresses of the brokers that coordinate transactions; none before the first transaction."""
    return wire.leaders_of(bootstrap, TRANSACTION_TOPIC)


def listed(bootstrap: str, *, states: Collection[str] = (), producer_ids: Collection[int] = ()) -> list[Transaction]:
    """All transactional ids by name, or those in these states or with these producer ids; what is open is described.
    Raises CommandFailed."""
    values = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}

    def attempt() -> list[Transaction]:
        found: list[Transaction] = []
        for address in coordinators(bootstrap):
            answer = ask_broker(address, ApiKey.LIST_TRANSACTIONS, values)
            ensure_none(answer["error_code"], f"transactions of {address}")
            rows = [
                Transaction(each["transactional_id"], address, each["transaction_state"], each["producer_id"])
                for each in answer["transaction_states"]
            ]
            running = _described(address, [each.transactional_id for each in rows if each.is_open])
            found += [each for each in rows if not each.is_open]
            # What has ended meanwhile is no more in a state that was asked for.
            found += [each for each in running.values() if not states or each.state in states]
        return sorted(found, key=lambda each: each.transactional_id)

    return patiently(attempt)


def described(bootstrap: str, names: Sequence[str]) -> dict[str, Transaction]:
    """Keyed by transactional id; one that is not there is left out. Raises CommandFailed."""
    if not names or not coordinators(bootstrap):
        return {}  # FindCoordinator would create the topic

    def attempt() -> dict[str, Transaction]:
        found: dict[str, Transaction] = {}
        by_address: dict[str, list[str]] = {}
        asked = {"key_type": TRANSACTION_KEY, "coordinator_keys": list(names)}
        for row in wire.ask(bootstrap, ApiKey.FIND_COORDINATOR, asked)["coordinators"]:
            ensure_none(row["error_code"], f"transactional id {row['key']!r}", row.get("error_message"))
            by_address.setdefault(f"{row['host']}:{row['port']}", []).append(row["key"])
        for address, some in by_address.items():
            found |= _described(address, some)
        return found

    return patiently(attempt)


def _described(address: str, names: Sequence[str]) -> dict[str, Transaction]:
    found: dict[str, Transaction] = {}
    for start in range(0, len(names), NAMES_PER_REQUEST):
        values = {"transactional_ids": names[start : start + NAMES_PER_REQUEST]}
        for row in ask_broker(address, ApiKey.DESCRIBE_TRANSACTIONS, values)["transaction_states"]:
            if row["error_code"] == ErrorCode.transactional_id_not_found:
                continue
            name = row["transactional_id"]
            ensure_none(row["error_code"], f"transactional id {name!r}")
            found[name] = Transaction(
                name,
                address,
                row["transaction_state"],
                row["producer_id"],
                row["producer_epoch"],
                row["transaction_timeout"],
                max(row["transaction_start_time"], 0),
                tuple(sorted((topic["topic"], number) for topic in row["topics"] for number in topic["partitions"])),
            )
    return found


@dataclass(frozen=True)
class Leaders:
    """Partitions by the address of their leader, and those without a leader."""

    by_address: Mapping[str, Sequence[Place]]
    without: Sequence[Place]


def leaders(bootstrap: str, topics: Iterable[str] | None) -> Leaders:
    """The leaders of these topics, or of all. Raises CommandFailed, also for a topic that does not exist."""
    asked = None if topics is None else [{"topic_id": None, "name": each} for each in topics]
    metadata = wire.ask(bootstrap, ApiKey.METADATA, {"topics": asked, "allow_auto_topic_creation": False})
    addresses = wire.broker_addresses(metadata)
    found: dict[str, list[Place]] = {}
    without = []
    for topic in metadata["topics"]:
        if asked is not None:
            wire.ensure_none(topic, f"topic {topic['name']!r}")
        for part in topic["partitions"]:
            place = (topic["name"], part["partition_index"])
            address = addresses.get(part["leader_id"])
            if address is None:
                without.append(place)
            else:
                found.setdefault(address, []).append(place)
    return Leaders(found, without)


def open_at(address: str, places: Sequence[Place]) -> list[OpenAt]:
    """The transactions that are open in partitions which one broker leads. Raises CommandFailed, Passing where it
    leads one no more."""
    found: list[OpenAt] = []
    for start in range(0, len(places), NAMES_PER_REQUEST):
        values = asked_producers(places[start : start + NAMES_PER_REQUEST])
        for topic in ask_broker(address, ApiKey.DESCRIBE_PRODUCERS, values)["topics"]:
            for part in topic["partitions"]:
                subject = f"{topic['name']} partition {part['partition_index']}"
                ensure_none(part["error_code"], subject, part.get("error_message"))
                found += open_transactions(topic["name"], part)
    return found
