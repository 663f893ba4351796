"""Subscriptions by regular expression: the coordinator resolves them against the topics there are, and remembers the
outcome in a record, so that members with the same pattern share it.

Resolving takes long where there are many topics, so the driver does it in pieces and brings the outcome back; a member
with a new pattern gets its partitions with a later heartbeat.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Generator, Mapping, Sequence

from ottla.coordinator.effects import Resolve
from ottla.coordinator.group.consumer.group import METADATA, PATTERN, ConsumerGroup, ResolvedPattern, Subscriptions
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.consumer.metadata_hash import group_hash
from ottla.coordinator.group.kind import REBALANCES
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.regular_expression import InvalidRegularExpression, RegularExpression
from ottla.protocol.schemas.records import ConsumerGroupMetadataValue, ConsumerGroupRegularExpressionValue

REFRESH_INTERVAL_MS_MIN: Millis = 10_000
"""Between two times that a group's patterns are resolved, however many topics are made meanwhile."""
MATCH_COST = 5
METADATA_REFRESH_INTERVAL_MS: Millis = 3_600_000
NONE = ResolvedPattern(frozenset(), 0, 0)


class Change(enum.Enum):
    NONE = 0
    UPDATED = 1
    """The member has another pattern, whose topics are not known yet."""
    RESOLVED = 2
    """The pattern has changed or was removed, and its topics are known."""


def update(
    state: GroupState, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: list[GroupRecord]
) -> tuple[Change, tuple[str, ...]]:
    """Look at the pattern of a member; returns what has changed and the patterns that are to be resolved now. Raises
    INVALID_REGULAR_EXPRESSION."""
    change, is_new = Change.NONE, False
    before, after = old.pattern, new.pattern
    if before != after:
        change = Change.UPDATED
        if before and group.patterns[before] == 1:
            records.append(GroupRecord(group.key(PATTERN, before), None))
        if after and not group.patterns[after]:
            _check(after)
            is_new = True
        elif (after and after in group.resolved) or (before and not after):
            change = Change.RESOLVED
    if not is_new and not group.patterns:
        return change, ()
    return change, _due(state, group, old, new, is_new)


def _check(pattern: str) -> None:
    try:
        RegularExpression(pattern)
    except InvalidRegularExpression as error:
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _due(
    state: GroupState, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, is_new: bool
) -> tuple[str, ...]:
    """All patterns of the group, if one is not resolved, if there are new topics, or if it was long ago."""
    if group.group_id in state.resolving:
        return ()
    last = next(iter(group.resolved.values()), None)
    now_ms = state.now.wall_ms
    if last is not None and now_ms <= last.timestamp_ms + REFRESH_INTERVAL_MS_MIN:
        return ()
    wanted = tuple(sorted(group.patterns_after(old, new)))
    is_due = (
        is_new
        or len(wanted) != len(group.resolved)
        or (0 if last is None else last.version) < state.new_topics_version
        or last is None
        or now_ms > last.timestamp_ms + state.config.consumer_regex_refresh_interval_ms
    )
    return wanted if is_due else ()


def request(state: GroupState, group_id: str, patterns: Sequence[str], visible: Container[str] | None) -> None:
    """Ask the driver for what they match among the topics that are visible; it calls `resolved`."""
    state.resolving.add(group_id)
    state.effects.append(Resolve(group_id, patterns, state.image, visible))


def resolve(
    patterns: Sequence[str], image: MetadataImage, visible: Container[str] | None = None
) -> Generator[int, None, dict[str, frozenset[str]]]:
    """The visible topics that each pattern matches; yields the cost of its steps."""
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        names = []
        expression = RegularExpression(pattern)
        for topic in image.topics:
            if expression.matches(topic.name) and (visible is None or topic.name in visible):
                names.append(topic.name)
            yield MATCH_COST
        found[pattern] = frozenset(names)
    return found


def resolved(
    state: GroupState,
    group_id: str,
    found: Mapping[str, frozenset[str]],
    version: int,
    timestamp_ms: Millis,
) -> None:
    """Write what patterns match in the metadata of `version`; other topics than before begin a new group epoch."""
    state.resolving.discard(group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return
    records: list[GroupRecord] = []
    bumps = False
    by_pattern = group.subscriptions.by_pattern.copy()
    for pattern, topics in found.items():
        if not group.patterns[pattern]:
            continue
        before = group.resolved.get(pattern, NONE).topics
        if before != topics:
            bumps = True
            by_pattern.subtract(before)
            by_pattern.update(topics)
        value = ConsumerGroupRegularExpressionValue(tuple(sorted(topics)), version, timestamp_ms)
        records.append(put(group.key(PATTERN, pattern), value))
    after = Subscriptions(group.subscriptions.by_name, +by_pattern)
    metadata_hash = group_hash(after.topics, state.image, state.topic_hashes)
    if bumps or metadata_hash != group.metadata_hash:
        epoch = group.epoch + 1
        records.append(put(group.key(METADATA), ConsumerGroupMetadataValue(epoch, metadata_hash)))
        state.observe(REBALANCES, group, "the topics that patterns match have changed")
        group.refresh_deadline_ms = state.now.wall_ms + METADATA_REFRESH_INTERVAL_MS
        group.refresh_epoch = epoch
    if records:
        state.apply(records)
