"""Descriptions of topologies (KIP-1331), and static members of streams groups."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group.requests import DeleteGroups, StreamsDescription
from ottla.coordinator.group.streams.describe import describe as describe_streams
from ottla.coordinator.group.streams.describe import description_of
from ottla.coordinator.group.streams.descriptions import ITEMS_MAX, RECORD_BYTES_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.topology_descriptions import encode_description
from ottla.protocol.schemas.records import DescribedSubtopology, TopologyDescription, TopologyNode
from tests.unit.coordinator.streams_groups import COUNTING, SIMPLE, Groups
from tests.unit.coordinator.test_streams_groups import SESSION_MS, assert_reloads, in_log

DESCRIPTION = TopologyDescription(
    (DescribedSubtopology("0", (TopologyNode("source", 1, ("t",), successors=("sink",)), TopologyNode("sink", 3))),)
)


def push(groups: Groups, member_id: str = "a", epoch: int = 0, **named: Any) -> Any:
    """The code of the answer."""
    given = {"description": encode_description(DESCRIPTION), "items": 5, **named}
    request = StreamsDescription(given.pop("group", "g"), member_id, epoch, **given)
    try:
        groups.driver.shard.ask("push", request, groups.driver.now)
    except KafkaError as error:
        return error.code
    groups.driver.run()
    answer = groups.driver.replies[-1][1]
    return answer["error_code"] if isinstance(answer, dict) else answer


def asks(response: Any) -> bool:
    return bool(response.get("topology_description_required", False))


def wait(groups: Groups, milliseconds: int) -> None:
    """The members go on with heartbeats of version 0, which ask for nothing."""
    for left in range(milliseconds, 0, -20_000):
        groups.driver.wait(min(left, 20_000))
        for member_id in [*groups.group().members]:
            groups.poll(member_id, is_version_1=False)


def stored(groups: Groups) -> TopologyDescription | None:
    return description_of(groups.driver.shard.state, "g")


def test_one_member_is_asked_and_what_it_tells_is_kept() -> None:
    groups = Groups()
    groups.create(t=2)
    assert not asks(groups.join("a", is_version_1=False))
    assert not asks(groups.poll("a", is_version_1=False))
    assert asks(groups.poll("a"))
    assert not asks(groups.join("b")) and not asks(groups.poll("a"))
    wait(groups, 29_000)
    assert not asks(groups.poll("a"))
    wait(groups, 2_000)
    assert asks(groups.poll("b"))
    wait(groups, 59_000)  # the pause is twice as long
    assert not asks(groups.poll("a"))
    wait(groups, 2_000)
    assert asks(groups.poll("a"))

    assert stored(groups) is None
    assert push(groups) is ErrorCode.none
    assert stored(groups) == DESCRIPTION
    wait(groups, 200_000)
    assert not asks(groups.poll("a"))
    group = groups.group()
    assert (group.stored_description_epoch, group.failed_description_epoch) == (0, -1)
    assert_reloads(groups)
    assert stored(groups) == DESCRIPTION and groups.group().stored_description_epoch == 0
    assert not asks(groups.poll("a"))
    groups.join("c")  # the group has another epoch
    assert (groups.group().stored_description_epoch, stored(groups)) == (0, DESCRIPTION)


def test_what_is_no_description_of_the_group() -> None:
    groups = Groups()
    groups.create(t=2)
    assert push(groups) is ErrorCode.group_id_not_found
    groups.join("a")
    assert push(groups, "x") is ErrorCode.unknown_member_id
    assert push(groups, epoch=1) is ErrorCode.invalid_request
    assert push(groups, "") is ErrorCode.invalid_request
    assert push(groups, group=" ") is ErrorCode.invalid_request
    assert push(groups, wrong="Unknown topology node type: 9") is ErrorCode.invalid_request
    assert stored(groups) is None and groups.group().failed_description_epoch == -1
    wait(groups, 31_000)
    assert asks(groups.poll("a"))


@pytest.mark.parametrize(
    "large", [{"items": ITEMS_MAX + 1}, {"description": b"x" * RECORD_BYTES_MAX}], ids=["items", "bytes"]
)
def test_one_that_is_too_large_is_refused_for_good(large: dict[str, Any]) -> None:
    groups = Groups()
    groups.create(t=2)
    groups.join("a")
    assert push(groups, **large) is ErrorCode.streams_topology_description_update_failed
    assert stored(groups) is None and groups.group().failed_description_epoch == 0
    assert not asks(groups.poll("a"))
    assert_reloads(groups)
    assert groups.group().failed_description_epoch == 0 and not asks(groups.poll("a"))


def test_one_that_cannot_be_written_is_asked_for_again() -> None:
    groups = Groups()
    groups.create(t=2)
    assert asks(groups.join("a"))
    groups.driver.next_failure = ErrorCode.kafka_storage_error
    assert push(groups) is not ErrorCode.none
    assert stored(groups) is None and groups.group().stored_description_epoch == -1
    wait(groups, 31_000)
    assert asks(groups.poll("a"))


def test_it_goes_with_the_group() -> None:
    groups = Groups()
    groups.create(t=2)
    groups.join("a")
    push(groups)
    groups.send("a", -1)
    assert stored(groups) == DESCRIPTION
    groups.driver.shard.ask("delete", DeleteGroups(["g"]), groups.driver.now)
    groups.driver.run()
    assert in_log(groups) == {}
    groups.join("a")
    assert stored(groups) is None


# Static members


def test_a_static_member_that_is_away_keeps_its_tasks() -> None:
    groups = Groups()
    groups.create(t=4)
    groups.join("a", instance_id="i")
    groups.join("b")
    groups.settle()
    epoch, had = groups.group().epoch, groups.active("a")
    assert groups.join("z", instance_id="i") is ErrorCode.unreleased_instance_id
    assert groups.send("a", -2, instance_id="i")["member_epoch"] == -2
    groups.settle(1)
    assert len(groups.active("b")) == 2
    back = groups.join("z", instance_id="i", process_id="p-a")
    assert [*groups.group().members] == ["b", "z"] and groups.active("z") == had
    assert (back["member_epoch"], groups.group().epoch) == (epoch, epoch)
    assert groups.send("a", epoch, instance_id="i") is ErrorCode.fenced_instance_id
    assert groups.send("a", epoch, instance_id="j") is ErrorCode.unknown_member_id
    assert_reloads(groups)
    assert groups.group().static_members == {"i": "z"}
    groups.driver.wait(SESSION_MS - 1)
    groups.poll("b")
    groups.driver.wait(2)  # neither has the old member's session any effect
    assert [*groups.group().members] == ["b"]
    groups.settle()
    assert len(groups.active("b")) == 4


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    groups = Groups()
    groups.create(t=4, c=4, r=4)
    groups.join("a", COUNTING, instance_id="i")
    groups.send("a", -2, instance_id="i")
    (described,) = describe_streams(groups.driver.shard.state, "g")["members"]
    assert (described["instance_id"], described["member_epoch"]) == ("i", -2)
    groups.driver.wait(SESSION_MS + 1)
    assert groups.group().members == {} and groups.group().static_members == {}
    assert groups.send("a", -2, instance_id="i") is ErrorCode.unknown_member_id


def test_a_static_member_has_room_in_a_full_group() -> None:
    groups = Groups(streams_max_size=1)
    groups.create(t=1)
    groups.join("a", SIMPLE, instance_id="i")
    groups.send("a", -2, instance_id="i")
    assert groups.join("b", instance_id="i")["error_code"] is ErrorCode.none
    assert groups.join("c", instance_id="j") is ErrorCode.group_max_size_reached
