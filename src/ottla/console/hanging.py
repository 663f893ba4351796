"""Hanging transactions (KIP-664): open in a partition but unknown to their coordinator. `ottla txn hanging` finds the
same.

What partitions say is read before what coordinators say, so that a transaction which begins or ends meanwhile is not
taken for one that hangs; and the partitions are asked again, as it may have ended in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.requests import OpenAt, asked_producers, open_transactions
from ottla.console.asking import Asking
from ottla.console.brokers import ensure_none
from ottla.console.cluster import Cluster, Topic, on_every_node
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey

PARTITIONS_PER_REQUEST: Final = 1_000


class Hanging(NamedTuple):
    writer: OpenAt
    transactional_id: str | None
    """Owner of the producer id now; None for an id that no coordinator knows."""


class Search(NamedTuple):
    found: list[Hanging]
    without: int
    """Partitions without a leader, which nobody could ask."""


def search(asking: Asking, topics: Sequence[Topic], late_ms: int) -> Search:
    """Hanging transactions that were last written to before `late_ms`. What cannot be asked is among the problems."""
    cluster = asking.cluster()
    open_ones, without = _open_in(asking, cluster, topics)
    late = [each for each in open_ones if each.last_timestamp_ms <= late_ms]
    owners = _owners(asking, cluster, sorted({each.producer_id for each in late})) if late else {}
    if owners is None:
        return Search([], without)  # without an answer of all coordinators nothing is known to hang
    suspects = [
        Hanging(each, owner[0] if owner else None)
        for each in sorted(late)
        if (owner := owners.get(each.producer_id)) is None or TopicPartition(each.topic, each.partition) not in owner[1]
    ]
    if not suspects:
        return Search([], without)
    named = dict.fromkeys(each.writer.topic for each in suspects)
    again, _ = _open_in(asking, cluster, [cluster.topics[name] for name in named])
    still = dict.fromkeys(each._replace(last_timestamp_ms=0) for each in again)
    return Search([each for each in suspects if each.writer._replace(last_timestamp_ms=0) in still], without)


def _open_in(asking: Asking, cluster: Cluster, topics: Iterable[Topic]) -> tuple[list[OpenAt], int]:
    """Open transactions in partitions, and how many partitions have no leader."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for topic in topics:
        for each in topic.partitions:
            by_leader.setdefault(each.leader, []).append(TopicPartition(topic.name, each.number))
    without = len(by_leader.pop(-1, []))
    calls: list[Callable[[], dict[str, Any]]] = []
    for node, places in by_leader.items():
        for begin in range(0, len(places), PARTITIONS_PER_REQUEST):
            some = places[begin : begin + PARTITIONS_PER_REQUEST]
            calls += [_asking_producers(asking, node, some)]
    found: list[OpenAt] = []
    for answer in asking.brokers.gather(calls):
        if isinstance(answer, Exception):
            asking.fail("hanging", answer)
            continue
        for topic_row in answer["topics"]:
            for part in topic_row["partitions"]:
                try:
                    ensure_none(ApiKey.DESCRIBE_PRODUCERS, part, topic_row["name"])
                except KafkaError as error:
                    asking.fail("hanging", error)
                    continue
                found += open_transactions(topic_row["name"], part)
    return found, without


def _asking_producers(asking: Asking, node: int, places: Sequence[TopicPartition]) -> Callable[[], dict[str, Any]]:
    return lambda: asking.brokers.ask(node, ApiKey.DESCRIBE_PRODUCERS, asked_producers(places))


def _owners(
    asking: Asking, cluster: Cluster, producer_ids: Sequence[int]
) -> Mapping[int, tuple[str, Sequence[TopicPartition]]] | None:
    """Producer ids to the transactional id that has each, and the partitions of its transaction; None where a
    coordinator does not answer."""
    values = {
        "state_filters": [],
        "producer_id_filters": list(producer_ids),
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    found: dict[int, tuple[str, Sequence[TopicPartition]]] = {}
    for node, answer in on_every_node(asking.brokers, cluster, ApiKey.LIST_TRANSACTIONS, values).items():
        try:
            if isinstance(answer, Exception):
                raise answer
            ensure_none(ApiKey.LIST_TRANSACTIONS, answer, f"transactions of broker {node}")
            names = {row["transactional_id"]: row["producer_id"] for row in answer["transaction_states"]}
            if not names:
                continue
            told = asking.brokers.ask(node, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": list(names)})
        except (KafkaError, OSError) as error:
            asking.fail("hanging", error)
            return None
        for row in told["transaction_states"]:
            places = [TopicPartition(each["topic"], number) for each in row["topics"] for number in each["partitions"]]
            found[names[row["transactional_id"]]] = row["transactional_id"], places
    return found
