"""Metadata, versions 0-13: brokers, topics, where partitions are led (KIP-4, 36, 78, 112, 430, 516, 700, 1102).

Version 0 says "all topics" with an empty list, later ones with null. From version 12 on topics may be asked for by
id; if one id is given, names count for nothing. Without authorization, clients may do everything.

A missing topic is created if request and `auto.create.topics.enable` allow it. Kafka creates it in the background and
answers UNKNOWN_TOPIC_OR_PARTITION this time; here the creation is awaited, so that the answer has the topic already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from ottla.config.validation import validate_topic_name
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import NO_LEADER, MetadataImage, TopicImage
from ottla.model import INTERNAL_TOPICS, ZERO_UUID
from ottla.protocol.messages import ApiKey
from ottla.server import topic_creation
from ottla.server.api import RequestContext, Response, api
from ottla.server.placement import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS, Placement

Topic = dict[str, Any]

_LISTENER_NOT_FOUND_SINCE = 6
_IDS_SINCE = 12


def on_error(context: RequestContext, request: Any, error: KafkaError) -> Response:
    """The error on every topic of the request, and no brokers."""
    topics = [_failed(topic.name or "", error.code, getattr(topic, "topic_id", None)) for topic in request.topics or ()]
    return {"controller_id": -1, "cluster_id": None, "topics": topics, "error_code": error.code}


@api(ApiKey.METADATA, versions=(0, 13), on_error=on_error)
def handle(context: RequestContext, request: Any) -> Response | Awaitable[Response]:
    asked = request.topics
    image = context.node.image
    if asked is None or (not asked and context.api_version == 0):
        return _response(context, request, image, [], image.topics_by_name.values(), [])
    ids = dict.fromkeys(topic_id for topic in asked if (topic_id := _checked_id(context, topic)) is not None)
    if ids:
        found = [topic for topic_id in ids if (topic := image.topic_by_id(topic_id)) is not None]
        unknown = [topic_id for topic_id in ids if image.topic_by_id(topic_id) is None]
        return _response(context, request, image, unknown, found, [])
    names = dict.fromkeys(topic.name for topic in asked)
    missing = [name for name in names if image.topic(name) is None]
    if missing and getattr(request, "allow_auto_topic_creation", True):
        creatable = [name for name in missing if _name_error(name) is ErrorCode.unknown_topic_or_partition]
        if creatable and context.node.config["auto.create.topics.enable"]:
            return _create_and_answer(context, request, names, creatable)
    return _by_name(context, request, names)


def _checked_id(context: RequestContext, topic: Any) -> Any:
    """The id by which a topic is asked for, None if it is by name. Raises KafkaError INVALID_REQUEST."""
    topic_id = getattr(topic, "topic_id", None)
    if context.api_version < _IDS_SINCE and topic_id not in (None, ZERO_UUID):
        why = f"Topic IDs are not supported in requests for version {context.api_version}"
        raise KafkaError(ErrorCode.invalid_request, why)
    if topic.name is None and (context.api_version < _IDS_SINCE or topic_id in (None, ZERO_UUID)):
        why = f"Topic name can not be null for version {context.api_version}"
        raise KafkaError(ErrorCode.invalid_request, why)
    return None if topic_id == ZERO_UUID else topic_id


async def _create_and_answer(
    context: RequestContext, request: Any, names: Iterable[str], creatable: list[str]
) -> Response:
    await topic_creation.create(context, creatable)
    return _by_name(context, request, names)


def _by_name(context: RequestContext, request: Any, names: Iterable[str]) -> Response:
    image = context.node.image
    found = [topic for name in names if (topic := image.topic(name)) is not None]
    missing = [name for name in names if image.topic(name) is None]
    return _response(context, request, image, [], found, missing)


def _response(
    context: RequestContext,
    request: Any,
    image: MetadataImage,
    unknown_ids: Iterable[Any],
    found: Iterable[TopicImage],
    missing: Iterable[str],
) -> Response:
    version = context.api_version
    placement = Placement(image, context.listener_name)
    topics = [_failed(None, ErrorCode.unknown_topic_id, topic_id) for topic_id in unknown_ids]
    named = [_topic(placement, topic, version) for topic in found]
    named += [_failed(name, _name_error(name), None) for name in missing]
    if getattr(request, "include_topic_authorized_operations", False):
        for topic in named:
            topic["topic_authorized_operations"] = TOPIC_OPERATIONS
    with_operations = getattr(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": each.id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in placement.alive.values()
        ],
        "cluster_id": context.node.cluster_id,
        "controller_id": placement.controller_id(context.node.random),
        "topics": topics + named,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if with_operations else OPERATIONS_NOT_ASKED,
    }


def _topic(placement: Placement, topic: TopicImage, version: int) -> Topic:
    partitions = [placement.partition(number, each) for number, each in topic.partitions.items()]
    for answer, registration in zip(partitions, topic.partitions.values(), strict=True):
        if answer["leader_id"] == NO_LEADER:
            known = registration.leader in placement.image.brokers and version >= _LISTENER_NOT_FOUND_SINCE
            answer["error_code"] = ErrorCode.listener_not_found if known else ErrorCode.leader_not_available
        if version == 0:
            _hide_unreachable(placement, answer)
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
    }


def _hide_unreachable(placement: Placement, answer: dict[str, Any]) -> None:
    """Version 0 has no list of brokers that are down: such replicas are left out, and the partition says so."""
    for field in ("replica_nodes", "isr_nodes"):
        reachable = [replica for replica in answer[field] if replica in placement.alive]
        if len(reachable) < len(answer[field]):
            answer.setdefault("error_code", ErrorCode.replica_not_available)
            answer[field] = reachable


def _failed(name: str | None, code: ErrorCode, topic_id: Any) -> Topic:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _name_error(name: str) -> ErrorCode:
    """Why a topic of this name is not there."""
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.unknown_topic_or_partition
