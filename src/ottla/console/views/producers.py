"""Producers of a topic: what leaders remember of them, and which clients they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.console.brokers import Brokers
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey

Answer = dict[str, Any] | KafkaError | OSError


class Client(NamedTuple):
    """The connection over which a producer writes to a leader."""

    user: str
    client_id: str
    software: str
    """Name and version, empty for a client that does not say what it is."""
    address: str


class Told(NamedTuple):
    """What one leader said."""

    producers: Answer
    clients: Answer


def ask_leaders(brokers: Brokers, topic: str, by_leader: Mapping[int, list[int]]) -> list[Told]:
    """DescribeProducers, and ListClients, which brokers of Kafka do not have."""

    def asking(node: int) -> list[Callable[[], dict[str, Any]]]:
        wanted = {"topics": [{"name": topic, "partition_indexes": by_leader[node]}]}
        connected = {"principal": None, "client_id": None, "only_producers": True}
        return [
            lambda: brokers.ask(node, ApiKey.DESCRIBE_PRODUCERS, wanted),
            lambda: brokers.ask(node, ApiKey.LIST_CLIENTS, connected),
        ]

    answers = brokers.gather([call for node in by_leader for call in asking(node)])
    return [Told(*pair) for pair in zip(answers[::2], answers[1::2], strict=True)]


def clients_of(answer: Answer) -> dict[int, Client]:
    """By producer id, the connection that was used last; empty where the broker has no such request. Raises KafkaError,
    OSError."""
    if isinstance(answer, KafkaError) and answer.code is ErrorCode.unsupported_version:
        return {}
    if isinstance(answer, Exception):
        raise answer
    found: dict[int, Client] = {}
    for row in sorted(answer["clients"], key=lambda row: -int(row["idle_ms"])):
        if row["producer_id"] >= 0:
            found[row["producer_id"]] = Client(
                row["principal"].removeprefix("User:"),
                row["client_id"] or "",
                _software(row["software_name"], row["software_version"]),
                row["host"],
            )
    return found


def _software(*parts: str) -> str:
    return " ".join(each for each in parts if each != "unknown")
