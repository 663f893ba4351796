"""Logins of HTTP requests: by a password (Basic), a token (Bearer) or the certificate of the connection.

`ottla.http.security.protocol` says whether a login is asked for, `listener.name.http.` is the prefix of what the HTTP
ports have for themselves. Used by a node's HTTP port and by the schema registry, which differ in where passwords are
known (`Passwords`).

A wrong password costs its sender `connection.failed.authentication.delay.ms` and the connection, and takes as long as
an unknown name. A right one is not hashed again while the credential stays the same: what is kept of it is a digest
under a key of this process.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from ottla.config.listener_settings import PREFIX, of_listener
from ottla.config.listeners import HTTP
from ottla.drivers.nodes.jaas_settings import in_file, jaas_of
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.security.http_authorization import (
    BASIC,
    BEARER,
    CHALLENGES,
    BearerToken,
    Password,
    parse_authorization,
)
from ottla.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AuthenticationFailed,
    client,
    jwt,
    scram,
)
from ottla.security.sasl.plain import PlainServer
from ottla.server.http.callers import ANONYMOUS, Caller, Unauthorized
from ottla.server.listeners import sasl_listeners

if TYPE_CHECKING:
    import random as random_module

    from ottla.clock import Clock
    from ottla.config.secret import Secret
    from ottla.config.server import ServerConfig
    from ottla.server.listeners.sasl_listeners import ScramUsers
    from ottla.server.security.audit import Audit

_LOG = logging.getLogger("ottla.authentication")

USABLE: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Mechanisms whose credentials an HTTP request can bring."""
MECHANISMS: Final = "sasl.enabled.mechanisms"
CHECKS_AT_ONCE: Final = 2
"""Passwords hashed at the same time, 2 to 10 ms each: strangers must not take all threads."""
REMEMBERED_MAX: Final = 256
"""Right passwords that are remembered: scrapers and serializers send theirs with each request."""
LOGGED_PER_SECOND_MAX: Final = 10

T = TypeVar("T")
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


class Counts:
    """As those of SASL listeners."""

    def __init__(self) -> None:
        self.successes = self.failures = 0
        self.resuccesses = self.refailures = self.no_reauthentications = self.expired = 0


class Passwords(Protocol):
    """Where names and passwords are known."""

    def stamp(self, name: str) -> Hashable:
        """Changes with the credentials of a name."""
        ...

    def check_of(self, name: str) -> Callable[[Secret], str]:
        """Called on the loop; what it returns is called in a thread with a password, and returns the user's name.
        Raises AuthenticationFailed."""
        ...

    expires_s: float | None
    """How long a right password is remembered; None while its stamp is the same."""


class Tokens(Protocol):
    """What checks tokens."""

    async def subject_of(self, token: Secret) -> str:
        """Raises AuthenticationFailed."""
        ...


class _Remembered(NamedTuple):
    principal: str
    name: str
    stamp: Hashable
    until_s: float


def asks_for_login(config: ServerConfig) -> bool:
    return sasl_listeners.uses_sasl(config.ottla_http_security_protocol)


def mechanisms_of(config: ServerConfig, *, unless_set: str = "", users_elsewhere: bool = False) -> tuple[str, ...]:
    """The mechanisms that the HTTP ports take credentials of, checked; `unless_set` is the one if none is named. With
    `users_elsewhere` PLAIN needs no users in the settings. Raises OttlaError where there is none."""
    names: tuple[str, ...] = of_listener(config, HTTP, MECHANISMS)
    if unless_set and not {MECHANISMS, f"{PREFIX}{HTTP.lower()}.{MECHANISMS}"} & config.static.keys():
        names = (unless_set,)
    usable = tuple(each for each in USABLE if each in names)
    if not usable:
        raise OttlaError(
            f"the HTTP port asks for a login (ottla.http.security.protocol={config.ottla_http_security_protocol}), "
            f"but none of {', '.join(names) or 'no mechanism'} is of HTTP: set {PREFIX}{HTTP.lower()}."
            f"sasl.enabled.mechanisms to some of {', '.join(USABLE)}"
        )
    has_users = users_elsewhere and jaas_of(config, HTTP, PLAIN) is None
    sasl_listeners.check_mechanisms(config, HTTP, [each for each in usable if each != PLAIN or not has_users])
    return usable


