"""Every API of groups in every state of the group (absent, of each kind, empty, with another member, deleted) beside
Apache Kafka 4.4: the same error codes. GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED, fenced
epochs and their like are decided by the two together, which the cases of one API alone do not find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from ottla.protocol.messages import ApiKey
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import until
from tests.conformance.groups.raw_share_member import create
from tests.conformance.pair import Wire, settle
from tests.node import NodeProcess

SETTINGS: Final = {
    "group.max.size": "1", "group.consumer.max.size": "1", "group.share.max.size": "1", "group.streams.max.size": "1",
    "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1", "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1", "share.coordinator.state.topic.num.partitions": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
}  # fmt: skip
TOPIC: Final = "states"
NOBODY: Final = "nobody-of-this-group"
OTHER: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The member id of the one that is there."""
NOT_THERE: Final = (14, 15, 16)
"""The coordinator loads, is not available, or is another one."""
Values = Mapping[str, Any]


class Side:
    def __init__(self, bootstrap: str) -> None:
        self.topic_id = create(bootstrap, TOPIC)
        self.wire = Wire(bootstrap)
        settle(self.wire)
        self.member = OTHER
        wanted = {"key_type": 0, "coordinator_keys": ["g"]}
        until(lambda: codes(self.ask(ApiKey.FIND_COORDINATOR, 4, wanted)), lambda found: not any(found))
        asked = {"group_id": "g", "generation_id": 1, "member_id": NOBODY}
        until(lambda: self.ask(ApiKey.HEARTBEAT, 4, asked)["error_code"], lambda code: code not in NOT_THERE)

    def ask(self, key: ApiKey, version: int, values: Values) -> Any:
        return self.wire.ask(key, version, values)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory = tmp_path_factory.mktemp("kafka")
    with (
        NodeProcess(tmp_path_factory.mktemp("ottla") / "data", dict(SETTINGS)) as node,
        KafkaPeer(directory, heap="512m", flags=start_fast("4.4"), release="4.4", settings=SETTINGS) as peer,
    ):
        yield Side(node.bootstrap), Side(peer.bootstrap)


# What members ask


def join(member: str) -> Values:
    protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6states\0\0\0\0"}]
    return {
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


def consumer(member: str, epoch: int) -> Values:
    first = epoch == 0
    return {
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout": 60_000 if first else -1,
        "subscribed_topic_names": [TOPIC] if first else None,
        "topic_partitions": [] if first else None,
    }


def share(member: str, epoch: int) -> Values:
    return {"member_id": member, "member_epoch": epoch, "subscribed_topic_names": [TOPIC] if epoch == 0 else None}


def streams(member: str, epoch: int) -> Values:
    subtopology = {
        "subtopology_id": "0",
        "source_topics": [TOPIC],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
    }
    first = epoch == 0
    return {
        "member_id": member,
        "member_epoch": epoch,
        "endpoint_information_epoch": 0,
        "rebalance_timeout": 60_000 if first else -1,
        "process_id": "p" if first else None,
        "topology": {"epoch": 0, "subtopologies": [subtopology]} if first else None,
        "active_tasks": [] if first else None,
        "standby_tasks": [] if first else None,
        "warmup_tasks": [] if first else None,
        "client_tags": [] if first else None,
        "user_endpoint": None,
        "task_offsets": None,
        "task_end_offsets": None,
        "shutdown_application": False,
    }


HEARTBEATS: Final = {
    "consumer": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer),
    "share": (ApiKey.SHARE_GROUP_HEARTBEAT, 1, share),
    "streams": (ApiKey.STREAMS_GROUP_HEARTBEAT, 1, streams),
}


# States


def prepare(side: Side, state: str, group: str) -> None:
    """Raises AssertionError where the state cannot be reached."""
    kind, _, what = state.partition(" ")
    if kind == "absent":
        return
    if state == "classic offsets":
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets()}
        assert codes(side.ask(ApiKey.OFFSET_COMMIT, 9, commit)) == [0]
        return
    if kind == "classic":
        joined = side.ask(ApiKey.JOIN_GROUP, 3, {"group_id": group, **join("")})
        assert joined["error_code"] == 0, joined
        side.member = joined["member_id"]
        rows = [{"member_id": side.member, "assignment": b""}]
        assigned = {"group_id": group, "generation_id": 1, "member_id": side.member, "assignments": rows}
        assert side.ask(ApiKey.SYNC_GROUP, 3, assigned)["error_code"] == 0
        if what == "left":
            side.ask(ApiKey.LEAVE_GROUP, 2, {"group_id": group, "member_id": side.member})
        return
    side.member = OTHER
    key, version, values = HEARTBEATS[kind]
    answer = side.ask(key, version, {"group_id": group, **values(OTHER, 0)})
    assert answer["error_code"] == 0, answer
    if kind == "share":  # what Kafka does behind the answer: until then it knows no share partition
        listed = {"groups": [{"group_id": group, "topics": None}]}
        until(lambda: bool(side.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, listed)["groups"][0]["topics"]), bool)
    if what in ("left", "deleted"):
        answer = side.ask(key, version, {"group_id": group, **values(OTHER, -1)})
        assert answer["error_code"] == 0, answer
    if what == "deleted":
        assert codes(side.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group]})) == [0]


