"""What brokers had not finished: a deletion is finished, a reassignment goes on, and what is damaged is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.znodes import cluster
from ottla.znodes.checking import checked
from ottla.znodes.findings import Severity
from ottla.znodes.reading import Reader, Topic
from ottla.znodes.topics import PartitionState, TopicZnode, encode_state, encode_topic, state_path, topic_path
from ottla.znodes.tree import Znode, to_json

CLUSTER = {
    cluster.CLUSTER_ID: Znode(cluster.encode_cluster_id("c")),
    cluster.CONTROLLER_EPOCH: Znode(b"5"),
    cluster.BROKER_IDS: Znode(),
}


def _topic(name: str, assignment: TopicZnode, isr: tuple[int, ...]) -> dict[str, Znode]:
    return {
        topic_path(name): Znode(encode_topic(assignment)),
        **{state_path(name, n): Znode(encode_state(PartitionState(-1, 3, isr, 5))) for n in assignment.replicas},
    }


def _reassigned(*rows: tuple[str, int, list[int]]) -> dict[str, Znode]:
    partitions = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in rows]
    return {cluster.REASSIGNMENTS: Znode(to_json({"version": 1, "partitions": partitions}))}


def _read(tree: Mapping[str, Znode]) -> tuple[Reader, list[tuple[str, str]], list[tuple[str, str]]]:
    """What was read, what is in the way, and the notes."""
    reader = Reader({**CLUSTER, **tree})
    reader.read()
    found = checked(reader)
    rows = {kind: [(each.path, each.text) for each in found if each.severity is kind] for kind in Severity}
    assert not rows[Severity.LOST]
    return reader, rows[Severity.IN_THE_WAY], rows[Severity.NOTE]


def _one(topics: list[Topic]) -> Topic:
    (topic,) = topics
    return topic


def _assigned(topic: Topic) -> tuple[Any, Any, Any]:
    found = topic.assignment
    return found.replicas[0], found.adding.get(0, ()), found.removing.get(0, ())


def test_a_deletion_is_finished() -> None:
    """Also of a topic of which only a part is there still; its settings go with it, other topics stay."""
    tree = {
        **_topic("a", TopicZnode(None, {0: (1, 2)}), (2,)),
        topic_path("b"): Znode(encode_topic(TopicZnode(None, {0: (1,), 1: (1,)}))),
        "/config/topics/b": Znode(b'{"version":1,"config":{"retention.ms":"5"}}'),
        f"{cluster.DELETIONS}/b": Znode(),
        f"{cluster.DELETIONS}/unknown": Znode(),
    }
    reader, refused, notes = _read(tree)
    assert refused == []
    assert _one(reader.cluster.topics).name == "a"
    assert _one(reader.cluster.deleted).name == "b"
    assert reader.cluster.topic_configs == {}
    assert [path for path, _ in notes] == [f"{cluster.DELETIONS}/b", f"{cluster.DELETIONS}/unknown"]


@pytest.mark.parametrize(
    ("assignment", "target", "expected"),
    [
        # ReplicaAssignment.reassignTo of Kafka
        (TopicZnode(None, {0: (1, 2, 3)}), [3, 4, 5], ((3, 4, 5, 1, 2), (4, 5), (1, 2))),
        (TopicZnode(None, {0: (1, 2, 3)}), [3, 1, 2], ((3, 1, 2), (), ())),
        (TopicZnode(None, {0: (4, 1, 2, 3)}, {0: (4,)}, {0: (1,)}), [5, 2, 3], ((5, 2, 3, 1), (5,), (1,))),
        (TopicZnode(None, {0: (4, 5, 1, 2, 3)}), [4, 5, 3], ((4, 5, 3, 1, 2), (), (1, 2))),  # as before 2.4
    ],
    ids=["new", "another order", "instead of another", "of an old release"],
)
def test_a_reassignment_goes_into_the_assignment(assignment: TopicZnode, target: list[int], expected: Any) -> None:
    reader, refused, notes = _read({**_topic("a", assignment, (3,)), **_reassigned(("a", 0, target))})
    assert refused == []
    assert _assigned(_one(reader.cluster.topics)) == expected
    assert bool(notes) == bool(expected[1] or expected[2])


def test_a_reassignment_by_request_is_carried() -> None:
    assignment = TopicZnode(None, {0: (4, 1, 2), 1: (1, 2)}, {0: (4,)}, {0: (1,)})
    reader, refused, notes = _read(_topic("a", assignment, (2,)))
    assert (refused, _assigned(_one(reader.cluster.topics))) == ([], ((4, 1, 2), (4,), (1,)))
    (note,) = notes
    assert note[0] == topic_path("a") and "partitions 0 goes on" in note[1]


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        (_reassigned(("a", 0, [])), cluster.REASSIGNMENTS),
        (_reassigned(("a", 0, [3, 3])), cluster.REASSIGNMENTS),
        (_reassigned(("a", 0, [3, -1])), cluster.REASSIGNMENTS),
        ({cluster.REASSIGNMENTS: Znode(b"{}")}, cluster.REASSIGNMENTS),
        ({cluster.REASSIGNMENTS: Znode(b"\xff")}, cluster.REASSIGNMENTS),
        (_topic("a", TopicZnode(None, {0: (1, 3)}, {0: (4,)}), (3,)), topic_path("a")),
        (_topic("a", TopicZnode(None, {0: (1, 3)}, {}, {0: (1, 3)}), (3,)), topic_path("a")),
        (_topic("a", TopicZnode(None, {0: (1, 3)}, {0: (1,)}, {0: (1,)}), (3,)), topic_path("a")),
        (
            {**_topic("a", TopicZnode(None, {0: (4, 1)}, {0: (4,)}), (4,)), **_reassigned(("a", 0, [1, 5]))},
            state_path("a", 0),
        ),
    ],
)
def test_what_cannot_be_finished_is_named(tree: dict[str, Znode], path: str) -> None:
    _, refused, _ = _read({**_topic("a", TopicZnode(None, {0: (1, 2, 3)}), (3,)), **tree})
    assert path in [each for each, _ in refused]


def test_a_reassignment_of_what_is_not_there_is_left_out() -> None:
    tree = {
        **_topic("a", TopicZnode(None, {0: (1,)}), (1,)),
        **_topic("gone", TopicZnode(None, {0: (1,)}), (1,)),
        f"{cluster.DELETIONS}/gone": Znode(),
        **_reassigned(("a", 7, [1, 2]), ("b", 0, [1, 2]), ("gone", 0, [1, 2])),
    }
    reader, refused, notes = _read(tree)
    assert refused == []
    assert [text.split()[0] for path, text in notes if path == cluster.REASSIGNMENTS] == ["a-7", "b-0", "gone-0"]
    assert _assigned(_one(reader.cluster.topics)) == ((1,), (), ())
