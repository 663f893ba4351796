"""What the SASL listeners of a node offer, read from its settings and checked before the node starts.

Names of classes are names: those of Kafka's own handlers are known, none is loaded. A mechanism that could not check
who logs in does not start (CVE-2026-33557, CVE-2026-110985).
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.config.listener_settings import PREFIX, of_listener, of_mechanism
from ottla.drivers.nodes.jaas_settings import MODULES, in_file, jaas_name, jaas_of
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SUPPORTED, jaas, scram
from ottla.security.sasl.plain import PlainServer
from ottla.server.security.authentication import Authentication
from ottla.server.security.login_settings import LoginSettings, Mechanism

if TYPE_CHECKING:
    import asyncio
    import random as random_module

    from ottla.config.server import ServerConfig
    from ottla.drivers.nodes.jwks import JwksKeys, JwksSettings
    from ottla.filesystem import FileSystem
    from ottla.network import Network
    from ottla.security.sasl.jwt import KeySet, Rules, Token
    from ottla.server.listeners.listener import Listener
    from ottla.server.ports import Member, Running

_LOG = logging.getLogger("ottla.authentication")

_HANDLER: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
UNSECURED_HANDLER: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
HANDLERS: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: ("org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",),
    SCRAM_SHA_256: ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    SCRAM_SHA_512: ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    OAUTHBEARER: (
        f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
        UNSECURED_HANDLER,
    ),
    GSSAPI: ("org.apache.kafka.common.security.authenticator.SaslServerCallbackHandler",),
}
"""Kafka's own, whose work is done here."""
_VALIDATORS: Final = tuple(f"{_OAUTH}{name}" for name in ("DefaultJwtValidator", "BrokerJwtValidator"))

LOOKED_AT_MAX: Final = 500
"""Credentials looked at to find their usual shape: a fraction of a millisecond."""

random_bytes: Callable[[int], bytes] = os.urandom
"""Makes nonces. Simulations have another one, else no run could be played again."""

TOKENS_MAX: Final = 1_000
"""Credentials of delegation tokens that a listener remembers: making one takes milliseconds."""

UNVERIFIED: Final[Mapping[str, str]] = {
    "sasl.oauthbearer.expected.audience": "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.expected.issuer": "sasl.oauthbearer.allow.unverified.issuer",
}
"""What must be expected of tokens, or else be allowed to be anything."""
KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
UNSECURED: Final = "ottla.sasl.oauthbearer.unsecured.tokens"
REFRESH_SECONDS_MAX: Final = 30 * 86_400.0


def uses_sasl(protocol: str) -> bool:
    return protocol.startswith("SASL_")


def check(config: ServerConfig) -> None:
    """Raises OttlaError for a SASL listener that could not authenticate anybody, or would authenticate everybody."""
    for spec in (*config.listeners, *config.controller_listeners):
        if uses_sasl(spec.protocol):
            check_mechanisms(config, spec.name, enabled(config, spec.name))


def check_mechanisms(config: ServerConfig, listener: str, mechanisms: Iterable[str]) -> None:
    """Raises OttlaError."""
    for mechanism in mechanisms:
        _check_mechanism(config, listener, mechanism)


def authentication_of(listener: Listener) -> Authentication:
    """The logins of a SASL listener. Raises OttlaError."""
    config, name = listener.node.config, listener.name
    names = enabled(config, name)
    check_mechanisms(config, name, names)
    mechanisms = {each: mechanism_of(listener, each) for each in names}
    authentication = Authentication(listener, login_settings(listener), mechanisms)
    listener.node.on_stop.append(authentication.threads.close)
    return authentication


def login_settings(listener: Listener) -> LoginSettings:
    """What all connections of a SASL listener have in common."""
    config = listener.node.config
    return LoginSettings(
        bytes_max=of_listener(config, listener.name, "sasl.server.max.receive.size"),
        failure_delay_s=config.connection_failed_authentication_delay_ms / 1000,
        timeout_s=config.ottla_login_timeout_ms / 1000,
    )


def mechanism_of(listener: Listener, mechanism: str, before: Mechanism | None = None) -> Mechanism:
    """A mechanism of a SASL listener by the settings of now; `before` serves on with a session's length of now. Raises
    OttlaError."""
    session_ms_max = of_mechanism(listener.node.config, listener.name, mechanism, "connections.max.reauth.ms")
    return Mechanism(_server(listener, mechanism) if before is None else before.serve, session_ms_max)


