"""ElectLeaders (KIP-183, KIP-460), and what a controller does about leaders by itself from time to time: preferred ones
where they may lead again, unclean ones where the settings would rather lose records than wait (`PeriodicTask`)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.config.effective import EffectiveConfig
from ottla.controller.broker_partitions import CHANGES_PER_STEP
from ottla.controller.decision import Decision, Steps
from ottla.controller.partition_change import Changes, Election
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import DIRECTORY_LOST, NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.metadata.replay import changed_partition
from ottla.metadata.replica_index import PARTITIONS_PER_STEP
from ottla.protocol.schemas.records import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]

ELECTIONS_MAX = 1000
"""Elections in one decision that was not requested: requests come in between (`MAX_ELECTIONS_PER_IMBALANCE`)."""


class ElectionType(enum.IntEnum):
    """Numbered as in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    image: MetadataImage, request: sent.ElectLeadersRequest, config: EffectiveConfig
) -> Steps[sent.ElectLeadersResponse]:
    """ElectLeaders, for some partitions or, without any, for all that need it.

    Raises KafkaError INVALID_REQUEST for a type that is none.
    """
    asked = request["topic_partitions"]
    if asked is not None and not asked:
        return Decision({"error_code": ErrorCode.none, "replica_election_results": []})
    kind = request.get("election_type", ElectionType.PREFERRED)
    if kind not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {kind}")
    kind = ElectionType(kind)
    changes = Changes(image, config)
    records: list[PartitionChangeRecord] = []
    topics: list[sent.ReplicaElectionResult] = []
    wanted = _all(image) if asked is None else ((each["topic"], each["partitions"]) for each in asked)
    count = 0
    for name, numbers in wanted:
        rows: list[sent.ElectLeadersResponsePartitionResult] = []
        for number in numbers:
            count += 1
            if count % CHANGES_PER_STEP == 0:
                yield
            code, why = _elect(changes, name, number, kind, records)
            if asked is not None or code != ErrorCode.election_not_needed:
                rows.append({"partition_id": number, "error_code": code, "error_message": why})
        topics.append({"topic": name, "partition_result": rows})
    return Decision({"error_code": ErrorCode.none, "replica_election_results": topics}, records, atomic=False)


def _all(image: MetadataImage) -> Iterator[tuple[str, Iterable[int]]]:
    return ((topic.name, topic.partitions) for topic in image.topics)


def _elect(
    changes: Changes, name: str, number: int, kind: ElectionType, records: list[PartitionChangeRecord]
) -> tuple[ErrorCode, str | None]:
    """(error, message)"""
    topic = changes.image.topic(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    partition = topic.partitions.get(number)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{number}"
    is_preferred = kind is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER:
        return _NOT_NEEDED
    change = changes.of(topic, number, partition)
    change.election = Election.PREFERRED if is_preferred else Election.UNCLEAN
    record = change.record()
    found = [record] if record is not None else [] if is_preferred else _elect_lost(changes, topic, number, partition)
    if not found:
        return _NO_PREFERRED if is_preferred else _NO_ELIGIBLE
    records += found
    return ErrorCode.none, None


def _elect_lost(
    changes: Changes, topic: TopicImage, number: int, partition: PartitionRegistration
) -> list[PartitionChangeRecord]:
    """Elect a replica whose log is called lost, of a broker that lives: it was damaged, and given up for others that
    never came back. Nothing but such a request elects it, as it may have nothing."""
    placed = changes.of(topic, number, partition)
    for each in partition.replicas:
        broker = changes.image.brokers.get(each)
        if partition.directory(each) == DIRECTORY_LOST and broker is not None and broker.active:
            placed.directories[each] = changes.directory(each)
    first = placed.record() if placed.directories else None
    if first is None:
        return []
    change = changes.of(topic, number, changed_partition(partition, first))
    change.election = Election.UNCLEAN
    second = change.record()
    return [] if second is None else [first, second]


_NOT_NEEDED = ErrorCode.election_not_needed, "Leader election not needed for topic partition."
_NO_PREFERRED = ErrorCode.preferred_leader_not_available, "The preferred leader was not available."
_NO_ELIGIBLE = ErrorCode.eligible_leaders_not_available, "Eligible topic partition leaders are not available."


def balance_leaders(image: MetadataImage, config: EffectiveConfig) -> Steps[bool]:
    """Let preferred replicas lead where they can (`auto.leader.rebalance.enable`). The response: whether there may be
    more to do at once.

    As in Kafka with KRaft, every partition with another leader is looked at: no share of them per broker is tolerated.
    """
    changes = Changes(image, config)
    return (yield from _each(image, changes, _is_imbalanced, Election.PREFERRED))


def _is_imbalanced(partition: PartitionRegistration) -> bool:
    return partition.leader != partition.replicas[0]


def elect_unclean_leaders(image: MetadataImage, config: EffectiveConfig) -> Steps[bool]:
    """Elect whoever lives where nobody leads, in topics whose settings allow it. Response as in `balance_leaders`."""
    changes = Changes(image, config)
    return (yield from _each(image, changes, lambda each: each.leader == NO_LEADER, Election.UNCLEAN))


def _each(
    image: MetadataImage, changes: Changes, needs: Callable[[PartitionRegistration], bool], election: Election
) -> Steps[bool]:
    records: list[PartitionChangeRecord] = []
    count = 0
    for topic in image.topics:
        for number, partition in topic.partitions.items():
            count += 1
            if count % PARTITIONS_PER_STEP == 0:
                yield
            if not needs(partition) or (election is Election.UNCLEAN and not changes.rules(topic).unclean):
                continue
            change = changes.of(topic, number, partition)
            change.election = election
            record = change.record()
            if record is not None:
                records.append(record)
                if len(records) % CHANGES_PER_STEP == 0:
                    yield
                if len(records) == ELECTIONS_MAX:
                    return Decision(True, records, atomic=False)
    return Decision(False, records, atomic=False)
