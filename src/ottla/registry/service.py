"""One instance's parts: the topic and its state, what reads it, what writes it, and who is the leader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ottla.registry import api_errors, store
from ottla.registry.catalog import Catalog
from ottla.registry.records import Key
from ottla.registry.registrar import Registrar
from ottla.registry.requests import Call
from ottla.registry.state import DEFAULT_LEVEL, State
from ottla.registry.store import Topic, Writer

T = TypeVar("T")

ATTEMPTS_MAX = 3
"""Times that a change is decided again because another instance wrote in between."""


class Leadership(Protocol):
    """The leader election: which instance writes."""

    def is_leader(self) -> bool:
        """Whether this instance does."""

    def leader_url(self) -> str | None:
        """Where the instance is that does, None if that is not known."""

    def wait_decided(self, timeout_s: float) -> bool:
        """Whether it is decided who does: an instance that has just started may not know."""


class Alone:
    """The leadership of an instance that asks no other."""

    def is_leader(self) -> bool:
        return True

    def leader_url(self) -> str | None:
        return None

    def wait_decided(self, timeout_s: float) -> bool:
        return True


class Service:
    """Parts that handlers use."""

    def __init__(self, topic: Topic, *, version: str, group: str) -> None:
        self.topic = topic
        self.state: State = topic.state
        self.leadership: Leadership = Alone()
        self.catalog = Catalog(self.state)
        self.registrar = Registrar(self.catalog, self._write, self._catch_up)
        self.version, self.group, self.kafka_cluster_id = version, group, ""
        self._writer: Writer | None = None
        self._lock = threading.RLock()

    default_level = DEFAULT_LEVEL

    def normalizes(self, subject: str, call: Call) -> bool:
        """Whether schemas are normalized: as the request says, or the configuration."""
        return call.flag("normalize") or bool(self.state.config_in_scope(subject).get("normalize"))

    def lead(self, change: Callable[[], T]) -> T:
        """Do what only the leader does; repeated if another instance became leader in between. Raises ApiError."""
        for _ in range(ATTEMPTS_MAX):
            if not self.leadership.is_leader():
                break
            try:
                return change()
            except store.Fenced:
                self.resign()
        raise api_errors.unknown_leader()

    def prepare(self) -> None:
        """Take the right to write before it is needed. Raises StoreError."""
        with self._lock:
            if self._writer is None:
                self._writer = Writer(self.topic)

    def resign(self) -> None:
        """Write no more without asking for the right again."""
        with self._lock:
            self._writer = None

    def _catch_up(self) -> None:
        """Read the log to its end: no other instance writes once this one may, and it has read back what it wrote
        itself."""
        try:
            self.prepare()
        except store.StoreTimeout as error:
            raise api_errors.timed_out(str(error)) from error
        except store.Fenced:
            raise
        except store.StoreError as error:
            raise api_errors.store_error(str(error)) from error

    def _write(self, entries: Mapping[Key, bytes | None]) -> None:
        with self._lock:
            if self._writer is None or not self.leadership.is_leader():
                raise store.Fenced("no longer the leader")
            self._writer.write(entries)
