"""Metadata, versions 0-13: brokers, topics, where partitions are led (KIP-4, 36, 78, 112, 430, 516, 700, 1102).

Version 0 says "all topics" with an empty list, later ones with null. From version 12 on topics may be asked for by
id; if one id is given, names count for nothing. Topics that a client may not describe are missing where all are asked
for; by name they look the same whether they exist or not.

A missing topic is created if request and `auto.create.topics.enable` allow it. Kafka creates it in the background and
answers UNKNOWN_TOPIC_OR_PARTITION this time; here the creation is awaited, so that the answer has the topic already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.config.validation import validate_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.model import INTERNAL_TOPICS, ZERO_UUID, NodeId
from ottla.protocol.messages import ApiKey, encode_response_in_steps
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import EncodedResponse, Handling, RequestContext, api
from ottla.server.connections.long_answers import RowsOf
from ottla.server.metadata import topic_creation
from ottla.server.metadata.metadata_view import NO_CONTROLLER, OPERATIONS_NOT_ASKED, MetadataView
from ottla.server.security.authorization import (
    EVERYTHING,
    allowed,
    authorized_cluster_operations,
    authorized_operations,
)
from ottla.server.security.permissions import Refused, of_cluster, of_topics

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import MetadataRequest, MetadataRequestTopic

K = TypeVar("K")

_LISTENER_NOT_FOUND_SINCE = 6
_IDS_SINCE = 12


class Broker(NamedTuple):
    node_id: NodeId
    host: str
    port: int
    rack: str | None


class Partition(NamedTuple):
    error_code: ErrorCode
    partition_index: int
    leader_id: NodeId
    leader_epoch: int
    replica_nodes: tuple[NodeId, ...]
    isr_nodes: tuple[NodeId, ...]
    offline_replicas: tuple[NodeId, ...]


class Topic(NamedTuple):
    error_code: ErrorCode
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: Collection[Partition]
    topic_authorized_operations: int


class Topics:
    """Topics that are described when they are encoded."""

    def __init__(self, topics: Iterable[Topic], count: int) -> None:
        self._topics = topics
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics)


def on_error(context: RequestContext, request: MetadataRequest, error: KafkaError) -> Handling[EncodedResponse]:
    """The error on every topic of the request, and no brokers."""
    asked = request.topics or ()
    topics = (_failed(each.name or "", error.code, each.topic_id) for each in asked)
    return _encoded(
        context,
        brokers=(),
        cluster_id=None,
        controller_id=NO_CONTROLLER,
        topics=Topics(topics, len(asked)),
        cluster_authorized_operations=OPERATIONS_NOT_ASKED,
        error_code=error.code,
    )


def _encoded(context: RequestContext, **values: object) -> Generator[int, None, EncodedResponse]:
    version, correlation_id = context.api_version, context.correlation_id
    body = yield from encode_response_in_steps(ApiKey.METADATA, version, correlation_id, values)
    return EncodedResponse([body])


NEEDS: Final = (
    of_topics(Operation.DESCRIBE, "topics.name", when="where topics are named"),
    of_topics(Operation.DESCRIBE, "topics", when="where all are asked for", refused=Refused.OMITTED),
    of_topics(
        Operation.CREATE, "topics.name", when="to have missing topics created", instead=(Operation.CREATE,),
    ),
    of_cluster(
        Operation.DESCRIBE, when="for cluster_authorized_operations", refused=Refused.OMITTED, versions=(8, 10),
    ),
)  # fmt: skip


@api(ApiKey.METADATA, versions=(0, 13), needs=NEEDS, on_error=on_error)
def handle(context: RequestContext, request: MetadataRequest) -> Handling[EncodedResponse]:
    asked = request.topics
    image = context.node.image
    if asked is None or (not asked and context.api_version == 0):
        visible = allowed(context, Operation.DESCRIBE, log_denial=False)
        topics, _ = yield from _parted(image.topics, visible)
        return (yield from _response(context, request, image, [], topics, []))
    visible = allowed(context, Operation.DESCRIBE)
    ids: dict[UUID, None] = {}
    names: dict[str, None] = {}
    for topic in asked:
        topic_id = _checked_id(context, topic)
        if topic_id is not None:
            ids[topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
        yield 1
    if ids:
        known, unknown = yield from _known(ids, image.topic_by_id)
        found, hidden = yield from _parted(known, visible)
        denied = [_denied(None, topic.id) for topic in hidden]
        return (yield from _response(context, request, image, unknown, found, [], denied))
    denied = yield from _take_denied(names, visible)
    found, missing = yield from _known(names, image.topic)
    creates = context.node.config.auto_create_topics_enable and request.allow_auto_topic_creation
    if missing and creates:
        permitted = allowed(context, Operation.CREATE, on_cluster=Operation.CREATE)
        uncreatable = yield from _take_denied(names, permitted, missing)
        denied += [each._replace(is_internal=each.name in INTERNAL_TOPICS) for each in uncreatable]
        creatable = []
        for name in missing:
            if name in names and _name_error(name) is ErrorCode.unknown_topic_or_partition:
                creatable.append(name)
            yield 1
        if creatable:
            yield topic_creation.create(context, creatable)
            image = context.node.image
        found, missing = yield from _known(names, image.topic)
    return (yield from _response(context, request, image, [], found, missing, denied))


def _parted(
    topics: Iterable[TopicImage], visible: Container[str]
) -> Generator[int, None, tuple[Collection[TopicImage], Collection[TopicImage]]]:
    """The topics that the client may describe, and the others."""
    if visible is EVERYTHING:
        return list(topics), ()
    found: list[TopicImage] = []
    hidden: list[TopicImage] = []
    for topic in topics:
        (found if topic.name in visible else hidden).append(topic)
        yield 2
    return found, hidden


def _take_denied(
    names: dict[str, None], permitted: Container[str], some: Iterable[str] | None = None
) -> Generator[int, None, list[Topic]]:
    """Remove from `names` those (of `some`) that are not permitted; their rows."""
    denied: list[Topic] = []
    if permitted is EVERYTHING:
        return denied
    for name in [*names] if some is None else some:
        if name not in permitted:
            del names[name]
            denied.append(_denied(name, ZERO_UUID))
        yield 2
    return denied


def _denied(name: str | None, topic_id: UUID) -> Topic:
    return Topic(ErrorCode.topic_authorization_failed, name, topic_id, False, (), OPERATIONS_NOT_ASKED)


def _known(
    keys: Iterable[K], find: Callable[[K], TopicImage | None]
) -> Generator[int, None, tuple[list[TopicImage], list[K]]]:
    """The topics that are there, and the keys of others."""
    found, missing = [], []
    for key in keys:
        topic = find(key)
        if topic is None:
            missing.append(key)
        else:
            found.append(topic)
        yield 1
    return found, missing


def _checked_id(context: RequestContext, topic: MetadataRequestTopic) -> UUID | None:
    """The id by which a topic is asked for, None if it is by name. Raises KafkaError INVALID_REQUEST."""
    topic_id = topic.topic_id
    if context.api_version < _IDS_SINCE and topic_id != ZERO_UUID:
        why = f"Topic IDs are not supported in requests for version {context.api_version}"
        raise KafkaError(ErrorCode.invalid_request, why)
    if topic.name is None and (context.api_version < _IDS_SINCE or topic_id == ZERO_UUID):
        why = f"Topic name can not be null for version {context.api_version}"
        raise KafkaError(ErrorCode.invalid_request, why)
    return None if topic_id == ZERO_UUID else topic_id


def _response(
    context: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    unknown_ids: Collection[UUID],
    found: Collection[TopicImage],
    missing: Collection[str],
    denied: Collection[Topic] = (),
) -> Handling[EncodedResponse]:
    """The whole response shows one image, however long it takes."""
    placement = MetadataView(image, context.listener_name, context.node.lost, context.node.away)
    asked_operations = request.include_topic_authorized_operations

    def operations(name: str) -> int:
        return authorized_operations(context, ResourceType.TOPIC, name) if asked_operations else OPERATIONS_NOT_ASKED

    topics = _counted(
        context,
        chain(
            (_failed(None, ErrorCode.unknown_topic_id, topic_id) for topic_id in unknown_ids),
            (_topic(placement, topic, context.api_version, operations(topic.name)) for topic in found),
            (_failed(name, _name_error(name), ZERO_UUID, operations(name)) for name in missing),
            denied,
        ),
    )
    with_operations = request.include_cluster_authorized_operations
    return _encoded(
        context,
        brokers=[Broker(each.id, each.host, each.port, each.rack) for each in placement.listed()],
        cluster_id=context.node.cluster_id,
        controller_id=placement.controller_id(context.node.random),
        topics=Topics(topics, len(unknown_ids) + len(found) + len(missing) + len(denied)),
        cluster_authorized_operations=authorized_cluster_operations(context)
        if with_operations
        else OPERATIONS_NOT_ASKED,
    )


def _counted(context: RequestContext, topics: Iterable[Topic]) -> Iterator[Topic]:
    for each in topics:
        if each.error_code:
            context.count_error(each.error_code)
        yield each


def _topic(placement: MetadataView, topic: TopicImage, version: int, operations: int) -> Topic:
    alive, offline = placement.alive, placement.offline
    none = ErrorCode.none

    def described(numbered: tuple[int, PartitionRegistration]) -> Partition:
        number, each = numbered
        if each.leader in alive:
            found = Partition(none, number, each.leader, each.leader_epoch, each.replicas, each.isr, offline(each))
        else:
            found = _without_leader(placement, number, each, version)
        return _hide_unreachable(placement, found) if version == 0 else found

    partitions = RowsOf(list(topic.partitions.items()), described)
    return Topic(none, topic.name, topic.id, topic.name in INTERNAL_TOPICS, partitions, operations)


def _without_leader(placement: MetadataView, number: int, partition: PartitionRegistration, version: int) -> Partition:
    registered = partition.leader in placement.image.brokers and partition.leader not in placement.lost
    known = registered and version >= _LISTENER_NOT_FOUND_SINCE
    code = ErrorCode.listener_not_found if known else ErrorCode.leader_not_available
    offline = placement.offline(partition)
    return Partition(code, number, NO_LEADER, partition.leader_epoch, partition.replicas, partition.isr, offline)


def _hide_unreachable(placement: MetadataView, partition: Partition) -> Partition:
    """Version 0 has no list of replicas that are offline: they are left out, and the partition's error says so."""
    replicas = tuple(each for each in partition.replica_nodes if each in placement.alive)
    isr = tuple(each for each in partition.isr_nodes if each in placement.alive)
    code = partition.error_code
    if code is ErrorCode.none and (replicas, isr) != (partition.replica_nodes, partition.isr_nodes):
        code = ErrorCode.replica_not_available
    return partition._replace(error_code=code, replica_nodes=replicas, isr_nodes=isr)


def _failed(name: str | None, code: ErrorCode, topic_id: UUID, operations: int = OPERATIONS_NOT_ASKED) -> Topic:
    return Topic(code, name, topic_id, name in INTERNAL_TOPICS, (), operations)


def _name_error(name: str) -> ErrorCode:
    """Why a topic of this name is not there."""
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