STATES: Final = [
    "absent", "classic offsets",
    *(f"{kind} {what}" for kind in ("classic", *HEARTBEATS) for what in ("live", "left")),
    *(f"{kind} deleted" for kind in HEARTBEATS),
]  # fmt: skip


# Questions


def offsets() -> list[Values]:
    row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return [{"name": TOPIC, "partitions": [row]}]


def questions() -> Iterator[tuple[str, ApiKey, int, Callable[[Side, str], Values]]]:
    """A name, and what is asked about a group."""

    def one(values: Callable[[str], Values], *, somebody: bool = False) -> Callable[[Side, str], Values]:
        return lambda side, group: {"group_id": group, **values(side.member if somebody else NOBODY)}

    for who in (False, True):
        name = "the other" if who else "nobody"
        for kind, (key, version, values) in HEARTBEATS.items():
            for epoch in (0, 1, 7, -1, -2):
                yield (
                    f"{kind} heartbeat of {name} at {epoch}",
                    key,
                    version,
                    one(
                        lambda member, values=values, epoch=epoch: values(member, epoch),
                        somebody=who,  # type: ignore[misc]
                    ),
                )
        for generation in (-1, 1, 7):
            more = {"generation_id": generation}
            yield (
                f"heartbeat of {name} at {generation}",
                ApiKey.HEARTBEAT,
                4,
                one(
                    lambda member, more=more: {**more, "member_id": member},
                    somebody=who,  # type: ignore[misc]
                ),
            )
            yield (
                f"sync of {name} at {generation}",
                ApiKey.SYNC_GROUP,
                4,
                one(
                    lambda member, more=more: {**more, "member_id": member, "assignments": []},
                    somebody=who,  # type: ignore[misc]
                ),
            )
            yield (
                f"commit of {name} at {generation}",
                ApiKey.OFFSET_COMMIT,
                9,
                one(
                    lambda member, generation=generation: {  # type: ignore[misc]
                        "generation_id_or_member_epoch": generation,
                        "member_id": member,
                        "topics": offsets(),
                    },
                    somebody=who,
                ),
            )
            yield (
                f"fetch of {name} at {generation}",
                ApiKey.OFFSET_FETCH,
                9,
                (
                    lambda side, group, generation=generation, who=who: {  # type: ignore[misc]
                        "groups": [
                            {
                                "group_id": group,
                                "member_id": side.member if who else NOBODY,
                                "member_epoch": generation,
                                "topics": None,
                            }
                        ]
                    }
                ),
            )
        yield (
            f"leave of {name}",
            ApiKey.LEAVE_GROUP,
            5,
            one(
                lambda member: {"members": [{"member_id": member, "group_instance_id": None, "reason": None}]},
                somebody=who,
            ),
        )
    yield "join of a new one", ApiKey.JOIN_GROUP, 3, one(lambda _: join(""))
    yield "join of nobody", ApiKey.JOIN_GROUP, 9, one(join)
    yield (
        "commit without a member",
        ApiKey.OFFSET_COMMIT,
        9,
        one(lambda _: {"generation_id_or_member_epoch": -1, "member_id": "", "topics": offsets()}),
    )
    for key, version, name in (
        (ApiKey.DESCRIBE_GROUPS, 6, "groups"),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, "group_ids"),
        (ApiKey.SHARE_GROUP_DESCRIBE, 1, "group_ids"),
        (ApiKey.STREAMS_GROUP_DESCRIBE, 1, "group_ids"),
        (ApiKey.DELETE_GROUPS, 2, "groups_names"),
    ):
        yield key.name.lower(), key, version, lambda _, group, name=name: {name: [group]}  # type: ignore[misc]
    yield (
        "offset_delete",
        ApiKey.OFFSET_DELETE,
        0,
        one(lambda _: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}),
    )
    yield (
        "alter_share_group_offsets",
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        one(lambda _: {"topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}]}),
    )
    yield (
        "delete_share_group_offsets",
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        one(lambda _: {"topics": [{"topic_name": TOPIC}]}),
    )
    yield (
        "describe_share_group_offsets",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        (lambda _, group: {"groups": [{"group_id": group, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]}),
    )


QUESTIONS: Final = list(questions())


def codes(answer: Any) -> list[int]:
    """The error codes in an answer, in their order."""
    if isinstance(answer, Mapping):
        own = [int(answer[name]) for name in ("error_code",) if name in answer]
        return own + [code for name, each in answer.items() if name != "error_code" for code in codes(each)]
    if isinstance(answer, list | tuple):
        return [code for each in answer for code in codes(each)]
    return []


@pytest.mark.parametrize("state", STATES)
def test_error_codes_in_each_state(sides: tuple[Side, Side], state: str) -> None:
    found: dict[str, list[list[int]]] = {}
    for number, (name, key, version, values) in enumerate(QUESTIONS):
        for side in sides:
            group = f"{state}-{number}".replace(" ", "-")
            prepare(side, state, group)
            found.setdefault(name, []).append(codes(side.ask(key, version, values(side, group))))
    assert len(found) == len(QUESTIONS)
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}, "Ottla's, Kafka's"
