"""Acts on topics: create, configure, add partitions, delete records, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from ottla.console.acts.act import (
    PINNED_MAX,
    PLACES_MAX,
    Act,
    Change,
    Field,
    Partly,
    Plan,
    chosen,
    command,
    found_topic,
    pairs,
    pinned_places,
    places_of,
    plural,
    topic_page,
)
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.brokers import ensure_none
from ottla.console.cluster import EARLIEST, LATEST, Cluster, Topic, leader_of, places, read_offsets
from ottla.errors import KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.protocol.messages import ApiKey

TIMEOUT_MS: Final = 9_000
"""How long a broker may wait for the change; the console itself waits a second longer."""
PARTITIONS_MAX: Final = 100_000
TOPIC: Final = Field("topic", "A topic's name.", is_required=True, label="Topic")


def create(asking: Asking) -> Plan:
    name, settings = asking.text("topic"), pairs(asking.text("settings"), "settings")
    count, copies = chosen(asking, "partitions", -1), chosen(asking, "copies", -1)
    row = {
        "name": name,
        "num_partitions": count,
        "replication_factor": copies,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in settings.items()],
    }

    def ask(validate_only: bool) -> None:
        values = {"topics": [row], "timeout": TIMEOUT_MS, "validate_only": validate_only}
        for each in asking.brokers.change(ApiKey.CREATE_TOPICS, values)["topics"]:
            ensure_none(ApiKey.CREATE_TOPICS, each, name)

    changes = [
        Change("partitions", None, str(count) if count > 0 else "the brokers' default"),
        Change("copies", None, str(copies) if copies > 0 else "the brokers' default"),
        *(Change(key, None, value) for key, value in settings.items()),
    ]
    options: dict[str, Any] = {}
    options |= {"--partitions": count} if count > 0 else {}
    options |= {"--replication-factor": copies} if copies > 0 else {}
    options |= {"--set": [f"{key}={value}" for key, value in settings.items()]} if settings else {}
    return Plan(
        f"Topic {name} is created.",
        lambda: ask(False),
        changes,
        command(asking, "topic create", [name], options),
        check=lambda: ask(True),
        back=topic_page(name),
    )


def add_partitions(asking: Asking) -> Plan:
    name, count = asking.text("topic"), asking.number("partitions")
    _, topic = found_topic(asking, name)

    def ask(validate_only: bool) -> None:
        rows = [{"name": name, "count": count, "assignments": None}]
        values = {"topics": rows, "timeout": TIMEOUT_MS, "validate_only": validate_only}
        for each in asking.brokers.change(ApiKey.CREATE_PARTITIONS, values)["results"]:
            ensure_none(ApiKey.CREATE_PARTITIONS, each, name)

    has = len(topic.partitions)
    return Plan(
        f"Topic {name} has {plural(count, 'partition')}.",
        lambda: ask(False),
        [Change("partitions", str(has), str(count))],
        command(asking, "topic alter", [name], {"--partitions": count}),
        [
            "Keys go to other partitions from then on, so records of one key are no longer in one order. Partitions are "
            "never taken away again."
        ],
        "" if count > has else f"The topic has {plural(has, 'partition')}: it can only get more.",
        lambda: ask(True),
        back=topic_page(name),
    )


# Records


def delete_records(asking: Asking) -> Plan:
    name, before = asking.text("topic"), asking.text("before")
    cluster, topic = found_topic(asking, name)
    wanted = _numbers(asking, topic)
    begins = read_offsets(asking.brokers, cluster, dict.fromkeys(wanted, EARLIEST))
    ends = read_offsets(asking.brokers, cluster, dict.fromkeys(wanted, LATEST))
    for error in [*begins.failures.values(), *ends.failures.values()]:
        raise error
    targets = _targets(name, before, ends.found)
    changes, moved = [], {}
    for at in wanted:
        begin, end, target = begins.found[at], ends.found[at], targets.get(at, -1)
        if target > end:
            raise Invalid(f"partition {at.partition} ends at offset {end}, before {target}")
        if target > begin:
            moved[at] = target
            note = f"up to {plural(target - begin, 'record')} deleted"
            changes.append(Change(f"first offset of partition {at.partition}", str(begin), str(target), note))
    return Plan(
        f"Records of {name} before these offsets are deleted.",
        lambda: _delete(asking, cluster, moved),
        changes,
        warnings=[] if moved else ["There is no record before that: nothing changes."],
        pinned={"before": pinned_places({(at.topic, at.partition): offset for at, offset in targets.items()})},
        back=topic_page(name),
    )


def _numbers(asking: Asking, topic: Topic) -> list[TopicPartition]:
    every = places([topic])
    number = chosen(asking, "partition", -1)
    if number >= 0:
        every = [at for at in every if at.partition == number]
        if not every:
            raise NotFound(f"Topic {topic.name} has no partition {number}.")
    if len(every) > PLACES_MAX:
        raise Invalid(f"the topic has more than {PLACES_MAX} partitions: choose one")
    return every


def _targets(name: str, before: str, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if before == "end":
        return dict(ends)
    if before.isascii() and before.isdecimal() and len(before) <= 18:
        return dict.fromkeys(ends, int(before))
    if ":" not in before:
        raise Invalid("before must be an offset, or end for all records")
    found = {TopicPartition(*place): offset for place, offset in places_of(before, "before").items()}
    for at in found:
        if at not in ends:
            raise Invalid(f"before names {at.topic[:100]}-{at.partition}, which is not meant")
    return found


def _delete(asking: Asking, cluster: Cluster, moved: Mapping[TopicPartition, int]) -> None:
    by_leader: dict[int, list[dict[str, int]]] = {}
    for at, offset in moved.items():
        row = {"partition_index": at.partition, "offset": offset}
        by_leader.setdefault(leader_of(cluster, at), []).append(row)
    done = 0
    failures: list[tuple[int, KafkaError | OSError]] = []
    for node, rows in by_leader.items():
        name = next(iter(moved)).topic
        values = {"topics": [{"name": name, "partitions": rows}], "timeout": TIMEOUT_MS}
        try:
            answer = asking.brokers.change(ApiKey.DELETE_RECORDS, values, node)
        except (KafkaError, OSError) as error:
            failures.append((rows[0]["partition_index"], error))
            continue
        for told in answer["topics"][0]["partitions"]:
            try:
                ensure_none(ApiKey.DELETE_RECORDS, told, name)
                done += 1
            except KafkaError as error:
                failures.append((told["partition_index"], error))
    if failures and not done:
        raise failures[0][1]
    if failures:
        number, first = failures[0]
        raise Partly(f"{plural(done, 'partition')} done, {len(failures)} not, the first is partition {number}: {first}")


def delete(asking: Asking) -> Plan:
    name = asking.text("topic")
    cluster, topic = found_topic(asking, name)
    every = places([topic])[:PLACES_MAX]
    begins = read_offsets(asking.brokers, cluster, dict.fromkeys(every, EARLIEST)).found
    ends = read_offsets(asking.brokers, cluster, dict.fromkeys(every, LATEST)).found
    records = sum(ends[at] - begins[at] for at in ends if at in begins)
    given = asking.text("id")
    if given and given != str(topic.id):
        raise NotFound(f"Topic {name} was deleted and created again since this page was shown: look at the new one.")

    def run() -> None:
        by_id = topic.id != ZERO_UUID  # so that one that is created under the name meanwhile stays
        row = {"name": None if by_id else name, "topic_id": topic.id if by_id else UUID(int=0)}
        values = {"topics": [row], "timeout": TIMEOUT_MS}
        for each in asking.brokers.change(ApiKey.DELETE_TOPICS, values)["responses"]:
            ensure_none(ApiKey.DELETE_TOPICS, each, name)

    return Plan(
        f"Topic {name} is deleted, with every record in it.",
        run,
        [Change("partitions", str(len(topic.partitions)), None), Change("records, at most", f"{records:,}", None)],
        command(asking, "topic delete", [name]),
        ["Nothing brings the records back. Groups keep the offsets that they committed, until they expire."],
        "Internal topics hold the state of groups and transactions, and are not deleted here."
        if topic.is_internal
        else "",
        pinned={"id": str(topic.id)},
        back=("/topics", "Topics"),
    )


ACTS: Final = (
    Act("create-topic", "Create a topic", "A new topic.", "Create on the topic or on the cluster", create,
        (TOPIC,
         Field("partitions", "Partitions; the brokers' num.partitions if left out.", low=1, high=PARTITIONS_MAX,
               widget="number"),
         Field("copies", "Copies of each partition; the brokers' default.replication.factor if left out.", low=1,
               high=2**15 - 1, widget="number"),
         Field("settings", "Settings, as NAME=VALUE on each line.", widget="area", length_max=8_000,
               hint="retention.ms=604800000")), "topics"),
    Act("add-partitions", "Add partitions", "More partitions for a topic.", "Alter on the topic", add_partitions,
        (TOPIC, Field("partitions", "The new number of partitions.", low=1, high=PARTITIONS_MAX, is_required=True,
                      widget="number")), "topic"),
    Act("delete-records", "Delete records", "The oldest records of a topic, or all of them.", "Delete on the topic",
        delete_records,
        (TOPIC, Field("partition", "Only this partition.", low=0, high=2**31 - 1, widget="number"),
         Field("before", "The first offset that is kept; end deletes all. A preview pins TOPIC:PARTITION:OFFSET,...",
               is_required=True, length_max=PINNED_MAX, hint="an offset, or end", label="Before")),
        "topic", confirm="topic", body_max=4 * PINNED_MAX),
    Act("delete-topic", "Delete the topic", "A topic and every record in it.", "Delete on the topic", delete,
        (TOPIC, Field("id", "The topic's id, so that no other of the same name is deleted.", widget="hidden")),
        "topic", confirm="topic"),
)  # fmt: skip
