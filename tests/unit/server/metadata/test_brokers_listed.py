"""What clients hear of a broker from its death to its return, of every API whose answers name brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

from ottla.drivers.coordinators.coordinator_shards import Shards
from ottla.drivers.metadata.away_brokers import KILLED_LISTED_S, STOPPED_LISTED_S, AwayBrokers
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.model import OFFSETS_TOPIC
from ottla.protocol.messages import OWN_API_MIN, ApiKey
from ottla.replication.share.session import SharedPartition
from ottla.server import api
from ottla.server.coordinators.share_groups import leaders
from ottla.server.metadata.leader_hints import endpoints_of, known_leader
from ottla.server.metadata.metadata_changes import follow_brokers
from ottla.server.metadata.metadata_view import MetadataView
from ottla.server.produce.produce_answers import _hint_at_leaders
from ottla.testing.loop import SimulatedTime
from tests import kio_oracle
from tests.unit.server.admin import asking, broker, image_of, node_of, partition, topic, topic_id

WALKED = {
    ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.FIND_COORDINATOR,
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE,
}  # fmt: skip
NOT_BROKERS = {
    ApiKey.DESCRIBE_QUORUM,  # controllers
    ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE,  # endpoints of applications
    ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS,  # hosts of clients
}  # fmt: skip


def named(cls: Any) -> Iterator[str]:
    hints = get_type_hints(cls)
    for each in fields(cls):
        yield each.name
        for kind in (hints[each.name], *get_args(hints[each.name])):
            for inner in (kind, *get_args(kind)):
                if isinstance(inner, type) and is_dataclass(inner):
                    yield from named(inner)


def test_every_api_is_walked() -> None:
    found = set()
    for key in ApiKey:
        if key >= OWN_API_MIN:
            continue
        try:
            response = kio_oracle.response_class(key, api.load(key).max_version)
        except (KeyError, KafkaError):
            continue
        if not {"host", "leader_id"}.isdisjoint(named(response)):
            found.add(key)
    assert found == WALKED | NOT_BROKERS


class World:
    """A node that has seen brokers 1 to 3 and what became of broker 2, in virtual time."""

    def __init__(self, *images: MetadataImage, lost: bool = False, wait_s: float = 0.0, node_id: int = 1) -> None:
        time = SimulatedTime(1)
        loop = time.loop("node")
        self.node = node_of(images[-1])
        self.node.lost = {2: images[-1].brokers[2].epoch} if lost else {}
        self.node.node_id = node_id

        async def follow() -> list[int]:
            before = EMPTY_IMAGE
            for image in images:
                follow_brokers(self.node, MetadataDelta.between(before, image), image)
                before = image
            await asyncio.sleep(wait_s)
            view = MetadataView(images[-1], "PLAINTEXT", self.node.lost, self.node.away)
            return [each.id for each in view.listed()]

        task = loop.create_task(follow())
        time.run(until=task.done, seconds_max=2 * KILLED_LISTED_S)
        self.listed: list[int] = task.result()


def image(**of_2: Any) -> MetadataImage:
    brokers = (broker(1), replace(broker(2), **of_2), broker(3))
    return image_of(topic("a", partition(2, 1, 3)), topic(OFFSETS_TOPIC, partition(2, 1, 3)), brokers=brokers)


ALIVE = image()
FENCED = image(fenced=True)
STOPPED = image(fenced=True, in_controlled_shutdown=True)
BACK = image(fenced=True, epoch=8)
UNFENCED = image(epoch=8)
ALONE = image_of(brokers=(broker(1),))
ALONE_FENCED = image_of(brokers=(replace(broker(2), fenced=True),))
WITHOUT = image_of(brokers=(broker(1), broker(3)))


@pytest.mark.parametrize(
    ("images", "wait_s", "listed"),
    [
        ([ALIVE, FENCED], 0, True),  # died
        ([ALIVE, FENCED, BACK], 0, True),  # has registered again, and is not unfenced yet
        ([ALIVE, BACK], 0, True),  # so quickly that nobody fenced the old process
        ([FENCED], 0, True),  # this node has just started
        ([FENCED, BACK], 0, True),
        ([ALIVE, FENCED], KILLED_LISTED_S - 1, True),
        ([ALIVE, FENCED], KILLED_LISTED_S + 1, False),
        ([ALIVE, STOPPED], STOPPED_LISTED_S - 1, True),
        ([ALIVE, STOPPED, BACK], STOPPED_LISTED_S + 1, True),
        ([ALIVE, STOPPED], STOPPED_LISTED_S + 1, False),
        ([STOPPED], STOPPED_LISTED_S + 1, False),
        ([ALIVE, FENCED, UNFENCED], 0, True),
        ([ALIVE, FENCED, UNFENCED], KILLED_LISTED_S + 1, True),
        ([WITHOUT, FENCED], 0, False),  # a new one, which has yet to come
        ([WITHOUT, FENCED, BACK], 0, False),
        ([WITHOUT, FENCED, BACK, UNFENCED], 0, True),
        ([ALIVE, FENCED, WITHOUT], 0, False),  # unregistered
        ([ALIVE, FENCED, WITHOUT, FENCED], 0, False),
    ],
)
def test_how_long_a_broker_is_listed(images: list[MetadataImage], wait_s: float, listed: bool) -> None:
    assert World(*images, wait_s=wait_s).listed == ([1, 2, 3] if listed else [1, 3])


@pytest.mark.parametrize(
    ("images", "node_id", "listed"),
    [
        ([ALONE], 1, None),
        ([ALONE, ALIVE, FENCED], 1, [1, 2, 3]),
        ([ALONE, FENCED], 1, [1, 3]),  # the others are new, and 2 has yet to come
        ([EMPTY_IMAGE, ALONE, FENCED], 1, [1, 3]),
        ([ALONE_FENCED], 2, None),
        ([ALONE_FENCED, FENCED], 1, [1, 2, 3]),  # a node that joins, where the only other one is away
    ],
)
def test_who_is_away_is_followed_from_the_first_other_broker_on(
    images: list[MetadataImage], node_id: int, listed: list[int] | None
) -> None:
    world = World(*images, node_id=node_id)
    assert (None if world.node.away is None else world.listed) == listed


def test_a_change_of_a_fenced_broker_does_not_begin_its_time_again() -> None:
    time = SimulatedTime(1)
    loop, away = time.loop("node"), AwayBrokers()

    async def follow() -> bool:
        away.apply(MetadataDelta.between(EMPTY_IMAGE, FENCED), FENCED)
        await asyncio.sleep(KILLED_LISTED_S - 1)
        away.apply(MetadataDelta.between(FENCED, other), other)
        await asyncio.sleep(2)
        return away.lists(2)

    other = image(fenced=True, log_dirs=())
    task = loop.create_task(follow())
    time.run(until=task.done, seconds_max=2 * KILLED_LISTED_S)
    assert task.result() is False


def coordinator(node: Any) -> int:
    shards: Any = SimpleNamespace(_node=node, _kind=SimpleNamespace(topic=OFFSETS_TOPIC), _is_offline=lambda n: False)
    try:
        return Shards.find(shards, 0, "PLAINTEXT")[0]
    except KafkaError as error:
        assert error.code is ErrorCode.coordinator_not_available
        return -1


METADATA: Callable[..., Any] = asking(ApiKey.METADATA)
CLUSTER: Callable[..., Any] = asking(ApiKey.DESCRIBE_CLUSTER)
PARTITIONS: Callable[..., Any] = asking(ApiKey.DESCRIBE_TOPIC_PARTITIONS)


@pytest.mark.parametrize(
    ("images", "lost", "alive"),
    [([ALIVE], False, True), ([ALIVE], True, False), ([ALIVE, FENCED], False, False), ([ALIVE, BACK], True, False)],
)
def test_a_broker_that_is_listed_and_gone_leads_and_coordinates_nothing(
    images: list[MetadataImage], lost: bool, alive: bool
) -> None:
    node = World(*images, lost=lost).node
    asyncio.run(_wait_for(node, images))
    metadata = METADATA(node, {"topics": [{"name": "a", "topic_id": None}]})
    assert [each["node_id"] for each in metadata["brokers"]] == [1, 2, 3]
    leader = 2 if alive else -1
    assert metadata["topics"][0]["partitions"][0]["leader_id"] == leader
    assert metadata["topics"][0]["partitions"][0]["offline_replicas"] == ([] if alive else [2])
    (found,) = PARTITIONS(node, {"topics": [{"name": "a"}]})["topics"]
    assert found["partitions"][0]["leader_id"] == leader
    assert coordinator(node) == leader
    assert all(CLUSTER(node, {})["controller_id"] != 2 for _ in range(20)) or alive
    assert all(METADATA(node, {"topics": []})["controller_id"] != 2 for _ in range(20)) or alive
    described = CLUSTER(node, {"include_fenced_brokers": False})["brokers"]
    assert [each["broker_id"] for each in described] == ([1, 2, 3] if alive else [1, 3])
    described = CLUSTER(node, {"include_fenced_brokers": True})["brokers"]
    assert [(each["broker_id"], each["is_fenced"]) for each in described] == [(1, False), (2, not alive), (3, False)]


async def _wait_for(node: Any, images: list[MetadataImage]) -> None:
    """The same in the time of the loop that the requests are answered in."""
    node.away = None
    before = EMPTY_IMAGE
    for each in images:
        follow_brokers(node, MetadataDelta.between(before, each), each)
        before = each


def by_produce(context: Any) -> Any:
    row: Any = {"index": 0, "error_code": ErrorCode.not_leader_or_follower}
    response: Any = {"responses": [{"name": "a", "partition_responses": [row]}]}
    _hint_at_leaders(context, response)
    return _hint(row.get("current_leader"), response.get("node_endpoints", ()))


def _hint(leader: Any, endpoints: Any) -> Any:
    return leader and leader["leader_id"], [SimpleNamespace(**each) for each in endpoints]


def by_fetch(context: Any) -> Any:
    """Fetch is compiled, and fills its answer with this."""
    node_ids: set[int] = set()
    leader = known_leader(context, ALIVE.partition("a", 0), node_ids)
    return _hint(leader, endpoints_of(context, node_ids))


def by_share(context: Any) -> Any:
    where = SharedPartition(topic_id("a"), 0)
    found, endpoints = leaders(context, [(where, ErrorCode.not_leader_or_follower)])
    return _hint(found.get(where), endpoints)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("ask", [by_produce, by_fetch, by_share])
def test_a_leader_that_is_gone_is_no_hint(ask: Callable[[Any], Any], lost: bool) -> None:
    """Produce, Fetch, and ShareFetch together with ShareAcknowledge (KIP-951)."""
    node = node_of(ALIVE)
    node.lost = {2: 7} if lost else {}
    leader, endpoints = ask(SimpleNamespace(node=node, listener_name="PLAINTEXT", api_version=12))
    assert (leader, [each.node_id for each in endpoints]) == ((None, []) if lost else (2, [2]))
