"""Creation and deletion of topics and partitions (Kafka's `ControllerApis` and `ReplicationControlManager`).

Requests and responses are mappings with the names of the newest version of the API. Every topic of a request stands for
itself: what is wrong with one is said in its row of the response, and the others are done.
"""

from __future__ import annotations

import random as random_module
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.config.effective import EffectiveConfig
from ottla.config.validation import validate_topic_configs, validate_topic_name
from ottla.controller.decision import (
    ITEMS_PER_STEP,
    NAMES_PER_STEP,
    RECORDS_PER_DECISION_MAX,
    Decision,
    Permits,
    Steps,
    unlimited,
)
from ottla.controller.placement import check_manual, new_partition, place
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ConfigResourceType, MetadataImage, PartitionRegistration
from ottla.metadata.writer import partition_record
from ottla.model import METADATA_TOPIC, ZERO_UUID, NodeId, TopicId, random_uuid
from ottla.protocol.schemas.records import ConfigRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


def create_topics(
    image: MetadataImage,
    request: sent.CreateTopicsRequest,
    config: EffectiveConfig,
    random: random_module.Random,
    permits: Permits = unlimited,
) -> Steps[sent.CreateTopicsResponse]:
    """CreateTopics. `validate_only` answers as if it were done, without records.

    Raises KafkaError POLICY_VIOLATION for a request that is too large as a whole.
    """
    names = yield from _names(request["topics"])
    yield from _check_total(request, names, config.num_partitions)
    rows: list[sent.CreatableTopicResult] = []
    records: list[Any] = []
    collisions = _collisions(image, names)
    effective = _EffectiveConfigs(config)
    for index, topic in enumerate(request["topics"], start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        name = topic["name"]
        if names[name] > 1 or name == METADATA_TOPIC:
            continue
        try:
            row, created = _create_topic(image, topic, effective, random, collisions, permits)
        except KafkaError as error:
            rows.append(_failed(name, error))
            continue
        rows.append(row)
        records += created
    for name, count in names.items():
        if count > 1:
            rows.append(_failed(name, KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")))
        elif name == METADATA_TOPIC:
            why = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            rows.append(_failed(name, KafkaError(ErrorCode.invalid_request, why)))
    if len(records) > RECORDS_PER_DECISION_MAX:
        raise KafkaError(ErrorCode.policy_violation, "Unable to perform excessively large batch operation.")
    return Decision({"topics": rows}, () if request.get("validate_only") else records)


def _names(
    topics: Sequence[sent.CreatableTopic] | Sequence[sent.CreatePartitionsTopic],
) -> Generator[None, None, Counter[str]]:
    """How often each name is asked for."""
    names: Counter[str] = Counter()
    for start in range(0, len(topics), NAMES_PER_STEP):
        if start:
            yield
        names.update([topic["name"] for topic in topics[start : start + NAMES_PER_STEP]])
    return names


def _check_total(request: Request, names: Mapping[str, int], default: int) -> Generator[None, None, None]:
    """Before anything is made: thousands of partitions are a moment's work, millions would stall the node."""
    total = 0
    for index, topic in enumerate(request["topics"], start=1):
        if index % NAMES_PER_STEP == 0:
            yield
        if names[topic["name"]] > 1:
            continue
        asked = topic["num_partitions"]
        total += len(topic.get("assignments", ())) or (default if asked == -1 else max(asked, 0))
    if total > RECORDS_PER_DECISION_MAX:
        raise _too_many()


def _failed(name: str, error: KafkaError) -> sent.CreatableTopicResult:
    return {"name": name, "error_code": error.code, "error_message": error.message, "configs": ()}


def _too_many() -> KafkaError:
    return KafkaError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


def _unified(name: str) -> str:
    """Metric names replace dots by underscores, so that two topics must not differ by that alone."""
    return name.replace(".", "_")


def _collisions(image: MetadataImage, names: Mapping[str, int]) -> dict[str, str]:
    """Unified name to an existing topic of that unified name, where a name of the request has a dot or underscore."""
    if not any("." in name or "_" in name for name in names):
        return {}
    return {_unified(name): name for name in image.topics_by_name if "." in name or "_" in name}


def _create_topic(
    image: MetadataImage,
    topic: sent.CreatableTopic,
    effective: _EffectiveConfigs,
    random: random_module.Random,
    collisions: Mapping[str, str],
    permits: Permits,
) -> tuple[sent.CreatableTopicResult, list[Any]]:
    """(row of the response, records). Raises KafkaError."""
    name, config = topic["name"], effective.config
    if image.topic(name) is not None:
        raise KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    validate_topic_name(name)
    existing = collisions.get(_unified(name)) if "." in name or "_" in name else None
    if existing is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {existing}")
    configs = _creation_configs(topic, config)
    partitions = _new_partitions(image, topic, config, random)
    _take(permits, len(partitions))
    topic_id = random_uuid(random)
    records: list[Any] = [TopicRecord(name, topic_id)]
    records += [ConfigRecord(ConfigResourceType.TOPIC, name, key, value) for key, value in configs.items()]
    records += [partition_record(topic_id, number, each) for number, each in enumerate(partitions)]
    row: sent.CreatableTopicResult = {
        "name": name,
        "topic_id": topic_id,
        "num_partitions": len(partitions),
        "replication_factor": len(partitions[0].replicas),
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": effective.of(configs),
    }
    return row, records


def _take(permits: Permits, partitions: int) -> None:
    """Also for what is only validated. Raises KafkaError THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
    if not permits(partitions):
        raise KafkaError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")


class _EffectiveConfigs:
    """The settings that new topics have, as CreateTopics answers them; topics with the same ones share a list."""

    def __init__(self, config: EffectiveConfig) -> None:
        self.config = config
        self._known: dict[frozenset[tuple[str, str]], list[sent.CreatableTopicConfigs]] = {}

    def of(self, configs: Mapping[str, str]) -> list[sent.CreatableTopicConfigs]:
        """The settings as they were given, not as they are interpreted: Kafka's answer to DescribeConfigs differs
        there."""
        key = frozenset(configs.items())
        found = self._known.get(key)
        if found is None:
            from ottla.config.describe import topic_entries  # a start makes no topics

            found = self._known[key] = [
                {
                    "name": entry["name"],
                    "value": configs.get(entry["name"], entry["value"]),
                    "read_only": entry["read_only"],
                    "config_source": entry["config_source"],
                    "is_sensitive": entry["is_sensitive"],
                }
                for entry in sorted(topic_entries(self.config, configs), key=lambda entry: entry["name"])
            ]
        return found


def _creation_configs(topic: sent.CreatableTopic, config: EffectiveConfig) -> dict[str, str]:
    given = {entry["name"]: value for entry in topic.get("configs", ()) if (value := entry["value"]) is not None}
    nulls = [entry["name"] for entry in topic.get("configs", ()) if entry["value"] is None]
    if nulls:
        raise KafkaError(ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(nulls)}")
    if given:
        validate_topic_configs(given, config.topic_defaults())
    return given


def _new_partitions(
    image: MetadataImage, topic: sent.CreatableTopic, config: EffectiveConfig, random: random_module.Random
) -> list[PartitionRegistration]:
    count, factor = topic["num_partitions"], topic["replication_factor"]
    if topic.get("assignments"):
        return _assigned_partitions(image, topic["assignments"], count, factor)
    if count > RECORDS_PER_DECISION_MAX:
        raise _too_many()
    if factor < -1 or factor == 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise KafkaError(ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value.")
    count = config.num_partitions if count == -1 else count
    factor = config.default_replication_factor if factor == -1 else factor
    try:
        placed = place(image, count, factor, random)
    except KafkaError as error:
        why = f"Unable to replicate the partition {factor} time(s): {error.message}"
        raise KafkaError(error.code, why) from error
    return list(_led(image, placed, factor))


def _led(image: MetadataImage, placed: Sequence[Sequence[NodeId]], factor: int) -> Iterator[PartitionRegistration]:
    """First states of partitions. One of them serves all that have the same replicas, since it never changes."""
    known: dict[tuple[NodeId, ...], PartitionRegistration | None] = {}
    for replicas in placed:
        key = tuple(replicas)
        if key not in known:
            known[key] = new_partition(image, key)
        partition = known[key]
        if partition is None:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"Unable to replicate the partition {factor} time(s): "
                "All brokers are currently fenced or in controlled shutdown.",
            )
        yield partition


def _assigned_partitions(
    image: MetadataImage, assignments: Sequence[Request], count: int, factor: int
) -> list[PartitionRegistration]:
    """Partitions whose replicas the client chose."""
    for value, what in ((factor, "replication factor"), (count, "numPartitions")):
        if value != -1:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    partitions: dict[int, PartitionRegistration] = {}
    replicas_each: int | None = None
    for assignment in assignments:
        number, replicas = assignment["partition_index"], assignment["broker_ids"]
        if number in partitions:
            raise _assignment(f"Found multiple manual partition assignments for partition {number}")
        check_manual(image, replicas, replicas_each)
        replicas_each = len(replicas)
        partitions[number] = _manual(image, number, replicas)
    if any(number not in partitions for number in range(len(partitions))):
        raise _assignment("partitions should be a consecutive 0-based integer sequence")
    return [partitions[number] for number in range(len(partitions))]


def _manual(image: MetadataImage, number: int, replicas: Sequence[NodeId]) -> PartitionRegistration:
    partition = new_partition(image, replicas)
    if partition is None:
        raise _assignment(
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown."
        )
    return partition


def _assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, message)


def create_partitions(
    image: MetadataImage,
    request: sent.CreatePartitionsRequest,
    random: random_module.Random,
    permits: Permits = unlimited,
) -> Steps[sent.CreatePartitionsResponse]:
    """CreatePartitions: `count` is the total to reach; existing partitions stay where they are."""
    names = yield from _names(request["topics"])
    rows: list[sent.CreatePartitionsTopicResult] = []
    records: list[Any] = []
    for name, count in names.items():
        if count > 1:
            error = KafkaError(ErrorCode.invalid_request, "Duplicate topic name.")
            rows.append({"name": name, "error_code": error.code, "error_message": error.message})
    for index, topic in enumerate(request["topics"], start=1):
        if index % ITEMS_PER_STEP == 0:
            yield
        if names[topic["name"]] > 1:
            continue
        row: sent.CreatePartitionsTopicResult = {"name": topic["name"], "error_message": None}
        try:
            created = _add_partitions(image, topic, random, permits)
            if len(records) + len(created) > RECORDS_PER_DECISION_MAX:
                raise _too_many()
            records += created
        except KafkaError as error:
            row["error_code"], row["error_message"] = error.code, error.message
        rows.append(row)
    return Decision({"results": rows}, () if request.get("validate_only") else records)


def _add_partitions(
    image: MetadataImage, request: sent.CreatePartitionsTopic, random: random_module.Random, permits: Permits
) -> list[Any]:
    name, count, assignments = request["name"], request["count"], request.get("assignments")
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    have = len(topic.partitions)
    if count == have:
        raise KafkaError(ErrorCode.invalid_partitions, f"Topic already has {have} partition(s).")
    if count < have:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"The topic {name} currently has {have} partition(s); {count} would not be an increase.",
        )
    additional = count - have
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        if additional > RECORDS_PER_DECISION_MAX:
            raise _too_many()
        _take(permits, additional)
        partitions = list(_led(image, place(image, additional, factor, random), factor))
    else:
        if len(assignments) != additional:
            raise _assignment(
                f"Attempted to add {additional} additional partition(s), but only {len(assignments)} assignment(s) "
                "were specified."
            )
        _take(permits, additional)
        partitions = []
        for number, assignment in enumerate(assignments, start=have):
            check_manual(image, assignment["broker_ids"], factor)
            partitions.append(_manual(image, number, assignment["broker_ids"]))
    return [partition_record(topic.id, number, each) for number, each in enumerate(partitions, start=have)]


def delete_topics(
    image: MetadataImage, request: sent.DeleteTopicsRequest, config: EffectiveConfig, permits: Permits = unlimited
) -> Decision[sent.DeleteTopicsResponse]:
    """DeleteTopics by `topics` (name or id) or, before version 6, by `topic_names`.

    Raises KafkaError TOPIC_DELETION_DISABLED. Rows come in the order of the request; Kafka shuffles them so that their
    order says nothing about topics that a client may not see.
    """
    if not config.delete_topic_enable:
        raise KafkaError(ErrorCode.topic_deletion_disabled)
    rows: list[sent.DeletableTopicResult] = []
    records: list[Any] = []
    by_name: list[str] = list(request.get("topic_names", ()))
    by_id: list[TopicId] = []
    for topic in request.get("topics", ()):
        name, topic_id = topic["name"], topic["topic_id"] or ZERO_UUID
        if name is not None and topic_id != ZERO_UUID:
            rows.append(_not_deleted(name, topic_id, "You may not specify both topic name and topic id."))
        elif name is not None:
            by_name.append(name)
        elif topic_id != ZERO_UUID:
            by_id.append(topic_id)
        else:
            rows.append(_not_deleted(None, ZERO_UUID, "Neither topic name nor id were specified."))
    found: dict[TopicId, str | None] = {}
    for topic_id, count in Counter(by_id).items():
        image_topic = image.topic_by_id(topic_id)
        if count > 1:
            rows.append(_not_deleted(None, topic_id, "Duplicate topic id."))
        elif image_topic is None:
            rows.append(_row(None, topic_id, ErrorCode.unknown_topic_id, "This server does not host this topic ID."))
        else:
            found[topic_id] = image_topic.name
    for name, count in Counter(by_name).items():
        image_topic = image.topic(name)
        if count > 1:
            rows.append(_not_deleted(name, ZERO_UUID, "Duplicate topic name."))
        elif image_topic is None:
            why = "This server does not host this topic-partition."
            rows.append(_row(name, ZERO_UUID, ErrorCode.unknown_topic_or_partition, why))
        elif image_topic.id in by_id:
            found.pop(image_topic.id, None)
            why = "The provided topic name maps to an ID that was already supplied."
            rows.append(_not_deleted(name, image_topic.id, why))
        else:
            found[image_topic.id] = name
    for topic_id, name in found.items():
        try:
            _take(permits, len(image.topic_by_id(topic_id).partitions))  # type: ignore[union-attr]
        except KafkaError as error:
            rows.append(_row(name, topic_id, error.code, error.message))
            continue
        rows.append(_row(name, topic_id))
        records.append(RemoveTopicRecord(topic_id))
    return Decision({"responses": rows}, records)


def _row(
    name: str | None, topic_id: TopicId, code: ErrorCode = ErrorCode.none, message: str | None = None
) -> sent.DeletableTopicResult:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}


def _not_deleted(name: str | None, topic_id: TopicId, message: str) -> sent.DeletableTopicResult:
    return _row(name, topic_id, ErrorCode.invalid_request, message)
