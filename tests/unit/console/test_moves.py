"""Plans of many moves: balanced, emptied and typed; what was shown is what is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.console.acts.moves import AT_ONCE, move
from ottla.console.acts.table import BY_NAME
from ottla.console.asking import Asking, Site
from ottla.console.masks import Masks
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.unit.console.fake_changes import ChangingBrokers
from tests.unit.console.fake_cluster import ID, user

ACT = BY_NAME["move-partitions"]


class Uneven(ChangingBrokers):
    """Three brokers; everything is on 1 and 2, nothing on 3."""

    def __init__(self, partitions: int = 6, moving: bool = False, failing: int = 0) -> None:
        super().__init__()
        self.count, self.moving, self.failing = partitions, moving, failing

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [
            {"error_code": 0, "partition_index": number, "leader_id": 1 + number % 2, "leader_epoch": 0,
             "replica_nodes": [1 + number % 2, 2 - number % 2], "isr_nodes": [1, 2], "offline_replicas": []}
            for number in range(self.count)
        ]  # fmt: skip
        brokers = [{"node_id": node, "host": "h", "port": node, "rack": None} for node in (1, 2, 3)]
        topic = {"error_code": 0, "name": "a-b", "topic_id": ID, "is_internal": False, "partitions": partitions}
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"partition_index": 0, "replicas": [1], "adding_replicas": [], "removing_replicas": []}
        return {"error_code": 0, "topics": [{"name": "a-b", "partitions": [row]}] if self.moving else []}

    def describe_log_dirs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [{"partition_index": number, "partition_size": 1024} for number in range(self.count)]
        return {"error_code": 0, "results": [{"error_code": 0, "topics": [{"name": "a-b", "partitions": rows}]}]}

    def changed_alter_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        answer = super().changed_alter_partition_reassignments(values)
        for number, row in enumerate(row for topic in answer["responses"] for row in topic["partitions"]):
            row["error_code"] = ErrorCode.invalid_replica_assignment if number < self.failing else 0
        return answer


def planned(brokers: Uneven, /, **values: str) -> Any:
    return move(Asking(user(brokers), Site(Masks()), ACT.parse(values)))


def submitted(brokers: Uneven) -> dict[int, list[int]]:
    ((key, values),) = brokers.changes
    assert key == ApiKey.ALTER_PARTITION_REASSIGNMENTS
    (topic,) = values["topics"]
    assert topic["name"] == "a-b"
    return {each["partition_index"]: each["replicas"] for each in topic["partitions"]}


def test_a_balance_is_done_as_it_was_shown() -> None:
    brokers = Uneven()
    plan = planned(brokers)
    assert len(plan.changes) == 4  # 12 copies of 6 partitions: 4 on each broker
    assert "4.0 KiB are copied" in plan.sentence
    assert plan.command == "ottla cluster balance"
    assert brokers.changes == []
    again = planned(brokers, **plan.pinned)
    assert [(each.what, each.after) for each in again.changes] == [(each.what, each.after) for each in plan.changes]
    again.run()
    counts = [node for replicas in submitted(brokers).values() for node in replicas]
    assert counts.count(3) == 4


def test_a_broker_is_emptied() -> None:
    brokers = Uneven(3)
    plan = planned(brokers, how="empty", brokers="1")
    plan.run()
    assert plan.command == "ottla cluster drain 1"
    assert all(sorted(each) == [2, 3] for each in submitted(brokers).values())
    assert planned(Uneven(3), how="empty", brokers="3").blocked.startswith("Nothing is to be moved")


def test_a_large_plan_is_done_in_parts() -> None:
    plan = planned(Uneven(300), how="empty", brokers="1")
    assert len(plan.changes) == AT_ONCE
    assert f"first {AT_ONCE} of 300" in plan.warnings[0]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"how": "as typed"}, "say which"), ({"how": "empty"}, "ids of the brokers"),
        ({"how": "empty", "brokers": "9"}, "broker 9 is not up"), ({"how": "empty", "brokers": "1,2"}, "no such plan"),
        ({"moves": "a-b-0"}, "must be TOPIC-PARTITION"), ({"moves": "a-b-0=1,1"}, "twice"),
        ({"moves": "a-b-0=1\na-b-0=2"}, "twice"), ({"moves": "a-b-99=1"}, "no partition a-b-99"),
        ({"moves": "none-0=1"}, "no partition none-0"), ({"moves": "a-b-0=7"}, "broker 7 is not up"),
        ({"moves": "a-b-0=١"}, "must be TOPIC-PARTITION"),
        ({"moves": "\n".join(f"a-b-{number}=3" for number in range(AT_ONCE + 1))}, "at most"),
    ],
)  # fmt: skip
def test_what_cannot_be_moved(values: dict[str, str], why: str) -> None:
    brokers = Uneven(AT_ONCE + 1)
    with pytest.raises(Exception, match=why):
        planned(brokers, **values)
    assert brokers.changes == []


def test_moves_under_way_are_waited_for() -> None:
    with pytest.raises(Exception, match="being moved already"):
        planned(Uneven(moving=True))
    with pytest.raises(Exception, match="a-b-0 is being moved already"):
        planned(Uneven(moving=True), moves="a-b-0=3")
    assert len(planned(Uneven(moving=True), moves="a-b-1=3").changes) == 1


def test_what_the_controller_refuses_is_said() -> None:
    with pytest.raises(Exception, match="of 2 moves 1 began, the first that did not: a-b-0"):
        planned(Uneven(failing=1), moves="a-b-0=3\na-b-1=3").run()
    with pytest.raises(Exception, match="INVALID_REPLICA_ASSIGNMENT"):
        planned(Uneven(failing=2), moves="a-b-0=3\na-b-1=3").run()