def logged_in(
    config: ServerConfig, fs: FileSystem, random: random_module.Random, brokers: Network, controllers: Network
) -> tuple[Network, Network]:
    """The networks by which brokers and controllers are reached, with a login where that is demanded. A node that is
    alone logs in nowhere, and needs no credentials for it. Raises OttlaError."""
    from ottla.drivers.nodes.sasl_client import login_network

    name, protocol = config.inter_broker_listener
    is_alone = config.is_controller and not config.controller_listeners
    if config.is_broker and not is_alone and uses_sasl(protocol or ""):
        mechanism = of_listener(config, name, "sasl.mechanism.inter.broker.protocol")
        if name in {each.name for each in config.listeners} and mechanism not in enabled(config, name):
            raise OttlaError(
                f"sasl.mechanism.inter.broker.protocol is {mechanism}, which listener {name} does not offer: add it to "
                f"{PREFIX}{name.lower()}.sasl.enabled.mechanisms"
            )
        brokers = login_network(brokers, config, name, mechanism, random, fs.run)
    name, protocol = config.controller_protocol
    others = set(config.quorum_voters) - {config.node_id}
    if uses_sasl(protocol or "") and (others or config.quorum_servers):
        mechanism = of_listener(config, name, "sasl.mechanism.controller.protocol")
        controllers = login_network(controllers, config, name, mechanism, random, fs.run)
    return brokers, controllers


def enabled(config: ServerConfig, listener: str) -> tuple[str, ...]:
    """The mechanisms of a listener. Raises OttlaError."""
    names: tuple[str, ...] = of_listener(config, listener, "sasl.enabled.mechanisms")
    setting = f"{PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
    if not names:
        raise OttlaError(f"{setting} is empty: name at least one of {', '.join(SUPPORTED)}")
    for each in names:
        if each not in SUPPORTED:
            raise OttlaError(
                f"listener {listener} offers the SASL mechanism {each}, which this version does not support: set "
                f"{setting} to some of {', '.join(SUPPORTED)}"
            )
    return names


def _check_mechanism(config: ServerConfig, listener: str, mechanism: str) -> None:
    handler = in_file(config, listener, mechanism, _HANDLER)
    if handler is not None and handler not in HANDLERS[mechanism]:
        raise OttlaError(
            f"{_name(listener, mechanism, _HANDLER)}: {handler} is not known, and no class is loaded by its name; "
            f"known are {', '.join(HANDLERS[mechanism])}"
        )
    module = jaas_of(config, listener, mechanism)
    if module is not None and module.name != MODULES[mechanism]:
        setting = jaas_name(listener, mechanism)
        raise OttlaError(f"{setting}: {mechanism} needs {MODULES[mechanism]}, not {module.name}")
    if mechanism == PLAIN and module is None:
        raise OttlaError(
            f"listener {listener} offers PLAIN without users: set {jaas_name(listener, mechanism)}="
            f'{jaas.PLAIN_MODULE} required user_NAME="PASSWORD";'
        )
    if mechanism == OAUTHBEARER:
        _check_oauthbearer(config, listener)
    if mechanism == GSSAPI:
        _check_gssapi(config, listener)


def _check_gssapi(config: ServerConfig, listener: str) -> None:
    """It is what a SASL listener offers where nobody says what: then a start tells that too."""
    try:
        from ottla.drivers.nodes.kerberos_settings import acceptor_of, namer_of

        acceptor_of(config, listener)
        namer_of(config, listener)
    except OttlaError as error:
        name = f"{PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
        if any(each in config.static for each in (name, "sasl.enabled.mechanisms")):
            raise
        others = ", ".join(each for each in SUPPORTED if each != GSSAPI)
        raise OttlaError(
            f"listener {listener} offers GSSAPI (Kerberos), which is Kafka's default: set {name} to some of {others}; "
            f"or, for Kerberos: {error}"
        ) from None


def _check_oauthbearer(config: ServerConfig, listener: str) -> None:
    if is_unsecured(config, listener):
        return
    try:
        import cryptography
        import jwt
    except ImportError:
        raise OttlaError('OAUTHBEARER needs more packages: pip install "ottla[security]"') from None
    assert cryptography and jwt
    jwks_settings(config, listener)
    rules(config, listener)


