"""Logs what a change of the metadata means, in an operator's words, and notes who is away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ottla.logs import fields
from ottla.metadata.image import ConfigResourceType

if TYPE_CHECKING:
    from ottla.drivers.metadata.away_brokers import AwayBrokers
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage
    from ottla.server.ports import WorkingNode

    class FollowingNode(WorkingNode, Protocol):
        """A node, for what follows its metadata."""

        away: AwayBrokers | None

        @property
        def serving(self) -> bool: ...


_LOG = logging.getLogger("ottla.controller")

EVENTS_MAX = 100
"""Topics of one change that are logged one by one; beyond, only how many more there are."""


def follow(node: FollowingNode, delta: MetadataDelta, image: MetadataImage) -> None:
    """Log a change, and note what few nodes have any use for: other brokers, and clients that are to push metrics."""
    follow_brokers(node, delta, image)
    if node.serving:  # the first change is all that there is
        log_changes(delta, image)
    if any(resource.type == ConfigResourceType.CLIENT_METRICS for resource in delta.configs):
        from ottla.server.clients.telemetry import telemetry_of

        telemetry_of(node)


def follow_brokers(node: FollowingNode, delta: MetadataDelta, image: MetadataImage) -> None:
    """Note which brokers are away, from the first other broker on."""
    if node.away is None:
        if len(image.brokers) == (node.node_id in image.brokers):
            return
        from ottla.drivers.metadata.away_brokers import AwayBrokers  # a node that is alone does without

        node.away = AwayBrokers(has_begun=delta.base.offset >= 0)
    node.away.apply(delta, image)


def log_changes(delta: MetadataDelta, image: MetadataImage) -> None:
    """One event for each topic that came, went or changed, and one for all leaders that changed."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    for gone in list(delta.deleted_topics.values())[:EVENTS_MAX]:
        _LOG.info("topic deleted", extra=fields(topic=gone.name, topic_id=gone.id, partitions=len(gone.partitions)))
    elected = without_leader = 0
    for number, topic in enumerate(delta.topics.values()):
        before = 0 if topic.base is None else len(topic.base.partitions)
        now = image.topic_by_id(topic.id)
        count = 0 if now is None else len(now.partitions)
        if number < EVENTS_MAX and count > before:
            event = "topic created" if topic.created else "partitions added"
            _LOG.info(event, extra=fields(topic=topic.name, topic_id=topic.id, partitions=count))
        for partition, registration in topic.changes.items():
            previous = topic.previous(partition)
            if previous is not None and previous.leader_epoch != registration.leader_epoch:
                elected += registration.leader >= 0
                without_leader += registration.leader < 0
    more = max(0, len(delta.topics) - EVENTS_MAX) + max(0, len(delta.deleted_topics) - EVENTS_MAX)
    if more:
        _LOG.info("more topics changed", extra=fields(topics=more))
    if elected or without_leader:
        _LOG.info("leaders elected", extra=fields(partitions=elected, without_leader=without_leader or None))
    for resource, changes in list(delta.configs.items())[:EVENTS_MAX]:
        kind = ConfigResourceType(resource.type).name.lower()
        # Values are left out: those of some settings are secrets.
        names = ",".join(sorted(changes))
        if resource.type != ConfigResourceType.TOPIC or image.topic(resource.name) is not None:
            _LOG.info("configuration changed", extra=fields(resource=kind, name=resource.name or None, settings=names))
