"""Logins: a session on the server for each, and a signed cookie that names it.

A login is right if a broker takes it, and from then on the brokers are asked as that user. The password, or the tokens
of an identity provider, stay in the session's memory, for connections are made again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from itsdangerous import BadSignature, Signer

from ottla.client.config import ClientConfig
from ottla.client.security import Login, SecurityFailure
from ottla.config.secret import Secret
from ottla.console.access.bearer import Bearer
from ottla.console.asking import User
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey

COOKIE: Final = "ottla_console"
LIFE_S: Final = 12 * 3600.0
IDLE_S: Final = 2 * 3600.0
SESSIONS_MAX: Final = 1_000
"""Beyond, the one that was used longest ago ends."""
NAME_MAX: Final = 1_000
"""Characters of a name or password."""
_PASSWORDS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class WrongLogin(Exception):
    """No broker takes the name and password."""


@dataclass
class Session:
    id: str
    user: User
    began: float
    used: float
    """Both by the monotonic clock."""
    digest: bytes | None = None
    """Name and password, or the token, of a program, which sends them with each request."""


class Sessions:
    """All logins of this process; from any thread."""

    def __init__(self, config: ClientConfig, make: Callable[[str | None, ClientConfig], User]) -> None:
        """`config` has the mechanism and the TLS of the cluster, and a login that is never used."""
        self._config = config
        self._make = make
        self._signer = Signer(secrets.token_bytes(32), salt="ottla.console.session")
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._by_id: dict[str, Session] = {}
        """In the order of their last use."""
        self._by_digest: dict[bytes, str] = {}

    def log_in(self, name: str, password: str) -> tuple[Session, str]:
        """A new session and the value of its cookie. Raises WrongLogin, OSError where no broker answers."""
        user = self._checked(name, password)
        session = self._add(user, None)
        return session, self._signer.sign(session.id).decode()

    def log_in_with(self, bearer: Bearer) -> tuple[Session, str]:
        """The same for the tokens of an identity provider. Raises WrongLogin, OSError."""
        session = self._add(self._shown(bearer), None)
        return session, self._signer.sign(session.id).decode()

    def of_token(self, token: str) -> Session | None:
        """The session of a program that has shown this token before."""
        with self._lock:
            known = self._by_digest.get(self._digest_of_token(token))
        return None if known is None else self._used(known)

    def add_token(self, token: str, bearer: Bearer) -> Session:
        """Raises WrongLogin, OSError."""
        return self._add(self._shown(bearer), self._digest_of_token(token))

    def _digest_of_token(self, token: str) -> bytes:
        return hmac.digest(self._key, f"token:{token}".encode(), hashlib.sha256)

    def of_cookie(self, value: str) -> Session | None:
        try:
            found = self._signer.unsign(value).decode()
        except (BadSignature, UnicodeDecodeError):
            return None
        return self._used(found)

    def of_password(self, name: str, password: str) -> Session:
        """The session of a program that shows name and password with each request. Raises as `log_in`."""
        digest = hmac.digest(self._key, f"password:{len(name)}:{name}{password}".encode(), hashlib.sha256)
        with self._lock:
            known = self._by_digest.get(digest)
        session = None if known is None else self._used(known)
        return self._add(self._checked(name, password), digest) if session is None else session

    def end(self, session: Session) -> None:
        with self._lock:
            if session.id in self._by_id:
                self._drop(session.id)
        if session.user.bearer is not None:
            session.user.bearer.end()
        session.user.brokers.close()

    def close(self) -> None:
        for each in list(self._by_id.values()):
            self.end(each)

    def _checked(self, name: str, password: str) -> User:
        if not name or len(name) > NAME_MAX or len(password) > NAME_MAX or "\0" in name + password:
            raise WrongLogin("name and password must be given")
        for mechanism in mechanisms_of(self._config):
            config = replace(
                self._config,
                security=replace(self._config.security, login=Login(mechanism, name, Secret(password))),
            )
            user = self._make(name, config)
            try:
                user.brokers.ask_any(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
            except SecurityFailure as failure:
                user.brokers.close()
                if failure.code is ErrorCode.unsupported_sasl_mechanism:
                    continue
                if failure.code is ErrorCode.sasl_authentication_failed:
                    raise WrongLogin("the brokers do not take this name and password") from None
                raise ConnectionError(failure.sentence) from None
            except BaseException:
                user.brokers.close()
                raise
            return user
        raise ConnectionError("the brokers offer no login by name and password that this console may use")

    def _shown(self, bearer: Bearer) -> User:
        """A user whom a broker takes by the token."""
        name, title = bearer.identity.name, bearer.provider.settings.title
        login = Login("OAUTHBEARER", name or "", bearer=bearer)
        user = self._make(name, replace(self._config, security=replace(self._config.security, login=login)))
        try:
            user.brokers.ask_any(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
        except SecurityFailure as failure:
            user.brokers.close()
            if failure.code is ErrorCode.unsupported_sasl_mechanism:
                raise WrongLogin("the brokers offer no login by tokens (OAUTHBEARER)") from None
            if failure.code is ErrorCode.sasl_authentication_failed:
                raise WrongLogin(f"the brokers do not take the token of {title}") from None
            raise ConnectionError(failure.sentence) from None
        except BaseException:
            user.brokers.close()
            raise
        return user

    def _add(self, user: User, digest: bytes | None) -> Session:
        now = time.monotonic()
        session = Session(secrets.token_urlsafe(24), user, now, now, digest)
        gone: list[Session] = []
        with self._lock:
            over = [each.id for each in self._by_id.values() if _is_over(each, now)]
            gone.extend(self._drop(each) for each in over)
            while len(self._by_id) >= SESSIONS_MAX:
                gone.append(self._drop(next(iter(self._by_id))))
            self._by_id[session.id] = session
            if digest is not None:
                self._by_digest[digest] = session.id
        for each in gone:
            each.user.brokers.close()
        return session

    def _used(self, session_id: str) -> Session | None:
        now = time.monotonic()
        with self._lock:
            session = self._by_id.pop(session_id, None)
            if session is None:
                return None
            self._by_id[session_id] = session
            if not _is_over(session, now):
                session.used = now
                return session
            self._drop(session_id)
        session.user.brokers.close()
        return None

    def _drop(self, session_id: str) -> Session:
        session = self._by_id.pop(session_id)
        if session.digest is not None:
            self._by_digest.pop(session.digest, None)
        return session


def _is_over(session: Session, now: float) -> bool:
    if session.user.bearer is not None and session.user.bearer.is_over:
        return True
    return now - session.began > LIFE_S or now - session.used > IDLE_S


def mechanisms_of(config: ClientConfig) -> list[str]:
    """Mechanisms to try, the configured one first. A password goes to a broker as it is (PLAIN) only if the settings
    name PLAIN, or over TLS."""
    login, protocol = config.security.login, config.security.protocol
    own = [] if login is None or login.mechanism not in ("PLAIN", *_PASSWORDS) else [login.mechanism]
    plain = ["PLAIN"] if protocol == "SASL_SSL" else []
    return list(dict.fromkeys([*own, *_PASSWORDS, *plain]))
