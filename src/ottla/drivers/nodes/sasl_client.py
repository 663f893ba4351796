"""How a node logs in at other nodes (SASL): after ApiVersions, before any other request, and again before its session
ends (KIP-368).

    network = LoginNetwork(tls_or_tcp, login)
    client = NodeClient(network, ...)

The credentials are those of `listener.name.NAME.MECHANISM.sasl.jaas.config`, as in Kafka: its `username` and `password`
beside the users that a broker accepts. The mechanism is `sasl.mechanism.inter.broker.protocol` towards brokers and
`sasl.mechanism.controller.protocol` towards controllers. SCRAM towards controllers needs credentials that stand in the
log that controllers serve: it works once they are there, never for the controllers of a new quorum among themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random as random_module
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.drivers.nodes.jaas_settings import jaas_name, jaas_of
from ottla.drivers.nodes.node_connection import NodeConnection, decoded
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.logs import fields
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SUPPORTED,
    AuthenticationFailed,
    ClientMechanism,
    jaas,
    scram,
)
from ottla.security.sasl.client import OAuthBearerClient, PlainClient, ScramClient

if TYPE_CHECKING:
    from ottla.config.secret import Secret
    from ottla.config.server import ServerConfig
    from ottla.network import AcceptFailed, Acceptor, MakeProtocol, Network, Sender

_LOG = logging.getLogger("ottla.authentication")

AGAIN_AFTER: Final = 0.85
AGAIN_SPREAD: Final = 0.10
"""A session is renewed after 85 to 95 % of its time, so that connections do not all do it together (KIP-368)."""
SESSION_SECONDS_MIN: Final = 1.0
"""A node may log in again once a second."""
TIMER_SECONDS_MAX: Final = 86_400.0
"""Sessions of years are renewed each day: it costs nothing, and no timer has to wait for so long."""
STEPS_MAX: Final = 10
"""Tokens of one login; SCRAM has two."""
WARNING_SECONDS: Final = 30.0
"""Between two warnings that a login fails."""

HANDSHAKE_VERSIONS: Final = (1, 1)
AUTHENTICATE_VERSIONS: Final = (0, 2)


Make = Callable[[str], Awaitable[ClientMechanism]]
"""The client's side of a login at a host."""


class NodeLogin:
    """How this node logs in at the nodes behind one kind of listener. All methods belong to the event loop's thread."""

    def __init__(
        self,
        mechanism: str,
        make: Make,
        random: random_module.Random,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        """`make` is given the host of the other node; `run` does in a thread what takes milliseconds."""
        self.mechanism = mechanism
        self.check: Callable[[ServerConfig], object] = lambda config: None
        """Raises OttlaError for settings by which this node could not log in."""
        self._make = make
        self._random = random
        self._run = run
        self._warned_at = -WARNING_SECONDS

    async def log_in(self, connection: NodeConnection, timeout_s: float) -> None:
        """Log in on a connection that knows the versions of the other node. Raises KafkaError."""
        try:
            session_s = await self._exchange(connection, timeout_s)
        except KafkaError as error:
            self._warn(connection, error)
            raise
        if session_s > 0:
            self._renew_later(connection, session_s, timeout_s)

    def _warn(self, connection: NodeConnection, error: KafkaError) -> None:
        now = asyncio.get_running_loop().time()
        if error.code != ErrorCode.network_exception and now - self._warned_at >= WARNING_SECONDS:
            self._warned_at = now
            where = fields(node=connection.where, mechanism=self.mechanism, error=error.message or str(error))
            _LOG.warning("this node cannot log in at another one", extra=where)

    async def _exchange(self, connection: NodeConnection, timeout_s: float) -> float:
        """Returns the seconds of the session; 0: no limit. Raises KafkaError."""
        where = connection.where
        version = connection.version_of(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSIONS)
        asked = {"mechanism": self.mechanism}
        answer = await _ask(connection, ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSIONS[1], asked, timeout_s)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            what = f"{where} does not offer the SASL mechanism {self.mechanism} (offered: {offered})"
            raise KafkaError(answer.error_code, what)
        try:
            client = await self._make(where.rpartition(":")[0].strip("[]"))
            token: bytes | None = client.first()
        except AuthenticationFailed as error:
            raise KafkaError(ErrorCode.sasl_authentication_failed, f"{where}: {error.reason}") from None
        for _ in range(STEPS_MAX):
            if token is None:
                break
            answer = await _ask(connection, ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token}, timeout_s)
            if answer.error_code:
                raise KafkaError(answer.error_code, f"{where}: {answer.error_message or 'authentication failed'}")
            token = await self._step(client, bytes(answer.auth_bytes), where)
        if token is not None:
            raise KafkaError(ErrorCode.sasl_authentication_failed, f"{where}: the login does not end")
        return float(answer.session_lifetime / 1000)

    async def _step(self, client: ClientMechanism, challenge: bytes, where: str) -> bytes | None:
        try:
            if not challenge:
                return client.step(challenge)
            found: bytes | None = await self._run(lambda: client.step(challenge))
            return found
        except AuthenticationFailed as error:
            raise KafkaError(ErrorCode.sasl_authentication_failed, f"{where}: {error.reason}") from None

    def _renew_later(self, connection: NodeConnection, session_s: float, timeout_s: float) -> None:
        share = AGAIN_AFTER + AGAIN_SPREAD * self._random.random()
        delay_s = min(max(session_s * share, SESSION_SECONDS_MIN), TIMER_SECONDS_MAX)
        connection.renew_after(delay_s, lambda: self.log_in(connection, timeout_s))