class HttpLogins:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        config: ServerConfig,
        run: Run,
        passwords: Passwords | None,
        tokens: Tokens | None,
        *,
        checks_at_once: int = CHECKS_AT_ONCE,
    ) -> None:
        """`run` does work in a thread. Without `passwords` Basic is not taken, without `tokens` Bearer is not."""
        self.is_asked = asks_for_login(config)
        self.counts = Counts()
        self.audit_of: Callable[[], Audit | None] = lambda: None
        """Gives the audit log, which hears of logins, a remembered one excepted."""
        self.challenges = [
            CHALLENGES[scheme] for scheme, found in ((BASIC, passwords), (BEARER, tokens)) if found is not None
        ]
        self._delay_s: float = config.connection_failed_authentication_delay_ms / 1000
        self._run = run
        self._passwords = passwords
        self._tokens = tokens
        self._key = os.urandom(32)
        self._remembered: dict[bytes, _Remembered] = {}
        """Oldest first."""
        self._turns = asyncio.Semaphore(checks_at_once)
        self._logged_second = self._logged = self._unlogged = 0

    async def identify(self, authorization: str | None, certificate: str | None, host: str) -> Caller:
        """The caller that sends this header, if any, over a connection with this user's certificate, if any. A header
        goes before the certificate. Raises Unauthorized, after a while."""
        if not self.is_asked:
            return Caller(certificate or ANONYMOUS, host, True)
        if authorization is None:
            return Caller(certificate or ANONYMOUS, host, certificate is not None)
        began_s = asyncio.get_running_loop().time()
        given: Password | BearerToken | None = None
        try:
            given = parse_authorization(authorization)
            principal, is_new = await self._principal_of(given)
            audit = self.audit_of() if is_new else None
            if audit is not None:
                audit.logged_in(principal, host, HTTP, _scheme_of(given))
            return Caller(principal, host, True)
        except AuthenticationFailed as error:
            self.counts.failures += 1
            self._log(host, authorization.partition(" ")[0], error.reason)
            audit = self.audit_of()
            if audit is not None:
                claimed = given.name if isinstance(given, Password) else None
                audit.login_failed(host, HTTP, None if given is None else _scheme_of(given), error.reason, claimed)
            await asyncio.sleep(began_s + self._delay_s - asyncio.get_running_loop().time())
            raise Unauthorized("the name, password or token is wrong") from None

    async def _principal_of(self, given: Password | BearerToken) -> tuple[str, bool]:
        """The user, and whether that was found just now."""
        if isinstance(given, Password):
            return await self._by_password(given)
        if self._tokens is None:
            raise AuthenticationFailed("tokens are not taken here")
        principal = f"User:{await self._tokens.subject_of(given.token)}"
        self.counts.successes += 1
        return principal, True

    async def _by_password(self, given: Password) -> tuple[str, bool]:
        passwords = self._passwords
        if passwords is None:
            raise AuthenticationFailed("passwords are not taken here")
        digest = hmac.digest(self._key, f"{given.name}\0{given.password.reveal()}".encode(), "sha256")
        known = self._remembered.get(digest)
        now_s = asyncio.get_running_loop().time()
        if known is not None and known.until_s > now_s and known.stamp == passwords.stamp(given.name):
            return known.principal, False
        async with self._turns:
            stamp, check = passwords.stamp(given.name), passwords.check_of(given.name)
            principal = f"User:{await self._run(lambda: check(given.password))}"
        self._remembered.pop(digest, None)
        while len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.pop(next(iter(self._remembered)))
        until_s = float("inf") if passwords.expires_s is None else now_s + passwords.expires_s
        self._remembered[digest] = _Remembered(principal, given.name, stamp, until_s)
        self.counts.successes += 1
        return principal, True

    def _log(self, host: str, scheme: str, reason: str) -> None:
        """A flood of failures must not fill the disk."""
        second = int(asyncio.get_running_loop().time())
        if second != self._logged_second:
            self._logged_second, self._logged = second, 0
        self._logged += 1
        if self._logged > LOGGED_PER_SECOND_MAX:
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        shown = scheme if scheme.capitalize() in CHALLENGES else None
        found = fields(client=host, listener=HTTP, mechanism=shown, reason=reason, unlogged=unlogged or None)
        _LOG.info("authentication failed", extra=found)


def _scheme_of(given: Password | BearerToken) -> str:
    return BASIC if isinstance(given, Password) else BEARER


