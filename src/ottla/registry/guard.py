"""Protection of an instance: TLS of its port, logins, and limits on connections before a client is known.

The settings are those of a node's HTTP port, by the same names (`ottla.http.security.protocol`, `listener.name.http.`,
`ssl.`, `sasl.`, `super.users`): a node's `server.properties` does as it is. Passwords are checked by logging in at the
brokers, so that users are those of the cluster, whatever cluster that is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from ottla.client.config import ClientConfig, parse_addresses, split_address
from ottla.client.connection import Connection
from ottla.client.security import Login, Security, SecurityFailure
from ottla.clock import SystemClock
from ottla.config.listener_settings import of_listener
from ottla.config.listeners import HTTP
from ottla.config.server import ServerConfig
from ottla.errors import ErrorCode, OttlaError
from ottla.registry.guarded import GuardedProtocol, PortTls
from ottla.registry.port_settings import config_of, refuse_open
from ottla.registry.rights import ALL, Rights, UserRights
from ottla.registry.rules import Rules
from ottla.security.principal_mapping import NoMatchingRule
from ottla.security.sasl import OAUTHBEARER, PLAIN, AuthenticationFailed
from ottla.server.http import logins
from ottla.server.http.callers import ANONYMOUS, Caller

if TYPE_CHECKING:
    from ottla.config.secret import Secret

_LOG = logging.getLogger("ottla.registry")

BODY_SECONDS_MAX: Final = 30.0
"""For the body of a request."""
PASSWORD_S: Final = 60.0
"""How long a right password is not asked for at the brokers again: what a deleted user or a changed password may still
do for so long."""
CHECKS_AT_ONCE: Final = 16
"""Logins at the brokers at the same time; one that fails is answered after a tenth of a second."""
CHECK_SECONDS_MAX: Final = 10.0


class Guard:
    """The security of an instance's port. Methods belong to the event loop's thread unless they say otherwise."""

    def __init__(self, settings: Mapping[str, str], host: str, port: int, bootstrap: str, security: Security) -> None:
        """Raises OttlaError for settings by which nobody could log in, or everybody could do everything."""
        config = config_of(settings, host, port)
        protocol: str = config.ottla_http_security_protocol
        self.logins: logins.HttpLogins | None = None
        """None where no login is asked for."""
        self.connections: dict[GuardedProtocol, None] = {}
        self._rules: Rules | None = None
        self._keys: Any = None
        refuse_open(config, host)
        self._tls = PortTls(config)
        self.is_secured = self._tls.is_secured
        if logins.asks_for_login(config):
            self.logins = self._logins(config, bootstrap, security)
        shows = protocol == "SSL" and of_listener(config, HTTP, "ssl.client.auth") != "none"
        if self.logins is not None or shows or config.authorizer_class_name:
            self._rules = Rules(bootstrap, security, config)

    def _logins(self, config: ServerConfig, bootstrap: str, security: Security) -> logins.HttpLogins:
        own = "" if security.login is None else security.login.mechanism
        mechanisms = logins.mechanisms_of(config, unless_set=own, users_elsewhere=True)
        tokens = logins.tokens_of(config, mechanisms, SystemClock(), random.Random(), anyio.to_thread.run_sync)
        self._keys = tokens.keys if isinstance(tokens, logins.JwksTokens) else None
        named = [each for each in mechanisms if each != OAUTHBEARER]
        passwords = BrokerPasswords(config, named, bootstrap, security) if named else None
        return logins.HttpLogins(config, anyio.to_thread.run_sync, passwords, tokens, checks_at_once=CHECKS_AT_ONCE)

    def open(self) -> None:
        """Read the ACLs; from any thread. Raises OttlaError, OSError."""
        if self._rules is not None:
            self._rules.start()

    def close(self) -> None:
        """From any thread, after the loop's end."""
        if self._rules is not None:
            self._rules.stop()

    async def start(self) -> None:
        """Watch certificates and fetch the keys of tokens from now on."""
        await self._tls.start()
        if self._keys is not None:
            self._keys.start()

    async def stop(self) -> None:
        if self._keys is not None:
            self._keys.stop()
        await self._tls.stop()

    @property
    def client_context(self) -> Any:
        """What https to other instances is made with; None without TLS."""
        tls = self._tls.node_tls
        return None if tls is None else tls.listeners[HTTP].contexts.client

    def protocol(self, **arguments: Any) -> asyncio.BaseProtocol:
        """Makes the protocol of a connection, as uvicorn asks for it."""
        return self._tls.protocol(self, arguments)

    def user_of(self, subject: str) -> str | None:
        """The user of a client's certificate; None where the rules give its subject no name."""
        tls = self._tls.node_tls
        mapper = None if tls is None else tls.mapper_of(HTTP)
        try:
            return f"User:{subject if mapper is None else mapper.name_of(subject)}"
        except NoMatchingRule:
            return None

    async def identify(self, authorization: str | None, connection: GuardedProtocol | None, host: str) -> Caller:
        """The sender of a request. Raises Unauthorized, OSError where the brokers cannot be asked."""
        certificate = None if connection is None else connection.user
        if self.logins is None:
            return Caller(certificate or ANONYMOUS, host, True)
        caller = await self.logins.identify(authorization, certificate, host)
        if connection is not None:
            connection.is_known = caller.is_known
        return caller

    def is_super_user(self, caller: Caller) -> bool:
        authorizer = None if self._rules is None else self._rules.authorizer
        return authorizer is not None and caller.principal in authorizer.super_users

    def rights_of(self, caller: Caller) -> Rights:
        rules = self._rules
        return ALL if rules is None else UserRights(caller.principal, caller.host, lambda: rules.authorizer)


