"""Topics that are created because a client asked for them (Kafka's `AutoTopicCreationManager`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ottla.config.server import ServerConfig
from ottla.drivers.controller.controller_channel import THE_BROKER, Requester
from ottla.drivers.cooperative import scheduler_of
from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.server.api import RequestContext
    from ottla.server.ports import Controlled

TOPICS_AT_ONCE = 250

_UNSET = -1
"""Lets the controller put in num.partitions or default.replication.factor."""


def creatable(config: ServerConfig, name: str) -> dict[str, Any]:
    """A topic as CreateTopics wants it; an internal topic with the partitions and settings of its coordinator."""
    partitions, replicas, configs = _UNSET, _UNSET, _internal_configs(config, name)
    if name == OFFSETS_TOPIC:
        partitions = config.offsets_topic_num_partitions
        replicas = config.offsets_topic_replication_factor
    elif name == TRANSACTION_TOPIC:
        partitions = config.transaction_state_log_num_partitions
        replicas = config.transaction_state_log_replication_factor
    elif name == SHARE_STATE_TOPIC:
        partitions = config.share_coordinator_state_topic_num_partitions
        replicas = config.share_coordinator_state_topic_replication_factor
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [{"name": each, "value": value} for each, value in configs.items()],
    }


def _internal_configs(config: ServerConfig, name: str) -> Mapping[str, str]:
    """The settings that Kafka's coordinators give their topics."""
    if name == OFFSETS_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    if name == TRANSACTION_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_STATE_TOPIC:
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        }
    return {}


async def create(context: RequestContext, names: Collection[str]) -> None:
    """Create topics with the node's defaults, as the client. What cannot be created stays missing: the caller sees by
    the image."""
    requester = Requester(context.principal, context.client_host, context.client_id)
    await _create(context.node, names, requester)


async def create_own(node: Controlled, names: Collection[str]) -> None:
    """Create topics of coordinators, as the broker itself: clients need no permission for them."""
    await _create(node, names, THE_BROKER)


async def create_for_dead_letters(node: Controlled, name: str) -> None:
    """Create a topic for dead letters of share groups, as the broker itself (KIP-1191). Raises KafkaError."""
    configs = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
    topic = creatable(node.config, name)
    topic["configs"] = [{"name": each, "value": value} for each, value in configs.items()]
    request = {"topics": [topic], "timeout": node.config.request_timeout_ms, "validate_only": False}
    answer = await node.channel.send(ApiKey.CREATE_TOPICS, request, requester=THE_BROKER)
    for row in answer["topics"]:
        code = ErrorCode(row["error_code"])
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise KafkaError(code, row["error_message"])


async def _create(node: Controlled, names: Collection[str], requester: Requester) -> None:
    config = node.config
    topics = []
    for number, name in enumerate(names, start=1):
        topics.append(creatable(config, name))
        if number % TOPICS_AT_ONCE == 0:
            await scheduler_of(asyncio.get_running_loop()).next_slice()
    request = {
        "topics": topics,
        "timeout": config.request_timeout_ms,
        "validate_only": False,
    }
    try:
        await node.channel.send(ApiKey.CREATE_TOPICS, request, requester=requester)
    except KafkaError:  # the client asks again, as for any topic that is not there yet
        pass
