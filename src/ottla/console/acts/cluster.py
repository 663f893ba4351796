"""Acts on where partitions are: elect preferred leaders, move copies, cancel a move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.console.acts.act import Act, Change, Field, Partly, Plan, chosen, command, found_topic, plural, topic_page
from ottla.console.acts.throttles import SLOW, STAYS, THROTTLE, rate_of, throttled
from ottla.console.acts.topics import TIMEOUT_MS, TOPIC
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.brokers import ensure_none
from ottla.console.cluster import Partition, Topic
from ottla.console.moving.under_way import under_way
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey

_PREFERRED: Final = 0
REPLICAS_MAX: Final = 100
_NUMBER: Final = Field("partition", "The partition.", low=0, high=2**31 - 1, is_required=True, widget="number")


def elect(asking: Asking) -> Plan:
    name, number = asking.text("topic"), chosen(asking, "partition", -1)
    _, topic = found_topic(asking, name)
    every = [each for each in topic.partitions if number in (-1, each.number)]
    if not every:
        raise NotFound(f"Topic {name} has no partition {number}.")
    others = [each for each in every if each.replicas and each.leader != each.replicas[0]]

    def run() -> None:
        if not others:
            return
        rows = [{"topic": name, "partitions": [each.number for each in others]}]
        values = {"election_type": _PREFERRED, "topic_partitions": rows, "timeout": TIMEOUT_MS}
        answer = asking.brokers.change(ApiKey.ELECT_LEADERS, values)
        ensure_none(ApiKey.ELECT_LEADERS, answer, name)
        rows_of = [row for each in answer["replica_election_results"] for row in each["partition_result"]]
        _ensure_all(ApiKey.ELECT_LEADERS, rows_of, "partition_id", name)

    options = {"--partition": number} if number >= 0 else {}
    return Plan(
        f"{plural(len(others), 'partition')} of {name} get the preferred leader.",
        run,
        [
            Change(
                f"leader of partition {each.number}",
                str(each.leader) if each.leader >= 0 else None,
                str(each.replicas[0]),
            )
            for each in others
        ],
        command(asking, "topic elect", [name], options),
        [] if others else ["Each partition is led by its preferred leader already: nothing changes."],
        back=topic_page(name),
    )


def _ensure_all(key: ApiKey, rows: Sequence[Mapping[str, Any]], number: str, name: str) -> None:
    """Raises the error where all have one, Partly where some have."""
    failures = []
    for row in rows:
        if row["error_code"] == ErrorCode.election_not_needed:
            continue
        try:
            ensure_none(key, row, name)
        except KafkaError as error:
            failures.append((row[number], error))
    if failures and len(failures) == len(rows):
        raise failures[0][1]
    if failures:
        first, why = failures[0]
        raise Partly(f"{len(rows) - len(failures)} done, {len(failures)} not, the first is partition {first}: {why}")


def _partition(asking: Asking, topic: Topic) -> Partition:
    number = asking.number("partition")
    found = next((each for each in topic.partitions if each.number == number), None)
    if found is None:
        raise NotFound(f"Topic {topic.name} has no partition {number}.")
    return found


def reassign(asking: Asking) -> Plan:
    name = asking.text("topic")
    cluster, topic = found_topic(asking, name)
    partition = _partition(asking, topic)
    wanted, rate = _replicas(asking.text("replicas")), rate_of(asking)
    for each in wanted:
        if each not in cluster.nodes:
            raise Invalid(f"replicas has broker {each}, which is not up; known: {_list(list(cluster.nodes))}")
    gone = [each for each in partition.replicas if each not in wanted]
    added = [each for each in wanted if each not in partition.replicas]
    warnings = []
    if len(wanted) < len(partition.replicas):
        warnings.append(f"The partition has fewer copies then: {len(wanted)} and not {len(partition.replicas)}.")
    if rate is not None:
        warnings += [STAYS, SLOW]
    moving = {(name, partition.number): (partition.replicas, added)}
    note = " and ".join(
        [*([f"{_list(added)} gets a copy"] if added else []), *([f"{_list(gone)} deletes its own"] if gone else [])]
    )
    return Plan(
        f"Copies of {name}-{partition.number} move to brokers {_list(wanted)}.",
        lambda: throttled(asking, cluster, rate, moving, lambda: _alter(asking, name, partition.number, wanted)),
        [
            Change("copies", _list(partition.replicas), _list(wanted), note or "the order changes"),
            Change("preferred leader", str(partition.replicas[0]) if partition.replicas else None, str(wanted[0])),
        ],
        warnings=warnings,
        back=topic_page(name),
    )


def _replicas(text: str) -> list[int]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() and len(each) <= 9 for each in parts):
        raise Invalid("replicas must be ids of brokers, such as 1,2,3")
    found = [int(each) for each in parts]
    if len(set(found)) != len(found):
        raise Invalid("replicas names a broker twice")
    if len(found) > REPLICAS_MAX:
        raise Invalid(f"replicas names more than {REPLICAS_MAX} brokers")
    return found


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _alter(asking: Asking, name: str, number: int, replicas: Sequence[int] | None) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": number, "replicas": replicas}]}]
    values = {"topics": topics, "timeout": TIMEOUT_MS}
    answer = asking.brokers.change(ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
    ensure_none(ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer, name)
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            ensure_none(ApiKey.ALTER_PARTITION_REASSIGNMENTS, row, f"{name}-{number}")


def cancel(asking: Asking) -> Plan:
    name = asking.text("topic")
    _, topic = found_topic(asking, name)
    number = _partition(asking, topic).number
    row = under_way(asking.brokers, [{"name": name, "partition_indexes": [number]}]).get((name, number))
    if row is None:
        raise NotFound(f"No copy of {name}-{number} is being moved.")
    before = [each for each in row["replicas"] if each not in row["adding_replicas"]]
    return Plan(
        f"The move of {name}-{number} is canceled.",
        lambda: _alter(asking, name, number, None),
        [
            Change(
                "copies",
                _list(row["replicas"]),
                _list(before),
                f"copied so far on {_list(row['adding_replicas'])} is deleted" if row["adding_replicas"] else "",
            )
        ],
        back=topic_page(name),
    )


ACTS: Final = (
    Act("elect-leaders", "Elect preferred leaders", "Each partition is led by the first of its copies again.",
        "Alter on the cluster", elect,
        (TOPIC, Field("partition", "Only this partition.", low=0, high=2**31 - 1, widget="number")), "topic"),
    Act("move-partition", "Move a partition", "Which brokers have the copies of a partition.", "Alter on the cluster",
        reassign,
        (TOPIC, _NUMBER, Field("replicas", "Ids of brokers; the first is the preferred leader.", is_required=True,
                               hint="1,2,3", label="Brokers"), THROTTLE), "topic", is_direct=False),
    Act("cancel-move", "Cancel a move", "A move of a partition's copies that has not ended.",
        "Alter and Describe on the cluster", cancel, (TOPIC, _NUMBER), "topic", is_direct=False),
)  # fmt: skip