def is_unsecured(config: ServerConfig, listener: str) -> bool:
    """Whether tokens without signatures are accepted, which anyone can write. Raises OttlaError where that is asked for
    by Kafka's settings alone, and where tokens could not be checked."""
    from ottla.drivers.nodes.identity_provider import endpoint_of

    handler = in_file(config, listener, OAUTHBEARER, _HANDLER)
    if handler != UNSECURED_HANDLER and endpoint_of(config, listener, KEYS_URL) is not None:
        return False
    if config.ottla_sasl_oauthbearer_unsecured_tokens:
        return True
    name = _name(listener, OAUTHBEARER, KEYS_URL)
    what = "accepts tokens that nobody signed" if handler == UNSECURED_HANDLER else "has no keys to check tokens with"
    raise OttlaError(
        f"OAUTHBEARER on listener {listener} {what}: set {name} to the https URL of the identity provider's keys"
        + (f" and {_HANDLER} to {HANDLERS[OAUTHBEARER][0]}" if handler == UNSECURED_HANDLER else "")
        + f"; for tests only, {UNSECURED}=true accepts any token"
    )


def jwks_settings(config: ServerConfig, listener: str) -> JwksSettings:
    """Where and how the keys are fetched. Raises OttlaError."""
    from ottla.drivers.nodes.identity_provider import endpoint_of
    from ottla.drivers.nodes.jwks import JwksSettings

    def seconds(name: str) -> float:
        value: int = in_file(config, listener, OAUTHBEARER, name)
        return value / 1000

    endpoint = endpoint_of(config, listener, KEYS_URL)
    assert endpoint is not None
    return JwksSettings(
        endpoint,
        refresh_s=min(max(seconds("sasl.oauthbearer.jwks.endpoint.refresh.ms"), 1.0), REFRESH_SECONDS_MAX),
        backoff_s=max(seconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"), 0.01),
        backoff_s_max=max(seconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"), 0.01),
    )


def rules(config: ServerConfig, listener: str) -> Rules:
    """What tokens have to say. Raises OttlaError where they could be anybody's: as Kafka 4.4."""
    from ottla.security.sasl.jwt import Rules

    def found(name: str) -> Any:
        return in_file(config, listener, OAUTHBEARER, name)

    validator = found("sasl.oauthbearer.jwt.validator.class")
    if validator not in _VALIDATORS:
        name = _name(listener, OAUTHBEARER, "sasl.oauthbearer.jwt.validator.class")
        raise OttlaError(f"{name}: {validator} is not known, and no class is loaded by its name")
    for expected, unverified in UNVERIFIED.items():
        if not found(expected) and not found(unverified):
            what = expected.rpartition(".")[2]
            raise OttlaError(
                f"OAUTHBEARER on listener {listener} would accept tokens of any {what}: set "
                f"{_name(listener, OAUTHBEARER, expected)}, or {_name(listener, OAUTHBEARER, unverified)}=true"
            )
    return Rules(
        found("sasl.oauthbearer.expected.issuer") or None,
        found("sasl.oauthbearer.expected.audience"),
        max(found("sasl.oauthbearer.clock.skew.seconds"), 0),
        found("sasl.oauthbearer.scope.claim.name"),
        found("sasl.oauthbearer.sub.claim.name"),
    )


def _name(listener: str, mechanism: str, name: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"


# What serves a mechanism.


def _server(listener: Listener, mechanism: str) -> Callable[[], Any]:
    node = listener.node
    if mechanism == PLAIN:
        module = jaas_of(node.config, listener.name, mechanism)
        users = {} if module is None else module.users
        return lambda: PlainServer(users)
    if mechanism in scram.BY_NAME:
        users_of = ScramUsers(node, scram.BY_NAME[mechanism])
        find_token = tokens_of(node, users_of.mechanism)
        return lambda: scram.ScramServer(
            users_of.mechanism, users_of.find, users_of.made_up, random_bytes(scram.NONCE_BYTES), find_token
        )
    return _gssapi(listener) if mechanism == GSSAPI else _oauthbearer(listener)


def _gssapi(listener: Listener) -> Callable[[], Any]:
    from ottla.drivers.nodes.kerberos_settings import acceptor_of, namer_of
    from ottla.security.sasl.gssapi import GssapiServer

    config, name = listener.node.config, listener.name
    acceptor, namer = acceptor_of(config, name), namer_of(config, name)
    return lambda: GssapiServer(acceptor.context, namer.name_of)


def tokens_of(node: Running, mechanism: scram.ScramMechanism) -> scram.FindToken:
    """What finds the delegation tokens that clients show."""
    secret = node.config.delegation_token_secret_key
    if not secret:
        return lambda token_id: None
    from ottla.security.tokens import credential_of, is_expired  # most clusters have no tokens

    made = lru_cache(TOKENS_MAX)(lambda token_id: credential_of(mechanism, secret, token_id))

    def find(token_id: str) -> scram.TokenLogin | None:
        found = node.image.delegation_tokens.get(token_id)
        if found is None or is_expired(found, node.clock.now_ms()):
            return None
        owner = found.owner.partition(":")[2]
        return scram.TokenLogin(owner, found.expiration_timestamp / 1000, lambda: made(token_id))

    return find


class ScramUsers:
    """The credentials of the metadata image, for one mechanism."""

    def __init__(self, node: Member, mechanism: scram.ScramMechanism) -> None:
        self.mechanism = mechanism
        self._node = node
        self._usual: tuple[Any, scram.Shape] = (None, scram.Shape())
        """The credentials that were looked at, and the most frequent shape among them."""

    def find(self, name: str) -> scram.Credential | None:
        found = self._node.image.scram_credentials.get((name, self.mechanism.number))
        if found is None:
            return None
        return scram.Credential(found.salt, found.stored_key, found.server_key, found.iterations)

    def made_up(self, name: str) -> scram.Credential:
        """The same on all nodes of the cluster: asking two of them must not tell either."""
        node = self._node
        secret = node.config.delegation_token_secret_key or node.cluster_id
        return scram.made_up(self.mechanism, secret.encode(), name, self._usual_shape())

    def _usual_shape(self) -> scram.Shape:
        credentials = self._node.image.scram_credentials
        if self._usual[0] is not credentials:
            number, some = self.mechanism.number, islice(credentials.items(), LOOKED_AT_MAX)
            shapes = Counter(scram.shape_of(each.salt, each.iterations) for (_, kind), each in some if kind == number)
            most = max(shapes.items(), key=lambda item: (item[1], item[0]), default=(scram.Shape(), 0))
            self._usual = (credentials, most[0])
        return self._usual[1]


def _oauthbearer(listener: Listener) -> Callable[[], Any]:
    node, name = listener.node, listener.name
    config = node.config
    if is_unsecured(config, name):
        return _unsecured(listener)
    from ottla.drivers.nodes.jwks import JwksKeys
    from ottla.security.sasl.oauthbearer import OAuthBearerServer

    keys = JwksKeys(jwks_settings(config, name), node.random)
    keys.start()
    node.on_stop.append(keys.stop)
    expected = rules(config, name)

    def serve() -> OAuthBearerServer:
        known, now_s = keys.keys, node.clock.now_ms() / 1000
        return OAuthBearerServer(
            lambda token: _verified(token, known, expected, now_s, listener.loop, keys), is_quick=known.is_quick
        )

    return serve


def _verified(
    token: str, known: KeySet, expected: Rules, now_s: float, loop: asyncio.AbstractEventLoop, keys: JwksKeys
) -> Token:
    """Maybe in a thread. Raises InvalidToken."""
    from ottla.security.sasl.jwt import UnknownKey, verified

    try:
        return verified(token, known, expected, now_s)
    except UnknownKey:
        loop.call_soon_threadsafe(keys.expedite)
        raise


def _unsecured(listener: Listener) -> Callable[[], Any]:
    from ottla.security.sasl.jwt import Rules, unsecured
    from ottla.security.sasl.oauthbearer import OAuthBearerServer

    _LOG.warning(
        "ANYONE MAY LOG IN AS ANYONE: OAUTHBEARER accepts tokens that nobody signed; for tests only",
        extra=fields(listener=listener.name, setting=UNSECURED),
    )
    node = listener.node
    skew_s = in_file(node.config, listener.name, OAUTHBEARER, "sasl.oauthbearer.clock.skew.seconds")
    trusting = Rules(None, (), max(skew_s, 0))
    return lambda: OAuthBearerServer(
        lambda token: unsecured(token, trusting, node.clock.now_ms() / 1000), is_quick=True
    )
