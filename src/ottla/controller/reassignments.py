"""Reassignments: a partition's replicas move to other brokers, or become more or fewer (KIP-455, KIP-860).

The new replicas are added first; once they are in sync, the change that says so takes the old ones away
(`PartitionChange`). A reassignment that needs no copy is over at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config.effective import EffectiveConfig
from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.controller.partition_change import Changes
from ottla.controller.placement import check_manual
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.metadata.replica_index import PARTITIONS_PER_STEP
from ottla.model import NodeId
from ottla.protocol.schemas.records import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


def is_reassigned(partition: PartitionRegistration) -> bool:
    return bool(partition.adding or partition.removing)


def alter_reassignments(
    image: MetadataImage, request: sent.AlterPartitionReassignmentsRequest, config: EffectiveConfig
) -> Steps[sent.AlterPartitionReassignmentsResponse]:
    """AlterPartitionReassignments: begin, replace or (without replicas) cancel. Each partition has its row."""
    changes = Changes(image, config)
    may_resize = request.get("allow_replication_factor_change", True)
    records: list[PartitionChangeRecord] = []
    topics: list[sent.ReassignableTopicResponse] = []
    count = 0
    for topic in request["topics"]:
        rows: list[sent.ReassignablePartitionResponse] = []
        for asked in topic["partitions"]:
            count += 1
            if count % ITEMS_PER_STEP == 0:
                yield
            row: sent.ReassignablePartitionResponse = {
                "partition_index": asked["partition_index"],
                "error_code": ErrorCode.none,
                "error_message": None,
            }
            try:
                record = _alter(changes, topic["name"], asked, may_resize=may_resize)
            except KafkaError as error:
                row["error_code"], row["error_message"] = error.code, error.message
            else:
                if record is not None:
                    records.append(record)
            rows.append(row)
        topics.append({"name": topic["name"], "partitions": rows})
    # To nothing Kafka answers with what the schema gives by itself.
    response: sent.AlterPartitionReassignmentsResponse = {
        "error_code": ErrorCode.none,
        "error_message": None if topics else "",
        "allow_replication_factor_change": may_resize or not topics,
        "responses": topics,
    }
    return Decision(response, records)


def _alter(
    changes: Changes, name: str, asked: sent.ReassignablePartition, *, may_resize: bool
) -> PartitionChangeRecord | None:
    number, replicas = asked["partition_index"], asked["replicas"]
    topic = changes.image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(number)
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{number}.")
    if replicas is None:
        return _cancel(changes, topic, number, partition)
    check_manual(changes.image, replicas, None)
    if not may_resize:
        _check_same_factor(partition, replicas)
    removing = sorted(set(partition.replicas) - set(replicas))
    change = changes.of(topic, number, partition)
    change.replicas = (*replicas, *removing)
    if removing:
        change.removing = removing
    if adding := sorted(set(replicas) - set(partition.replicas)):
        change.adding = adding
    return change.record()


def _check_same_factor(partition: PartitionRegistration, replicas: Sequence[NodeId]) -> None:
    """KIP-860. While a reassignment is under way, what counts is what it leads to."""
    now = len({*partition.replicas, *partition.adding}.difference(partition.removing))
    if len(replicas) != now:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {now} to {len(replicas)}",
        )


def _cancel(
    changes: Changes, topic: TopicImage, number: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    """Back to the replicas from before, if one of them is in sync or an unclean leader may be elected."""
    if not is_reassigned(partition):
        raise KafkaError(ErrorCode.no_reassignment_in_progress)
    replicas = [each for each in partition.replicas if each not in partition.adding]
    isr = [each for each in partition.isr if each not in partition.adding]
    if not replicas:
        why = "Invalid replica assignment: addingReplicas contains all replicas."
        raise KafkaError(ErrorCode.invalid_replica_assignment, why)
    if not isr:
        if not changes.rules(topic).unclean:
            raise KafkaError(
                ErrorCode.invalid_replica_assignment,
                f"Unable to revert partition assignment for {topic.name}:{number} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    change = changes.of(topic, number, partition).allow_unclean()
    change.isr, change.replicas, change.removing, change.adding = isr, replicas, (), ()
    return change.record()


def list_reassignments(
    image: MetadataImage, request: sent.ListPartitionReassignmentsRequest
) -> Steps[sent.ListPartitionReassignmentsResponse]:
    """ListPartitionReassignments: those under way, of all topics or of some partitions."""
    rows: list[sent.OngoingTopicReassignment] = []
    if request["topics"] is None:
        for count, topic in enumerate(image.topics, start=1):
            yield from _list(topic, topic.partitions, rows)
            if count % PARTITIONS_PER_STEP == 0:
                yield
    else:
        for asked in request["topics"]:
            found = image.topic(asked["name"])
            if found is not None:
                yield from _list(found, asked["partition_indexes"], rows)
    return Decision({"error_code": ErrorCode.none, "error_message": None, "topics": rows})


def _list(
    topic: TopicImage, numbers: Iterable[int], rows: list[sent.OngoingTopicReassignment]
) -> Generator[None, None, None]:
    found: list[sent.OngoingPartitionReassignment] = []
    for count, number in enumerate(numbers, start=1):
        partition = topic.partitions.get(number)
        if partition is not None and is_reassigned(partition):
            found.append(
                {
                    "partition_index": number,
                    "replicas": partition.replicas,
                    "adding_replicas": partition.adding,
                    "removing_replicas": partition.removing,
                }
            )
        if count % PARTITIONS_PER_STEP == 0:
            yield
    if found:
        rows.append({"name": topic.name, "partitions": found})