class BrokerPasswords:
    """Users of the cluster: a name and a password are right if a broker takes them."""

    expires_s: float | None = PASSWORD_S

    def __init__(self, config: ServerConfig, mechanisms: list[str], bootstrap: str, security: Security) -> None:
        """Raises OttlaError where the brokers take no passwords."""
        self._own = logins.plain_users(config, mechanisms)
        self._mechanisms = [each for each in mechanisms if each != PLAIN or not self._own]
        self._addresses = [split_address(each) for each in parse_addresses(bootstrap)]
        self._security = security
        if self._mechanisms and not security.protocol.startswith("SASL_"):
            raise OttlaError(
                "the registry checks passwords by logging in at the brokers, and its own connection to them has no "
                f"login (security.protocol={security.protocol}): give it a client's settings with SASL, users of PLAIN "
                "in listener.name.http.plain.sasl.jaas.config, tokens (OAUTHBEARER), or client certificates "
                "(ottla.http.security.protocol=SSL)"
            )

    def stamp(self, name: str) -> Hashable:
        return None

    def check_of(self, name: str) -> Callable[[Secret], str]:
        def check(password: Secret) -> str:
            user = logins.plain_user(self._own, name, password)
            if user is not None:
                return user
            refused = AuthenticationFailed(reason="a wrong password or an unknown name")
            for mechanism in self._mechanisms:
                try:
                    self._log_in(Login(mechanism, name, password))
                    return name
                except SecurityFailure as failure:
                    if failure.code is not ErrorCode.sasl_authentication_failed:
                        raise ConnectionError(failure.sentence) from None
                    refused = AuthenticationFailed(reason=failure.sentence)
            raise refused

        return check

    def _log_in(self, login: Login) -> None:
        """Raises SecurityFailure, OSError where no broker answers."""
        security = replace(self._security, login=login)
        config = ClientConfig(
            (),
            "schema-registry",
            request_timeout_s=CHECK_SECONDS_MAX,
            connect_timeout_s=CHECK_SECONDS_MAX,
            security=security,
        )
        failure: OSError | None = None
        for host, port in self._addresses:
            try:
                Connection(host, port, config).close()
                return
            except OSError as error:
                failure = error
        assert failure is not None, "there is an address"
        raise failure
