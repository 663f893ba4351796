"""A driver for `GroupShard` with a log in memory and a clock that only moves when told to."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import (
    OUTSIDE,
    WRITE_ERRORS,
    Effect,
    InitializeShares,
    Marker,
    Now,
    Reply,
    Resolve,
    Write,
)
from ottla.coordinator.group.classic import membership
from ottla.coordinator.group.consumer.patterns import resolve, resolved
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.protocol.internal.group_records import GroupRecord, decode_record, encode_key, encode_value
from ottla.steps import at_once

WALL_START_MS = 1_700_000_000_000


class CountingRandom(random.Random):
    """Member ids in the order in which they were made."""

    count = 0

    def getrandbits(self, k: int, /) -> int:
        self.count += 1
        return self.count


@dataclass
class SimulatedDriver:
    """Commits every write at once, unless `holding`, or refuses it with `next_failure`."""

    config: GroupConfig = field(default_factory=GroupConfig)
    log: list[list[GroupRecord]] = field(default_factory=list)
    of_transactions: list[Marker | int] = field(default_factory=list)
    """For each batch of the log: its producer id, or its marker."""
    replies: list[tuple[Any, Any]] = field(default_factory=list)
    """(token, response or error code)"""
    events: list[Write | tuple[Any, Any]] = field(default_factory=list)
    """Committed writes and replies in their order."""
    timer_ms: int = 0
    holding: bool = False
    next_failure: ErrorCode | None = None
    image: MetadataImage = EMPTY_IMAGE
    initialize_shares: Callable[[InitializeShares], None] = lambda effect: None
    """Called with what a share coordinator would be asked for."""
    held: list[list[Effect]] = field(default_factory=list)
    """Effects from a write that is not committed on, oldest first."""

    def __post_init__(self) -> None:
        self.random = CountingRandom()
        self.shard = GroupShard(self.config, self.random)
        self.shard.on_metadata(None, self.image)
        self.shard.on_loaded(self.now)

    @property
    def now(self) -> Now:
        return Now(self.timer_ms, WALL_START_MS + self.timer_ms)

    def change_topics(self, delta: MetadataDelta) -> None:
        """Publish the image that `delta`, of the present one, leads to."""
        self.image = delta.apply(self.image.offset + 1, 0, self.now.wall_ms)
        self.shard.on_metadata(delta, self.image)
        self.run()

    def run(self) -> None:
        self._work(self.shard.take())

    def _work(self, effects: Sequence[Effect]) -> None:
        for index, effect in enumerate(effects):
            if isinstance(effect, Write):
                if self.holding:
                    self.held.append(list(effects[index:]))
                    return
                if self.next_failure is not None and (effect.records or effect.marker is not None):
                    self._fail(effects[index:])
                    return
                if effect.records or effect.marker is not None:
                    self._commit(effect)
            elif isinstance(effect, Resolve):
                found = at_once(resolve(effect.patterns, effect.image, effect.visible))
                self._resolved(effect, found)
                self.run()
            elif isinstance(effect, InitializeShares):
                self.initialize_shares(effect)
            else:
                self._answer(effect.token, effect.response)

    def _resolved(self, asked: Resolve, found: Mapping[str, frozenset[str]]) -> None:
        version, wall_ms = asked.image.offset, self.now.wall_ms
        self.shard.decide(lambda state: resolved(state, asked.group_id, found, version, wall_ms), self.now)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """A classic Heartbeat. Raises KafkaError."""
        error = self.shard.decide(membership.heartbeat, self.now, group_id, member_id, instance_id, generation)
        if error:
            raise KafkaError(error)

    def _commit(self, write: Write) -> None:
        self.log.append([_read_again(record) for record in write.records])
        self.events.append(write)
        producer_id = (write.transaction or OUTSIDE).producer_id
        self.of_transactions.append(write.marker or producer_id)
        for record in write.records:
            self.shard.replay(record, len(self.log) - 1, producer_id)
        if write.marker is not None:
            self.shard.replay_transaction_end(write.marker.producer_id, write.marker.committed)
        if write.committed is not None:
            write.committed()
            self.run()

    def _fail(self, effects: Sequence[Effect]) -> None:
        error, self.next_failure = self.next_failure, None
        assert error is not None
        error = WRITE_ERRORS.get(error, error)
        first = effects[0]
        assert isinstance(first, Write)
        if first.undo is not None:
            first.undo()
        for effect in effects:
            if isinstance(effect, Reply):
                self._answer(effect.token, error)
            elif not isinstance(effect, Write):
                pass
            elif effect.failed is not None:
                effect.failed(error)
        self.run()

    def _answer(self, token: Any, response: Any) -> None:
        self.replies.append((token, response))
        self.events.append((token, response))

    def release(self) -> None:
        """Commit what was held, in order."""
        self.holding = False
        held, self.held = self.held, []
        for effects in held:
            self._work(effects)

    def wait(self, milliseconds: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.timer_ms + milliseconds
        while (deadline := self.shard.next_deadline()) is not None and deadline <= end:
            self.timer_ms = max(self.timer_ms, deadline)
            self.shard.advance(self.now)
            self.run()
        self.timer_ms = end

    def restart(self, **changed: Any) -> None:
        """Another coordinator loads the log, from the bytes that its records are; settings may be `changed`."""
        self.config = replace(self.config, **changed)
        self.shard.unload(self.now)
        self.run()
        self.shard = GroupShard(self.config, self.random)
        self.shard.on_metadata(None, self.image)
        of_log = [
            *self.of_transactions,
            *[-1] * (len(self.log) - len(self.of_transactions)),
        ]  # some put records into it
        for offset, (batch, of) in enumerate(zip(self.log, of_log, strict=True)):
            for record in batch:
                decoded = decode_record(encode_key(record.key), encode_value(record.value))
                assert decoded == record and isinstance(of, int)
                self.shard.replay(decoded, offset, of)
            if isinstance(of, Marker):
                self.shard.replay_transaction_end(of.producer_id, of.committed)
        self.shard.on_loaded(self.now)
        self.run()


def _read_again(record: GroupRecord) -> GroupRecord:
    """A record as it is read from the log; the short way of a heartbeat makes it of bytes."""
    if not isinstance(record.value, bytes):
        return record
    decoded = decode_record(encode_key(record.key), record.value)
    assert decoded is not None
    return decoded
