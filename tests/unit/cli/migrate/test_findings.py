"""What `ottla migrate check` says of a cluster: each finding has its weight, what it is about, and what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ottla.cli.migrate.finding import FINE, LOOK, STOPS
from ottla.cli.migrate.findings import findings
from ottla.cli.migrate.internal_records import unknown_kind
from ottla.cli.migrate.node_settings import PLUGINS
from ottla.cli.migrate.order import steps
from ottla.cli.migrate.survey import KAFKA, OTTLA, Entry, Node, Partition, Quorum, Records, Survey, Voter
from ottla.config import definitions
from ottla.config.tables.without_effect import why
from ottla.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.internal.group_records import encode_key
from ottla.protocol.schemas.records import OffsetCommitKey

PLAIN = {
    "listeners": Entry("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", True),
    "process.roles": Entry("broker,controller", True),
    "super.users": Entry(None, True, True),
}


def node(number: int, **more: Any) -> Node:
    values = {"kind": KAFKA, "settings": PLAIN, **more}
    return Node(number, True, True, f"127.0.0.1:{number}", **values)


VOTERS = tuple(Voter(each, 100, 5000, 5000) for each in (1, 2, 3))
GOOD = Survey(
    "c", (node(1), node(2), node(3)), Quorum(1, 100, VOTERS), {"metadata.version": 33, "share.version": 2},
    partitions=(Partition("t", 0, (1, 2, 3), (1, 2, 3), 1),), topics={"t": {"retention.ms": "1"}},
    min_in_sync={"t": 2}, tokens=0, records=Records(10),
)  # fmt: skip


def survey(**changes: Any) -> Survey:
    return dataclasses.replace(GOOD, **changes)


def with_settings(**settings: Entry) -> Survey:
    return survey(nodes=(node(1, settings={**PLAIN, **settings}), node(2), node(3)))


def static(**values: str) -> Survey:
    return with_settings(**{name.replace("__", "."): Entry(value, True) for name, value in values.items()})


def part(replicas: tuple[int, ...], in_sync: tuple[int, ...] | None = None, leader: int = 1) -> tuple[Partition, ...]:
    return (Partition("t", 0, replicas, replicas if in_sync is None else in_sync, leader),)


CASES: list[tuple[Survey, str, str, str]] = [
    (survey(quorum=None), "zookeeper", STOPS, ""),
    (survey(quorum=Quorum(-1, 100, VOTERS)), "quorum-leader", STOPS, "1"),
    (survey(quorum=Quorum(1, 100, VOTERS[:1])), "quorum-majority", LOOK, "1"),
    (survey(quorum=Quorum(1, 100, VOTERS[:2], is_dynamic=True)), "quorum-majority", LOOK, "2"),
    (survey(quorum=Quorum(1, 5000, (Voter(1, 5000, 9, 9), Voter(2, 5000, 9, 9), Voter(3, 10, 9, 9)))),
     "voters-behind", STOPS, "node 3"),
    (survey(quorum=Quorum(1, 100, (*VOTERS[:2], Voter(3, 100, 500, 500)))), "voters-behind", STOPS, "node 3"),
    (survey(features={"metadata.version": 34}), "features", STOPS, "metadata.version"),
    (survey(features={"metadata.version": 6}), "features", STOPS, "metadata.version"),
    (survey(features={"metadata.version": 33, "share.version": 3}), "features", STOPS, "share.version"),
    (survey(features={"metadata.version": 33, "new.version": 1}), "features", STOPS, "new.version"),
    (survey(nodes=(*GOOD.nodes[:2], node(3, fenced=True))), "nodes-away", STOPS, "node 3"),
    (survey(nodes=(*GOOD.nodes[:2], node(3, kind=None, settings=None))), "nodes-silent", LOOK, "node 3"),
    (survey(nodes=(*GOOD.nodes[:2], node(3, offline_directories=("/d",)))), "directories-offline", STOPS, "node 3"),
    (survey(nodes=(*GOOD.nodes[:2], node(3, kind=OTTLA))), "nodes-ottla", FINE, "node 3"),
    (survey(partitions=part((1, 2), (2,), -1)), "partitions-offline", STOPS, "t-0"),
    (survey(partitions=part((1, 2, 3), (1, 2))), "under-replicated", STOPS, "t-0"),
    (survey(reassignments=(("t", 0),)), "reassignments", STOPS, "t-0"),
    (survey(partitions=part((1,))), "one-replica", LOOK, "t-0"),
    (survey(min_in_sync={"t": 3}), "min-insync", LOOK, "t-0"),
    (survey(partitions=part((1, 2))), "min-insync", LOOK, "t-0"),
    (survey(topics={"t": {"remote.storage.enable": "true"}}), "tiered", STOPS, "t"),
    (survey(topics={"t": {"some.new.setting": "1"}}), "topic-settings-unknown", LOOK, "t"),
    (survey(topics={"t": {"local.retention.ms": "1"}}), "topic-settings-idle", LOOK, "t"),
    (survey(tokens=3), "tokens", LOOK, ""),
    (survey(records=Records(5, {"records of the unknown kind 99": 2})), "records-unknown", STOPS, ""),
    (survey(records=Records(5, partitions_left=2)), "records-unread", LOOK, ""),
    (survey(records=Records(failure="no")), "records-unread", LOOK, ""),
    (static(my__setting="1"), "settings-refused", STOPS, "node 1"),
    (with_settings(**{"my.setting": Entry(None, True, True)}), "settings-refused", STOPS, "node 1"),
    (static(log__segment__bytes="1"), "settings-refused", STOPS, "node 1"),
    (static(remote__log__storage__system__enable="true"), "settings-refused", STOPS, "node 1"),
    (static(sasl__enabled__mechanisms="PLAIN,X-MINE"), "settings-refused", STOPS, "node 1"),
    (static(log__initial__task__delay__ms="1"), "settings-idle", FINE, "node 1"),
    (static(listeners="PLAINTEXT://:9092"), "listeners-open", LOOK, "node 1"),
    (static(authorizer__class__name="com.example.Mine"), "plug-ins", STOPS, "node 1"),
    (with_settings(**{"listener.name.x.sasl.server.callback.handler.class": Entry("a.B", True)}), "plug-ins", STOPS,
     "node 1"),
    (static(metric__reporters="a.B,c.D"), "plug-ins", LOOK, "node 1"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "code", "weight", "where"), CASES, ids=[f"{n}-{c[1]}" for n, c in enumerate(CASES)])
def test_each_kind_is_found(given: Survey, code: str, weight: str, where: str) -> None:
    found = [each for each in findings(given) if each.code == code and each.weight == weight]
    assert len(found) == 1, [*findings(given)]
    assert not where or where in found[0].where
    assert found[0].what and (found[0].todo or weight == FINE)
    order = [each.weight for each in findings(given)]
    assert order == sorted(order, key=(STOPS, LOOK, FINE).index)
    others = [each for each in findings(given) if each.weight == STOPS and each.code != code]
    assert not others, "a case is of one kind"


def test_a_good_cluster_is_fine() -> None:
    assert {each.weight for each in findings(GOOD)} == {FINE}
    assert {each.code for each in findings(GOOD)} == {"quorum", "features", "in-sync", "records", "settings"}


def test_every_plug_in_that_kafka_has_is_looked_at() -> None:
    """Settings of the table that name a class, and what does nothing because a node loads none."""
    named = {name for name in definitions.BROKER if name.endswith((".class", ".class.name", ".reporters"))}
    unloaded = why("principal.builder.class")
    named |= {name for name in definitions.BROKER if why(name) == unloaded}
    known = {
        "group.share.dlq.manager.class.name",
        "group.streams.topology.description.plugin.class",
        "remote.log.storage.manager.class.name",
        "remote.log.metadata.manager.class.name",
        "sasl.oauthbearer.jwt.retriever.class",
    }
    assert named - known <= {*PLUGINS}, "give it a row in PLUGINS"
    for name in PLUGINS:
        assert not [
            each
            for each in findings(static(**{name.replace(".", "__"): "org.apache.kafka.Own"}))
            if each.code == "plug-ins"
        ]


def test_records_of_unknown_kinds_and_versions() -> None:
    known = encode_key(OffsetCommitKey("g", "t", 0))
    assert unknown_kind(OFFSETS_TOPIC, known, None) is None
    assert unknown_kind(OFFSETS_TOPIC, b"\x00\x63", None) == "__consumer_offsets: records of the unknown kind 99"
    assert "in version 99" in str(unknown_kind(OFFSETS_TOPIC, known, b"\x00\x63"))
    for topic in (OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC):
        assert unknown_kind(topic, b"\x00\x63", b"") is not None
        assert unknown_kind(topic, None, b"") is not None


def test_the_plan_says_what_each_node_costs() -> None:
    given = survey(
        partitions=(Partition("t", 0, (1, 2), (1, 2), 1), Partition("u", 0, (3,), (3,), 3)),
        min_in_sync={"t": 2, "u": 1},
        quorum=Quorum(2, 100, VOTERS),
    )
    assert [(each.node.id, each.is_active, each.leads, each.refuse_writes, each.away) for each in steps(given)] == [
        (1, False, 1, 1, 0),
        (3, False, 1, 0, 1),
        (2, True, 0, 1, 0),
    ]
