"""Plans of many moves: balanced, emptied and typed; what was shown is what is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.console.acts.act import Partly
from ottla.console.acts.moves import AT_ONCE, move
from ottla.console.acts.table import BY_NAME
from ottla.console.asking import Asking, Site, User
from ottla.console.brokers import NodeAway, Unanswered
from ottla.console.masks import Masks
from ottla.console.views import moves as views
from ottla.console.views.overview import overview
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from tests.unit.console.fake_changes import ChangingBrokers
from tests.unit.console.fake_cluster import ID, user
from tests.unit.console.test_watched import shown

ACT = BY_NAME["move-partitions"]


class Uneven(ChangingBrokers):
    """Three brokers; everything is on 1 and 2, nothing on 3."""

    def __init__(self, partitions: int = 6, moving: bool = False, failing: int = 0) -> None:
        super().__init__()
        self.count, self.moving, self.failing = partitions, moving, failing

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [
            {
                "error_code": 0,
                "partition_index": number,
                "leader_id": 1 + number % 2,
                "leader_epoch": 0,
                "replica_nodes": [1 + number % 2, 2 - number % 2],
                "isr_nodes": [1, 2],
                "offline_replicas": [],
            }
            for number in range(self.count)
        ]
        brokers = [{"node_id": node, "host": "h", "port": node, "rack": None} for node in (1, 2, 3)]
        topic = {"error_code": 0, "name": "a-b", "topic_id": ID, "is_internal": False, "partitions": partitions}
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"partition_index": 0, "replicas": [1], "adding_replicas": [], "removing_replicas": []}
        return {"error_code": 0, "topics": [{"name": "a-b", "partitions": [row]}] if self.moving else []}

    def describe_log_dirs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"partition_index": number, "partition_size": 1024, "is_future_key": False} for number in range(self.count)
        ]
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
        ({"how": "as typed"}, "say which"),
        ({"how": "empty"}, "ids of the brokers"),
        ({"how": "empty", "brokers": "9"}, "broker 9 is not up"),
        ({"how": "empty", "brokers": "1,2"}, "no such plan"),
        ({"moves": "a-b-0"}, "must be TOPIC-PARTITION"),
        ({"moves": "a-b-0=1,1"}, "twice"),
        ({"moves": "a-b-0=1\na-b-0=2"}, "twice"),
        ({"moves": "a-b-99=1"}, "no partition a-b-99"),
        ({"moves": "none-0=1"}, "no partition none-0"),
        ({"moves": "a-b-0=7"}, "broker 7 is not up"),
        ({"moves": "a-b-0=١"}, "must be TOPIC-PARTITION"),
        ({"moves": "\n".join(f"a-b-{number}=3" for number in range(AT_ONCE + 1))}, "at most"),
    ],
)
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


class Copied(Uneven):
    """Partition 0 is copied to 3, which has half of it; brokers 1 and 3 have a throttle."""

    def __init__(self) -> None:
        super().__init__(2)
        self.have, self.rates, self.lists, self.is_moving = 512, {1: 1000, 3: 2000}, {"a-b": ("0:1,0:2", "*")}, True

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"partition_index": 0, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [2]}
        return {"error_code": 0, "topics": [{"name": "a-b", "partitions": [row]}] if self.is_moving else []}

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        if key == ApiKey.DESCRIBE_LOG_DIRS and values["topics"] is not None:
            assert values["topics"] == [{"topic": "a-b", "partitions": [0]}]
            size = self.have if node_id == 3 else 1024
            rows = [
                {"partition_index": 0, "partition_size": size, "is_future_key": False},
                {"partition_index": 0, "partition_size": 7, "is_future_key": True},
            ]
            return {"error_code": 0, "results": [{"error_code": 0, "topics": [{"name": "a-b", "partitions": rows}]}]}
        return super().ask(node_id, key, values)

    def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        results = []
        for each in values["resources"]:
            kind, name = each["resource_type"], each["resource_name"]
            given = self.lists.get(name, ("", "")) if kind == 2 else (self.rates.get(int(name)),) * 2
            configs = [
                {
                    "name": wanted,
                    "value": None if value is None else str(value),
                    "read_only": False,
                    "config_source": 5 if not value else 1 if kind == 2 else 2,
                    "is_sensitive": False,
                    "synonyms": [],
                }
                for wanted, value in zip(each["configuration_keys"], given, strict=True)
            ]
            results.append({"error_code": 0, "resource_type": kind, "resource_name": name, "configs": configs})
        return {"results": results}


def looked(brokers: Uneven, by: User | None = None) -> Any:
    return views.moves(Asking(by or user(brokers), Site(Masks()), {"page": 1}))


def test_progress_is_in_bytes_with_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("ottla.console.trends.time.monotonic", lambda: clock[0])
    brokers = Copied()
    who = user(brokers)
    first = looked(brokers, by=who)
    assert (first.copied_bytes, first.bytes, first.bytes_per_second, first.left_s) == ("512", "1024", None, None)
    assert (first.rows[0].copied_bytes, first.rows[0].bytes) == ("512", "1024")
    clock[0], brokers.have = 110.0, 712
    second = looked(brokers, by=who)
    assert (second.copied_bytes, second.bytes_per_second, second.left_s) == ("712", "20", 16)
    clock[0], brokers.have = 120.0, 2000  # cleaned on the leader meanwhile: no more than all of it
    assert (looked(brokers, by=who).copied_bytes, looked(brokers, by=who).left_s) == ("1024", 0)


def test_a_throttle_that_is_left_behind_is_said() -> None:
    brokers = Copied()
    brokers.is_moving = False
    found = looked(brokers)
    assert found.is_left_behind
    assert [(each.broker, each.bytes_per_second) for each in found.throttle] == [(1, "1000"), (3, "2000")]
    assert any(each.kind == "moves" for each in overview(Asking(user(brokers), Site(Masks()), {})).attention)
    brokers.rates = {}
    found = looked(brokers)
    assert not found.throttle and not found.is_left_behind
    brokers.is_moving, brokers.rates = True, {1: 5}
    assert not looked(brokers).is_left_behind


def changed(brokers: Uneven) -> list[tuple[int, str, dict[str, str | None]]]:
    """Settings that were set (None: removed), and moves as kind 0, in order."""
    found: list[tuple[int, str, dict[str, str | None]]] = []
    for key, values in brokers.changes:
        if key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            found.append((0, "", {}))
            continue
        (each,) = values["resources"]
        rows = {row["name"].partition(".")[0]: row["value"] for row in each["configs"]}
        assert all((row["value"] is None) == (row["config_operation"] == 1) for row in each["configs"])
        found.append((each["resource_type"], each["resource_name"], rows))
    return found


def test_the_throttle_is_set_before_the_moves_begin() -> None:
    brokers = Copied()
    brokers.is_moving = False
    plan = planned(brokers, moves="a-b-1=2,3", throttle="1m")
    assert any("until it is removed" in each for each in plan.warnings)
    plan.run()
    assert changed(brokers) == [
        (2, "a-b", {"leader": "0:1,0:2,1:2,1:1", "follower": "*"}),
        *((4, str(node), {"leader": "1048576", "follower": "1048576"}) for node in (1, 2, 3)),
        (0, "", {}),
    ]
    assert "--throttle=20M" in planned(Uneven(), throttle="20M").command
    with pytest.raises(Exception, match="it must be bytes a second"):
        planned(Uneven(), throttle="fast")


def test_what_is_under_way_gets_a_throttle_and_loses_it() -> None:
    brokers = Copied()
    asked = Asking(user(brokers), Site(Masks()), BY_NAME["throttle-moves"].parse({"throttle": "5"}))
    BY_NAME["throttle-moves"].plan(asked).run()
    assert changed(brokers)[0] == (2, "a-b", {"leader": "0:1,0:2", "follower": "*"})
    brokers.changes.clear()
    plan = BY_NAME["remove-throttle"].plan(Asking(user(brokers), Site(Masks()), {}))
    assert "still being moved" in plan.warnings[0]
    assert [each.what for each in plan.changes] == ["rate of broker 1", "rate of broker 3", "throttled replicas of a-b"]
    plan.run()
    nothing = {"leader": None, "follower": None}
    assert changed(brokers) == [(4, "1", nothing), (4, "3", nothing), (2, "a-b", nothing)]
    brokers.rates, brokers.lists = {}, {}
    assert BY_NAME["remove-throttle"].plan(Asking(user(brokers), Site(Masks()), {})).blocked == "There is no throttle."
    brokers.is_moving = False
    with pytest.raises(Exception, match="Nothing is being moved"):
        BY_NAME["throttle-moves"].plan(asked)


def test_a_throttle_that_is_refused_moves_nothing() -> None:
    brokers = Copied()
    brokers.is_moving, brokers.code = False, ErrorCode.policy_violation
    with pytest.raises(Exception, match="nothing is moved, and the throttle may be set in part"):
        planned(brokers, moves="a-b-1=2,3", throttle="1M").run()
    assert all(kind for kind, *_ in changed(brokers))


class Partial(Copied):
    """A broker of which Metadata still tells has died."""

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        if node_id == 3:
            raise ConnectionRefusedError("connection refused")
        return super().ask(node_id, key, values)


def test_a_broker_that_is_away_hides_nothing_of_the_others() -> None:
    brokers = Partial()
    found = looked(brokers)
    assert [(each.broker, each.bytes_per_second) for each in found.throttle] == [(1, "1000")]
    assert (found.copied_bytes, found.bytes) == (None, None)  # the new replica is on the one that is away
    brokers.is_moving = False
    plan = BY_NAME["remove-throttle"].plan(Asking(user(brokers), Site(Masks()), {}))
    assert plan.warnings == [
        "Broker 3 is away: a throttle of its own stays until it is removed when the broker is back."
    ]
    plan.run()
    assert [(kind, name) for kind, name, _ in changed(brokers)] == [(4, "1"), (2, "a-b")]
    brokers.rates, brokers.lists = {}, {}
    blocked = BY_NAME["remove-throttle"].plan(Asking(user(brokers), Site(Masks()), {})).blocked
    assert blocked.startswith("There is no throttle. Broker 3 is away")


class Died(Uneven):
    """Broker 2, which leads every other partition, is named in Metadata and does not answer."""

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        if node_id == 2:
            raise ConnectionRefusedError("connection refused")
        return super().ask(node_id, key, values)


def test_a_broker_that_died_is_emptied() -> None:
    brokers = Died(3)
    plan = planned(brokers, how="empty", brokers="2")
    assert "3.0 KiB are copied" in plan.sentence  # the other copies tell the sizes
    plan.run()
    assert all(sorted(each) == [1, 3] for each in submitted(brokers).values())


def test_producers_of_the_leaders_that_answer_are_shown() -> None:
    page, asking = shown(Died(), "topic", {"topic": "a-b"})
    assert [each.producer_id for each in page.producers] == ["7"]
    assert "producers" in asking.problems


class Silent(Copied):
    """Partition 0 is copied to 2 and 3. Some nodes do not answer, or answer with an error."""

    def __init__(self, **failures: KafkaError | OSError) -> None:
        super().__init__()
        self.failures = {int(name.removeprefix("node")): error for name, error in failures.items()}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"partition_index": 0, "replicas": [1, 2, 3], "adding_replicas": [2, 3], "removing_replicas": []}
        return {"error_code": 0, "topics": [{"name": "a-b", "partitions": [row]}]}

    def ask(self, node_id: int, key: ApiKey, values: Mapping[str, Any]) -> dict[str, Any]:
        asks_one = key in (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS)
        if asks_one and node_id in self.failures:
            raise self.failures[node_id]
        return super().ask(node_id, key, values)


AWAY = NodeAway(3, "h:3: no answer in time")
ODD = KafkaError(ErrorCode.unknown_server_error, "broken")


@pytest.mark.parametrize("failure", [AWAY, ODD], ids=["away", "error"])
def test_a_node_that_says_nothing_hides_nothing_of_others(failure: KafkaError | OSError) -> None:
    """A broker that died while it got a copy counted as one that had copied nothing, an error of one hid all sizes, and
    neither was named."""
    asking = Asking(user(Silent(node3=failure)), Site(Masks()), {"page": 1})
    found = views.moves(asking)
    assert (found.rows[0].copied_bytes, found.rows[0].bytes) == ("1024", "1024")  # of node 2
    assert [(each.broker, each.bytes_per_second) for each in found.throttle] == [(1, "1000")]
    assert set(asking.problems) == {"sizes", "throttle"}
    why = "node 3: h:3: no answer in time" if failure is AWAY else "broken"
    assert all(why in each.sentence for each in asking.problems.values())


def test_every_node_that_is_away_is_named() -> None:
    both = {"node2": NodeAway(2, "h:2: refused"), "node3": AWAY}
    asking = Asking(user(Silent(**both)), Site(Masks()), {"page": 1})
    assert views.moves(asking).rows[0].bytes is None
    for each in ("sizes", "throttle"):
        assert "node 2: h:2: refused; node 3: h:3: no answer" in asking.problems[each].sentence
    asking = Asking(user(Silent(node1=ODD, **both)), Site(Masks()), {"page": 1})
    assert views.moves(asking).throttle == []
    assert "broken" in asking.problems["sizes"].sentence


def test_a_plan_says_whose_sizes_it_lacks() -> None:
    brokers = Silent(node3=AWAY)
    brokers.list_partition_reassignments = lambda values: {"error_code": 0, "topics": []}  # type: ignore[method-assign]
    assert any(each.startswith("Broker 3 did not say") for each in planned(brokers).warnings)


class Half(Copied):
    """Changes fail at node 3, or all moves."""

    def __init__(self, failure: OSError, of_moves: bool = False) -> None:
        super().__init__()
        self.is_moving, self.failure, self.of_moves = False, failure, of_moves

    def change(self, key: ApiKey, values: Mapping[str, Any], node_id: int | None = None) -> dict[str, Any]:
        if key == ApiKey.ALTER_PARTITION_REASSIGNMENTS if self.of_moves else node_id == 3:
            raise self.failure
        return super().change(key, values, node_id)


@pytest.mark.parametrize(
    ("failure", "of_moves", "said"),
    [
        (ConnectionError("h:3: refused"), False, "nothing is moved, and the throttle may be set in part"),
        (ConnectionError("h:3: refused"), True, "the throttle is set, and nothing is moved: h:3"),
        (Unanswered("h:3: no answer in time"), True, "the throttle is set; whether anything is moved is not known"),
    ],
)
def test_what_was_done_before_a_broker_went_away_is_said(failure: OSError, of_moves: bool, said: str) -> None:
    brokers = Half(failure, of_moves)
    with pytest.raises(Partly, match=said):
        planned(brokers, moves="a-b-1=2,3", throttle="1m").run()
    assert (0, "", {}) not in changed(brokers)


def test_a_throttle_of_moves_under_way_is_set_whole_or_said() -> None:
    brokers = Half(ConnectionError("h:3: refused"))
    brokers.is_moving = True
    asked = Asking(user(brokers), Site(Masks()), BY_NAME["throttle-moves"].parse({"throttle": "5"}))
    with pytest.raises(Partly, match="may be set in part"):
        BY_NAME["throttle-moves"].plan(asked).run()
    refused = Copied()
    refused.code = ErrorCode.policy_violation
    asked = Asking(user(refused), Site(Masks()), BY_NAME["throttle-moves"].parse({"throttle": "5"}))
    with pytest.raises(KafkaError):  # nothing was set
        BY_NAME["throttle-moves"].plan(asked).run()


def test_one_partition_is_moved_with_a_throttle() -> None:
    brokers = Copied()
    act = BY_NAME["move-partition"]
    values = {"topic": "a-b", "partition": "1", "replicas": "2,3", "throttle": "1m"}
    plan = act.plan(Asking(user(brokers), Site(Masks()), act.parse(values)))
    assert any("until it is removed" in each for each in plan.warnings)
    plan.run()
    assert changed(brokers) == [
        (2, "a-b", {"leader": "0:1,0:2,1:2,1:1", "follower": "*"}),
        *((4, str(node), {"leader": "1048576", "follower": "1048576"}) for node in (1, 2, 3)),
        (0, "", {}),
    ]
