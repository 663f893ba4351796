"""TLS of a node: the certificates of its listeners, the networks that use them, and the watch over both.

A node without a listener over TLS, which also reaches no other node over it, does not import this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.config import definitions
from ottla.config.listener_settings import PREFIX, mistakes, of_listener
from ottla.config.listeners import HTTP, OVER_TLS
from ottla.controller.configs import changed_by
from ottla.drivers.nodes.tls_certificates import Changes, ListenerCertificates
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import errors_logged, fields
from ottla.metadata.image import ConfigResource, ConfigResourceType
from ottla.metrics.text import labels
from ottla.security.certificates import subject_of
from ottla.security.principal_mapping import SETTING as RULES
from ottla.security.principal_mapping import PrincipalMapper
from ottla.server.connections.connection import Connection
from ottla.server.connections.secured_connection import SecuredConnection
from ottla.tls_handshakes import Failure, Handshakes
from ottla.tls_network import TlsNetwork

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.server import ServerConfig
    from ottla.filesystem import FileSystem
    from ottla.metadata.image import MetadataImage
    from ottla.metrics.text import Exposition
    from ottla.network import Network
    from ottla.server.listeners.listener import Listener

_NETWORK = logging.getLogger("ottla.network")
_LOG = logging.getLogger("ottla.tls")

LOGGED_EVERY_S: Final = 1.0
"""Failed handshakes are logged one by one, but not more often: whoever reaches a port can fail as often as he likes."""


class NodeTls:
    """All methods belong to the event loop's thread."""

    def __init__(self, config: ServerConfig, fs: FileSystem, clock: Clock, network: Network) -> None:
        """Raises OttlaError for settings or certificates that cannot be used."""
        self.handshakes = Handshakes()
        self.listeners: dict[str, ListenerCertificates] = {}
        """By listener's name; also those of other nodes, which are only connected to."""
        self.failed: dict[str, int] = {}
        """Handshakes that failed, by listener."""
        self.on_failed: Callable[[str, Failure], None] | None = None
        """Hears of each, for the audit log."""
        self._networks: dict[str, TlsNetwork] = {}
        self._mappers: dict[str, PrincipalMapper | None] = {}
        self._config = config
        self._fs = fs
        self._clock = clock
        self._network = network
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._logged_s = 0.0
        self._unlogged = 0
        self._open()
        brokers, controllers = config.inter_broker_listener, config.controller_protocol
        self.brokers = self._of(brokers[0], brokers[1])
        """The network by which brokers are reached."""
        self.controllers = self._of(*controllers)
        """The network by which controllers are reached."""

    def _open(self) -> None:
        config, now_ms = self._config, self._clock.now_ms()
        between = {config.inter_broker_listener[0], config.controller_protocol[0]}
        served = {each.name: each.protocol for each in (*config.listeners, *config.controller_listeners)}
        if config.ottla_http_listener:
            served[HTTP] = config.ottla_http_security_protocol
        used = dict((config.inter_broker_listener, config.controller_protocol))
        for name, protocol in {**used, **served}.items():
            if protocol not in OVER_TLS:
                continue
            found = ListenerCertificates(
                config,
                name,
                self._fs.read_bytes,
                serves=name in served,
                among_nodes=name in between and name in served,
                has_login=protocol == "SASL_SSL",
            )
            found.start(now_ms)
            self.listeners[name] = found
            self._mappers[name] = _mapper(of_listener(config, name, RULES))
            self.failed[name] = 0
            self._networks[name] = TlsNetwork(
                self._network,
                found.contexts,
                self.handshakes,
                subject_of=subject_of,
                on_failure=partial(self._failed, name),
            )

    def _of(self, name: str, protocol: str | None) -> Network:
        return self._networks[name] if protocol in OVER_TLS else self._network

    def secure(self, listener: Listener) -> Callable[[], Connection]:
        """Have a listener listen over TLS; returns what makes its connections."""
        listener.network = self._networks[listener.name]
        if listener.protocol != "SSL":
            return lambda: Connection(listener)
        listener.principal_mapper = self._mappers[listener.name]
        return lambda: SecuredConnection(listener)

    def network_of(self, name: str) -> TlsNetwork:
        """The network of a listener over TLS."""
        return self._networks[name]

    def mapper_of(self, name: str) -> PrincipalMapper | None:
        """What makes users' names of subjects on a listener over TLS; None where they stay as they are."""
        return self._mappers[name]

    def _failed(self, listener: str, failure: Failure) -> None:
        self.failed[listener] += 1
        if self.on_failed is not None:
            self.on_failed(listener, failure)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < LOGGED_EVERY_S:
            self._unlogged += 1
            return
        more, self._unlogged, self._logged_s = self._unlogged or None, 0, now_s
        _NETWORK.info(
            "a TLS handshake failed",
            extra=fields(listener=listener, client=failure.client_host, error=failure.reason, not_logged=more),
        )

    def add_metrics(self, page: Exposition) -> None:
        for name, each in self.listeners.items():
            where = labels(listener=name)
            page.add("ottla_ssl_handshakes_failed_total", self.failed[name], where)
            page.add("ottla_ssl_certificate_reloads_total", each.reloads, where)
            certificate = each.loaded.certificate
            if certificate is not None:
                page.add("ottla_ssl_certificate_expiry_timestamp_seconds", certificate.not_after_ms / 1000, where)

    # Certificates that change.

    def start(self, closers: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Look at the files from now on, until the last of `closers`."""
        closers.append(self.stop)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        await cancelled(self._watching)
        self.handshakes.close()

    def settings_changed(self) -> None:
        """Dynamic settings were changed: look now."""
        self._changed.set()

    async def _watch(self) -> None:
        interval_s = self._config.ottla_ssl_watch_interval_ms / 1000
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._changed.wait()
            self._changed.clear()
            for each in list(self.listeners.values()):
                with errors_logged(_LOG, "looking for new certificates"):
                    await self.look(each)

    async def look(self, listener: ListenerCertificates) -> None:
        """Take up the listener's certificates if they are new and can be used."""
        now_ms = self._clock.now_ms()
        try:
            stores = await self._fs.run(partial(listener.read, listener.settings()))
            if listener.is_new(stores):
                listener.take_up(await self._fs.run(lambda: listener.check(stores, now_ms)))
            else:
                listener.unchanged()
        except OttlaError as error:
            listener.keep(error)
        listener.warn(now_ms)

    async def refusals(
        self, image: MetadataImage, asked: Mapping[str, Any], node_id: int, *, incremental: bool
    ) -> dict[int, KafkaError]:
        """Changes of this broker's settings that would leave a listener without certificates, by place in the request
        (INVALID_REQUEST).

        Kafka accepts most of them, and each handshake fails afterwards."""
        refused = {}
        for place, each in enumerate(asked["resources"]):
            resource = ConfigResource(each["resource_type"], each["resource_name"])
            if resource.type != ConfigResourceType.BROKER or resource.name not in ("", str(node_id)):
                continue
            try:
                await self._check(changed_by(image, each, incremental=incremental))
            except OttlaError as error:
                refused[place] = KafkaError(ErrorCode.invalid_request, str(error))
            except KafkaError:
                pass  # the request is malformed, and refused for that
        return refused

    async def _check(self, changes: Changes) -> None:
        """Raises OttlaError for changes of settings that no listener could use, or that have no effect."""
        from ottla.config.tables.without_effect import why

        for full_name in changes:
            name = full_name.removeprefix(PREFIX).partition(".")[2] if full_name.startswith(PREFIX) else full_name
            setting = definitions.BROKER.get(name)
            if setting is not None and name.startswith("ssl.") and (name == RULES or why(name) is not None):
                raise OttlaError(
                    f"Ottla reads these configs at start only; change the configuration file: [{full_name}]"
                )
        for name, listener in self._concerned(changes):
            for sentence in mistakes({each: text for each, text in changes.items() if text is not None}):
                raise OttlaError(sentence)
            try:
                await self._try(listener, changes)
            except OttlaError as error:
                raise OttlaError(f"Listener {name} cannot use these settings: {error}") from None

    def _concerned(self, changes: Changes) -> Iterator[tuple[str, ListenerCertificates]]:
        for name, listener in self.listeners.items():
            prefix = f"listener.name.{name.lower()}.ssl."
            if any(each.startswith((prefix, "ssl.")) for each in changes):
                yield name, listener

    async def _try(self, listener: ListenerCertificates, changes: Changes) -> None:
        now_ms, settings = self._clock.now_ms(), listener.settings(changes)
        await self._fs.run(lambda: listener.check(listener.read(settings), now_ms))


def _mapper(rules: str) -> PrincipalMapper | None:
    """None where the rules leave subjects as they are. Raises OttlaError."""
    return None if rules.strip() == "DEFAULT" else PrincipalMapper(rules)