async def _ask(connection: NodeConnection, api_key: ApiKey, version: int, values: Any, timeout_s: float) -> Any:
    request = connection.encode(api_key, version, values)
    return decoded(api_key, version, await connection.send(request, timeout_s, is_login=True))


class LoginNetwork:
    """A network whose connections to nodes begin with a login; `NodeClient` asks for it. Implements `Network`."""

    def __init__(self, inner: Network, login: NodeLogin) -> None:
        self.inner = inner
        self.login = login

    async def listen(
        self, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
    ) -> Acceptor:
        """See `Network.listen`."""
        return await self.inner.listen(protocol, host, port, accept_failed)

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `Network.connect`."""
        return await self.inner.connect(protocol, host, port, receive_buffer_bytes=receive_buffer_bytes)

    def sender(self, transport: asyncio.BaseTransport) -> Sender:
        return self.inner.sender(transport)


def login_network(
    inner: Network,
    config: ServerConfig,
    listener: str,
    mechanism: str,
    random: random_module.Random,
    run: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> LoginNetwork:
    """The way to nodes behind a SASL listener. Raises OttlaError where this node has no credentials for it."""
    login = NodeLogin(mechanism, _maker(config, listener, mechanism, random), random, run)
    login.check = lambda changed: _maker(changed, listener, mechanism, random)
    return LoginNetwork(inner, login)


def _maker(config: ServerConfig, listener: str, mechanism: str, random: random_module.Random) -> Make:
    if mechanism not in SUPPORTED:
        raise OttlaError(
            f"SASL mechanism {mechanism} is not supported in this version: set sasl.mechanism.inter.broker.protocol "
            f"and sasl.mechanism.controller.protocol to some of {', '.join(SUPPORTED)}"
        )
    if mechanism == OAUTHBEARER:
        return _oauthbearer(config, listener)
    if mechanism == GSSAPI:
        return _gssapi(config, listener, random)
    _credentials(config, listener, mechanism)

    async def make(host: str) -> ClientMechanism:
        try:  # they may have changed
            name, password = _credentials(config, listener, mechanism)
        except OttlaError as error:
            raise KafkaError(ErrorCode.sasl_authentication_failed, str(error)) from None
        if mechanism == PLAIN:
            return PlainClient(name, password)
        return ScramClient(scram.BY_NAME[mechanism], name, password, os.urandom(scram.NONCE_BYTES))

    return make


def _credentials(config: ServerConfig, listener: str, mechanism: str) -> tuple[str, Secret]:
    """The name and password of this node. Raises OttlaError."""
    module = jaas_of(config, listener, mechanism)
    expected = jaas.PLAIN_MODULE if mechanism == PLAIN else jaas.SCRAM_MODULE
    credentials = None if module is None else module.login
    if module is None or module.name != expected or credentials is None:
        raise OttlaError(
            f"this node has no name and password for other nodes: set {jaas_name(listener, mechanism)}={expected} "
            f'required username="NAME" password="PASSWORD";'
        )
    return credentials


def _oauthbearer(config: ServerConfig, listener: str) -> Make:
    """Tokens by client credentials (KIP-768). Raises OttlaError."""
    from ottla.drivers.nodes.identity_provider import endpoint_of
    from ottla.drivers.nodes.oauth_tokens import ClientCredentials, TokenSource

    module = jaas_of(config, listener, OAUTHBEARER)
    options = {} if module is None or module.name != jaas.OAUTHBEARER_MODULE else module.options
    client_id, secret, scope = (options.get(name) for name in ("clientId", "clientSecret", "scope"))
    name = "sasl.oauthbearer.token.endpoint.url"
    endpoint = endpoint_of(config, listener, name)
    if endpoint is None or client_id is None or secret is None:
        raise OttlaError(
            f"this node has no way to a token for other nodes: set {name}, and {jaas_name(listener, OAUTHBEARER)}="
            f'{jaas.OAUTHBEARER_MODULE} required clientId="ID" clientSecret="SECRET";'
        )
    known = ClientCredentials(client_id.reveal(), secret, None if scope is None else scope.reveal())
    source = TokenSource(endpoint, known)

    async def make(host: str) -> ClientMechanism:
        return OAuthBearerClient(await source.token())

    return make


def _gssapi(config: ServerConfig, listener: str, random: random_module.Random) -> Make:
    """Tickets from the key distribution center, which may take seconds. Raises OttlaError."""
    from ottla.drivers.nodes.identity_provider import in_a_thread
    from ottla.drivers.nodes.kerberos_settings import initiator_of
    from ottla.security.sasl.gssapi import GssapiClient

    initiator = initiator_of(config, listener, random)

    async def make(host: str) -> ClientMechanism:
        prepared: GssapiClient = await in_a_thread(lambda: GssapiClient(initiator.context(host)).prepare())
        return prepared

    return make
