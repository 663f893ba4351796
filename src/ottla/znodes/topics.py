"""`/brokers/topics/T` and the state of its partitions (`TopicZNode`, `TopicPartitionStateZNode`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.metadata.image import LeaderRecoveryState, TopicImage
from ottla.model import ZERO_UUID, TopicId, uuid_from_base64, uuid_to_base64
from ottla.znodes.tree import BadZnode, Fields, fields_of, integers, to_json

TOPICS: Final = "/brokers/topics"

_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


class TopicZnode(NamedTuple):
    """Which brokers have a topic's replicas. Without an id where no broker of 2.8 or later was its controller."""

    topic_id: TopicId | None
    replicas: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}


class PartitionState(NamedTuple):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery_state: int = LeaderRecoveryState.RECOVERED
    directories: tuple[UUID, ...] = ()
    """The log directory of each replica. Only Ottla's controllers say so; others ignore it."""


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_znode(topic: TopicImage, *, with_id: bool = True) -> TopicZnode:
    """Which brokers have the topic's replicas."""
    rows = topic.partitions.items()
    return TopicZnode(
        topic.id if with_id else None,
        {number: each.replicas for number, each in rows},
        {number: each.adding for number, each in rows if each.adding},
        {number: each.removing for number, each in rows if each.removing},
    )


def decode_topic(path: str, data: bytes) -> TopicZnode:
    """Versions 1 to 3: 2 has the replicas of a reassignment (2.4), 3 the topic's id (2.8). Raises BadZnode."""
    fields = fields_of(path, data)
    version = fields.version(1, 2, 3)
    replicas = _lists(path, fields.object("partitions"))
    topic_id = None
    if version == 3 and "topic_id" in fields:
        try:
            topic_id = uuid_from_base64(fields.text("topic_id"))
        except ValueError:
            raise BadZnode(path, "is damaged: topic_id is no id") from None
        topic_id = None if topic_id == ZERO_UUID else topic_id
    adding = _lists(path, fields.object("adding_replicas", optional=True)) if version > 1 else {}
    removing = _lists(path, fields.object("removing_replicas", optional=True)) if version > 1 else {}
    return TopicZnode(
        topic_id, replicas, {n: each for n, each in adding.items() if each}, {n: e for n, e in removing.items() if e}
    )


def _lists(path: str, fields: Fields) -> dict[int, tuple[int, ...]]:
    found = {}
    for name, value in fields.items():
        if _NUMBER.fullmatch(name) is None:
            raise BadZnode(path, f"is damaged: {name!r} is no partition")
        found[int(name)] = integers(path, f"partition {name}", value)
    return dict(sorted(found.items()))


def encode_topic(topic: TopicZnode) -> bytes:
    """In version 3, as 2.4 and every later broker writes it; older ones ignore what they do not know."""
    return to_json(
        {
            "removing_replicas": {str(number): list(each) for number, each in topic.removing.items()},
            "partitions": {str(number): list(each) for number, each in topic.replicas.items()},
            **({} if topic.topic_id is None else {"topic_id": uuid_to_base64(topic.topic_id)}),
            "adding_replicas": {str(number): list(each) for number, each in topic.adding.items()},
            "version": 3,
        }
    )


def decode_state(path: str, data: bytes) -> PartitionState:
    """Raises BadZnode."""
    fields = fields_of(path, data)
    fields.version(1)
    return PartitionState(
        fields.integer("leader"),
        fields.integer("leader_epoch"),
        fields.integers("isr"),
        fields.integer("controller_epoch"),
        fields.integer("leader_recovery_state", LeaderRecoveryState.RECOVERED),
        _directories(path, fields),
    )


def _directories(path: str, fields: Fields) -> tuple[UUID, ...]:
    if "directories" not in fields:
        return ()
    try:
        return tuple(map(uuid_from_base64, fields.texts("directories")))
    except ValueError:
        raise BadZnode(path, "is damaged: directories holds what is no id") from None


def encode_state(state: PartitionState) -> bytes:
    recovering = state.recovery_state != LeaderRecoveryState.RECOVERED
    return to_json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **({"leader_recovery_state": state.recovery_state} if recovering else {}),
            **({"directories": [uuid_to_base64(each) for each in state.directories]} if state.directories else {}),
        }
    )