class KnownPasswords:
    """Users of PLAIN, from the settings, and of SCRAM, from the metadata image."""

    expires_s: float | None = None

    def __init__(self, plain: Mapping[str, Secret], scram_users: Sequence[ScramUsers]) -> None:
        self._plain = plain
        self._scram = scram_users

    @classmethod
    def of(
        cls, config: ServerConfig, mechanisms: Sequence[str], users_of: Callable[[scram.ScramMechanism], ScramUsers]
    ) -> KnownPasswords | None:
        """None where no mechanism has passwords. Raises OttlaError."""
        scram_users = [users_of(scram.BY_NAME[each]) for each in mechanisms if each in scram.BY_NAME]
        plain = plain_users(config, mechanisms)
        return cls(plain, scram_users) if scram_users or PLAIN in mechanisms else None

    def stamp(self, name: str) -> Hashable:
        return tuple(users.find(name) for users in self._scram)

    def check_of(self, name: str) -> Callable[[Secret], str]:
        having = [users for users in self._scram if users.find(name) is not None] or self._scram[:1]
        checks = [_scram_check(users, name) for users in having]

        def check(password: Secret) -> str:
            if (user := plain_user(self._plain, name, password)) is not None:
                return user
            failure = AuthenticationFailed(reason="a wrong password or an unknown name")
            for each in checks:
                try:
                    return each(password)
                except AuthenticationFailed as error:
                    failure = error
            raise failure

        return check


def plain_users(config: ServerConfig, mechanisms: Sequence[str]) -> Mapping[str, Secret]:
    """The users of the JAAS text of the HTTP ports. Raises OttlaError."""
    module = jaas_of(config, HTTP, PLAIN) if PLAIN in mechanisms else None
    return {} if module is None else module.users


def plain_user(users: Mapping[str, Secret], name: str, password: Secret) -> str | None:
    server = PlainServer(users)
    try:
        server.step(f"\0{name}\0{password.reveal()}".encode())
    except AuthenticationFailed:
        return None
    return server.user


def _scram_check(users: ScramUsers, name: str) -> Callable[[Secret], str]:
    """Both ends of a SCRAM login, so that a password counts here exactly if it does on a listener. The first message
    is answered now; what hashes is left for a thread."""
    server = scram.ScramServer(users.mechanism, users.find, users.made_up, os.urandom(scram.NONCE_BYTES))
    nonce = os.urandom(scram.NONCE_BYTES)
    challenge = server.step(client.ScramClient(users.mechanism, name, "", nonce).first())

    def check(password: Secret) -> str:
        exchange = client.ScramClient(users.mechanism, name, password.reveal(), nonce)
        final = exchange.step(challenge)
        assert final is not None, "SCRAM has two messages"
        server.step(final)
        assert server.user is not None, "else it has raised"
        return server.user

    return check


class JwksTokens:
    """Tokens that an identity provider has signed, as OAUTHBEARER has them."""

    def __init__(self, config: ServerConfig, clock: Clock, random: random_module.Random, run: Run) -> None:
        """Raises OttlaError."""
        from ottla.drivers.nodes.jwks import JwksKeys

        self.keys = JwksKeys(sasl_listeners.jwks_settings(config, HTTP), random)
        self._expected = sasl_listeners.rules(config, HTTP)
        self._clock = clock
        self._run = run

    async def subject_of(self, token: Secret) -> str:
        known, now_s = self.keys.keys, self._clock.now_ms() / 1000

        def check() -> jwt.Token:
            return jwt.verified(token.reveal(), known, self._expected, now_s)

        try:
            quick = known.is_quick and len(token) <= TOKEN_BYTES_QUICK
            found: jwt.Token = check() if quick else await self._run(check)
        except jwt.InvalidToken as error:
            if isinstance(error, jwt.UnknownKey):
                self.keys.expedite()
            raise AuthenticationFailed(reason=str(error)) from None
        return found.subject


TOKEN_BYTES_QUICK: Final = 8192
"""A longer one takes a fraction of a millisecond to parse."""


class UnsignedTokens:
    """Tokens that nobody signed (`ottla.sasl.oauthbearer.unsecured.tokens`), for tests only."""

    def __init__(self, config: ServerConfig, clock: Clock) -> None:
        skew_s = in_file(config, HTTP, OAUTHBEARER, "sasl.oauthbearer.clock.skew.seconds")
        self._trusting = jwt.Rules(None, (), max(skew_s, 0))
        self._clock = clock
        _LOG.warning(
            "ANYONE MAY LOG IN AS ANYONE: OAUTHBEARER accepts tokens that nobody signed; for tests only",
            extra=fields(listener=HTTP, setting=sasl_listeners.UNSECURED),
        )

    async def subject_of(self, token: Secret) -> str:
        try:
            return jwt.unsecured(token.reveal(), self._trusting, self._clock.now_ms() / 1000).subject
        except jwt.InvalidToken as error:
            raise AuthenticationFailed(reason=str(error)) from None


def tokens_of(
    config: ServerConfig, mechanisms: Sequence[str], clock: Clock, random: random_module.Random, run: Run
) -> JwksTokens | UnsignedTokens | None:
    """None where tokens are not taken. Raises OttlaError."""
    if OAUTHBEARER not in mechanisms:
        return None
    if sasl_listeners.is_unsecured(config, HTTP):
        return UnsignedTokens(config, clock)
    return JwksTokens(config, clock, random, run)
