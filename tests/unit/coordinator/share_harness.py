"""Runs a ShareShard over a log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ottla.coordinator.effects import Now, Reply, Write
from ottla.coordinator.share.config import ShareCoordinatorConfig
from ottla.coordinator.share.requests import Prune
from ottla.coordinator.share.shard import ShareShard
from ottla.errors import ErrorCode
from ottla.protocol.internal.share_records import ShareRecord, decode_record, encode_record

TOPIC = UUID(int=(1 << 64) + 1)
"""Has PARTITIONS; no other topic exists."""
PARTITIONS = 3


class ShareDriver:
    """Commits every write at once, unless `holding`; records go through their bytes."""

    def __init__(self, config: ShareCoordinatorConfig | None = None) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.log: list[ShareRecord] = []
        self.log_start = 0
        self.now_ms = 0
        self.topics = {TOPIC: PARTITIONS}
        self.holding = False
        self.held: list[list[Any]] = []
        self.replies: dict[Any, Any] = {}
        """By token: a response, or the error of the write that it waited for."""
        self.prunings: list[int] = []
        self.shard = self.loaded()

    def loaded(self) -> ShareShard:
        """Another coordinator, from the log."""
        shard = ShareShard(self.config, lambda topic_id: self.topics.get(topic_id, 0))
        for offset in range(self.log_start, len(self.log)):
            shard.replay(self.log[offset], offset)
        shard.on_loaded(self.now)
        return shard

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def ask(self, token: Any, call: Callable[..., None], *arguments: Any) -> Any:
        """The response, or None if it waits."""
        call(token, *arguments, self.now)
        self.run()
        return self.replies.get(token)

    def run(self) -> None:
        while effects := self.shard.take():
            self._do(effects)

    def _do(self, effects: list[Any]) -> None:
        for index, effect in enumerate(effects):
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, "answered twice"
                self.replies[effect.token] = effect.response
            elif isinstance(effect, Prune):
                self.prunings.append(effect.before_offset)
            elif self.holding:
                self.held.append(effects[index:])
                return
            else:
                self._commit(effect)

    def _commit(self, write: Write) -> None:
        for record in write.records:
            decoded = decode_record(*encode_record(record))
            assert decoded is not None
            self.log.append(decoded)
            self.shard.replay(decoded, len(self.log) - 1)
        assert write.committed is not None
        write.committed()
        self._do(self.shard.take())

    def release(self) -> None:
        """Commit the first write that is held."""
        write, *rest = self.held.pop(0)
        self._commit(write)
        self._do(rest)
        self.run()

    def refuse(self, error: ErrorCode) -> None:
        """Fail the first write that is held."""
        for effect in self.held.pop(0):
            if isinstance(effect, Reply):
                self.replies[effect.token] = error
            elif isinstance(effect, Write) and effect.failed is not None:
                effect.failed(error)
        self.run()

    def pass_time(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.shard.advance(self.now)
        self.run()
