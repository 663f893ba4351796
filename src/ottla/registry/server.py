"""Runs an instance: reads the topic, takes part in the election, serves HTTP, and stops in the reverse order."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Final

from ottla.client import librdkafka
from ottla.client.config import parse_addresses, split_address
from ottla.client.security import PLAINTEXT, Security
from ottla.logs import errors_logged, fields
from ottla.registry.election import Election, Identity
from ottla.registry.port_settings import CannotStart
from ottla.registry.service import Service
from ottla.registry.state import State
from ottla.registry.store import StoreClosed, Topic

_LOG = logging.getLogger("ottla.registry")

DEFAULT_TOPIC: Final = "_schemas"
DEFAULT_GROUP: Final = "schema-registry"
DEFAULT_PORT: Final = 8081
_STOP_S: Final = 5
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
"""Hosts to listen at that are no place to be found at."""


@dataclass(frozen=True)
class Options:
    """Options of an instance."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 is any free one."""
    topic: str = DEFAULT_TOPIC
    group: str = DEFAULT_GROUP
    """Group in which instances elect the leader."""
    advertised: str | None = None
    """HOST:PORT at which the other instances reach this one; where it listens unless given."""
    is_alone: bool = False
    """No election: this instance writes. Another that does so, too, takes turns with it."""
    security: Security = PLAINTEXT
    """Security of the brokers."""
    http: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Security of this instance's own port: settings of a node's HTTP port (`guard.py`). They may hold secrets."""


class Instance:
    """A registry in this process: `start`, then `serve` until `stop` is called from another thread."""

    def __init__(self, options: Options) -> None:
        """Raises CannotStart where the address is taken or a library is missing."""
        try:
            from ottla.registry.app import Application
            from ottla.registry.guard import Guard
            from ottla.registry.http_server import HttpServer
        except ImportError as error:
            raise CannotStart(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
        self.options = options
        self._guard = Guard(options.http, options.host, options.port, options.bootstrap, options.security)
        self._server = HttpServer(self._guard, options.host, options.port, stop_s=_STOP_S)
        self.port = self._server.port
        settings = {
            "bootstrap.servers": options.bootstrap,
            "client.id": "schema-registry",
            "log_level": 0,
            **librdkafka.settings_of(options.security),
        }
        self._topic = Topic(settings, options.topic, State())
        self.service = Service(self._topic, version=metadata.version("ottla"), group=options.group)
        self._election: Election | None = None
        self._application = Application(self.service, self._guard)

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        """Read all schemas. Raises StoreError, OttlaError."""
        try:
            self._guard.open()
        except OSError as error:
            raise CannotStart(f"the ACLs cannot be read: {error}") from error
        self._topic.open()
        self.service.kafka_cluster_id = self._topic.cluster_id
        if self.options.is_alone:
            self._lead(True)
            return
        brokers = parse_addresses(self.options.bootstrap)
        self._election = Election(brokers, self.options.group, self._identity(), self._lead, self.options.security)
        self.service.leadership = self._election
        self._election.start()

    def _identity(self) -> Identity:
        """Where the other instances find this one."""
        if self.options.advertised is not None:
            return Identity(*split_address(self.options.advertised), self._server.scheme)
        host = self.options.host
        return Identity(socket.gethostname() if host in _EVERYWHERE else host, self.port, self._server.scheme)

    def _lead(self, is_leader: bool) -> None:
        """Take the right to write, or leave it; either may take a while."""

        def change() -> None:
            what = "becoming the leader" if is_leader else "resigning as leader"
            with errors_logged(_LOG, what), contextlib.suppress(StoreClosed):
                (self.service.prepare if is_leader else self.service.resign)()

        threading.Thread(target=change, name="schemas writer", daemon=True).start()

    def serve(
        self,
        serving: Callable[[], None] = lambda: None,
        closing: Callable[[Callable[[], None]], None] = lambda close: close(),
    ) -> None:
        """Until `stop`; the caller's thread has no event loop. `serving` is called first: connections are accepted.
        `closing` calls what it is given, which waits for brokers, or has it called."""
        serving()
        try:
            self._server.run(self._application.starlette())
        finally:
            closing(self.close)

    def stop(self) -> None:
        """Stop the server, from any thread or from a signal handler."""
        self._server.stop()

    def close(self) -> None:
        self._server.close()
        if self._election is not None:
            self._election.stop()
        self._application.close()
        self._guard.close()
        self._topic.close()
        _LOG.info("the registry has stopped", extra=fields(url=self.url))


def run(options: Options, announce: Callable[[Instance], Any]) -> None:
    """An instance in the foreground, until a signal. Raises CannotStart, StoreError."""
    instance = Instance(options)
    try:
        instance.start()
    except BaseException:
        instance.close()
        raise
    instance.serve(lambda: announce(instance))
