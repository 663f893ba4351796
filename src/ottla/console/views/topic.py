"""One topic: its partitions and copies, settings, the groups that read it and the producers that write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ottla.client.requests import asked_settings
from ottla.config.explained import TOPIC
from ottla.config.topic_explained import Facts, explanation
from ottla.config.units import iso_time
from ottla.console.asking import Asking, NotFound
from ottla.console.behind import behind_of, furthest
from ottla.console.brokers import ensure_none
from ottla.console.cluster import EARLIEST, LATEST, Cluster, Topic, on_every_node, places, read_offsets
from ottla.console.groups import SHARE, Place
from ottla.console.history import Trend, Written
from ottla.console.views.producers import Client, ask_leaders, clients_of
from ottla.console.views.settings import SettingRow, rows_of
from ottla.console.views.topics import text
from ottla.errors import KafkaError
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey

PARTITIONS_MAX = 1_000
"""Partitions that a page shows."""
PRODUCERS_MAX = 500
TIMED_READERS_MAX = 10
"""Groups whose lag in time is looked at: those that are furthest behind."""


@dataclass(frozen=True)
class PartitionRow:
    number: int
    leader: int | None
    replicas: list[int]
    in_sync: list[int]
    missing: list[int]
    """Copies that are not in sync."""
    begin: str | None
    end: str | None
    bytes: str | None
    """Bytes on the leader's disk."""


@dataclass(frozen=True)
class Reader:
    """A group that has committed offsets in the topic."""

    group: str
    kind: str
    state: str
    lag: str | None
    behind_s: int | None
    """Seconds since the oldest unread record was written; None where it is not known."""


@dataclass(frozen=True)
class Producer:
    partition: int
    producer_id: str
    epoch: int
    last_sequence: int
    last_written: str | None
    open_since: str | None
    """First offset of its open transaction."""
    client_id: str | None
    """The client that is connected with this producer id; None where there is none, or the leader does not tell, as the
    next three."""
    software: str | None
    """Name and version of its library."""
    user: str | None
    address: str | None
    per_second: float | None
    """Records in a second since the last look; None at the first one."""


@dataclass(frozen=True)
class Paragraph:
    heading: str
    text: str


@dataclass(frozen=True)
class TopicPage:
    name: str
    id: str
    is_internal: bool
    partitions: list[PartitionRow]
    partition_count: int
    copies: int
    under_replicated: int
    leaderless: int
    records: str | None
    bytes: str | None
    settings: list[SettingRow] | None
    readers: list[Reader] | None
    """None while the offsets of groups are being read."""
    producers: list[Producer] | None
    written: Trend | None
    """Records in a second; None until it is measured."""
    lag_trend: Trend | None
    """Lag of the slowest group."""
    explained: list[Paragraph] | None
    """How safe it is, in words; None where its settings are not shown."""


def found_topic(asking: Asking) -> Topic:
    """The topic that the request names. Raises NotFound."""
    name = asking.text("topic")
    topic = asking.cluster().topics.get(name) or asking.newest_cluster().topics.get(name)
    if topic is None:
        raise NotFound(f"There is no topic {name}, or you may not see it (Describe on Topic {name}).")
    return topic


def topic(asking: Asking) -> TopicPage:
    cluster, found = asking.cluster(), found_topic(asking)
    begins, ends = _bounds(asking, cluster, found)
    sizes = _sizes(asking, cluster, found)
    rows = [
        PartitionRow(
            each.number,
            each.leader if each.leader >= 0 else None,
            list(each.replicas),
            list(each.in_sync),
            [node for node in each.replicas if node not in each.in_sync],
            begins.get(each.number),
            ends.get(each.number),
            text(sizes.get((each.number, each.leader))),
        )
        for each in found.partitions[:PARTITIONS_MAX]
    ]
    known = [int(ends[number]) - int(begins[number]) for number in ends if number in begins]
    settings = asking.attempt("settings", lambda: _settings(asking, found.name), None)
    led = [sizes[each.number, each.leader] for each in found.partitions if (each.number, each.leader) in sizes]
    return TopicPage(
        found.name,
        str(found.id),
        found.is_internal,
        rows,
        len(found.partitions),
        found.copies,
        found.under_replicated,
        found.leaderless,
        str(sum(known)) if known else None,
        str(sum(led)) if led else None,
        settings,
        asking.attempt("readers", lambda: _readers(asking, found.name), None),
        _producers(asking, found),
        asking.trends.written(found.name),
        asking.trends.lag_of_topic(found.name),
        None if settings is None else _explained(cluster, found, settings),
    )


def _explained(cluster: Cluster, found: Topic, settings: Sequence[SettingRow]) -> list[Paragraph]:
    racks = {node.node_id: node.rack for node in cluster.nodes.values()}
    facts = Facts(
        found.name,
        len(cluster.nodes),
        [len(each.replicas) for each in found.partitions],
        [len(each.in_sync) for each in found.partitions],
        [each.number for each in found.partitions if each.leader < 0],
        {row.name: row.value or "" for row in settings},
        [
            len(dict.fromkeys(racks[node] for node in each.replicas))
            for each in found.partitions
            if all(racks.get(node) for node in each.replicas)
        ],
    )
    try:
        return [Paragraph(heading, text) for heading, text in explanation(facts)]
    except ValueError:  # a value that no broker should have
        return []


def _bounds(asking: Asking, cluster: Cluster, found: Topic) -> tuple[dict[int, str], dict[int, str]]:
    every = places([found])
    both = []
    for which in (EARLIEST, LATEST):
        answer = read_offsets(asking.brokers, cluster, dict.fromkeys(every, which))
        asking.fail_all("offsets", answer.failures.values())
        both.append({at.partition: str(offset) for at, offset in answer.found.items()})
    return both[0], both[1]


def _sizes(asking: Asking, cluster: Cluster, found: Topic) -> dict[tuple[int, int], int]:
    """(partition, node) to the bytes of the copy there."""
    numbers = [each.number for each in found.partitions]
    values = {"topics": [{"topic": found.name, "partitions": numbers}]}
    nodes = sorted({node for each in found.partitions for node in each.replicas} & set(cluster.nodes))
    sizes: dict[tuple[int, int], int] = {}
    for node, answer in on_every_node(asking.brokers, cluster, ApiKey.DESCRIBE_LOG_DIRS, values, nodes).items():
        if isinstance(answer, Exception):
            asking.fail("sizes", answer)
            continue
        try:
            ensure_none(ApiKey.DESCRIBE_LOG_DIRS, answer)
        except KafkaError as error:
            asking.fail("sizes", error)
            continue
        for directory in answer["results"]:
            for topic_row in directory["topics"]:
                for each in topic_row["partitions"]:
                    if not each["is_future_key"]:
                        sizes[each["partition_index"], node] = each["partition_size"]
    return sizes


def _settings(asking: Asking, name: str) -> list[SettingRow]:
    values = asked_settings(TOPIC, [name], layers=True)
    return rows_of(asking.brokers.ask_any(ApiKey.DESCRIBE_CONFIGS, values)["results"][0])


def _readers(asking: Asking, name: str) -> list[Reader] | None:
    progress, groups = asking.progress("readers"), asking.groups()
    if progress is None:
        return None
    found: list[tuple[Reader, dict[TopicPartition, Place]]] = []
    for group, some in progress.by_group.items():
        mine = {at: place for at, place in some.items() if at.topic == name}
        if mine:
            known = [place.lag for place in mine.values() if place.lag is not None]
            listed = groups.by_name.get(group)
            kind, state = (listed.kind, listed.state) if listed is not None else ("", "")
            found.append((Reader(group, kind, state, str(sum(known)) if known else None, None), mine))
    found.sort(key=lambda each: (-int(each[0].lag or 0), each[0].group))
    # Share groups have no one offset before which everything is done with, so no one age.
    return [
        replace(reader, behind_s=furthest(mine, behind_of(asking, mine)))
        if number < TIMED_READERS_MAX and reader.kind != SHARE
        else reader
        for number, (reader, mine) in enumerate(found)
    ]


def _producers(asking: Asking, found: Topic) -> list[Producer] | None:
    """What the leaders that answer know; None where nobody says anything."""
    by_leader: dict[int, list[int]] = {}
    for each in found.partitions:
        if each.leader >= 0:
            by_leader.setdefault(each.leader, []).append(each.number)

    seen: dict[Written, tuple[Mapping[str, Any], Client | None]] = {}
    for answer, connected in ask_leaders(asking.brokers, found.name, by_leader):
        if isinstance(answer, Exception):
            asking.fail("producers", answer)
            continue
        clients = asking.attempt("clients", partial(clients_of, connected), dict[int, Client]())
        for each in (part for topic_row in answer["topics"] for part in topic_row["partitions"]):
            try:
                ensure_none(ApiKey.DESCRIBE_PRODUCERS, each, found.name)
            except KafkaError as error:
                asking.fail("producers", error)
                continue
            for one in each["active_producers"]:
                at = Written(each["partition_index"], one["producer_id"], one["producer_epoch"], one["last_sequence"])
                seen[at] = one, clients.get(at.producer_id)
    paces = asking.trends.paces(found.name, seen)
    rows = [_producer(at, one, client, paces.get(at)) for at, (one, client) in seen.items()]
    if not rows and "producers" in asking.problems:
        return None
    rows.sort(key=lambda each: (each.open_since is None, each.partition, int(each.producer_id)))
    return rows[:PRODUCERS_MAX]


def _producer(at: Written, row: Mapping[str, Any], client: Client | None, pace: float | None) -> Producer:
    begun = row["current_txn_start_offset"]
    user, client_id, software, address = (None,) * 4 if client is None else client
    return Producer(
        at.partition,
        str(at.producer_id),
        at.epoch,
        at.sequence,
        iso_time(row["last_timestamp"]),
        str(begun) if begun >= 0 else None,
        client_id,
        software,
        user,
        address,
        None if pace is None else round(pace, 1),
    )
