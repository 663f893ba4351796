"""Kerberos by the system's GSS-API library (MIT's), through the package gssapi: contexts, credentials, their renewal.

Everything here blocks, on files or on the key distribution center (KDC), and belongs in a thread. Nothing else imports
gssapi, which the extra `kerberos` installs.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.security.sasl import AuthenticationFailed

_LOG = logging.getLogger("ottla.authentication")

INSTALL: Final = (
    'GSSAPI (Kerberos) needs a package more: pip install "ottla[kerberos]", which compiles against the headers of MIT '
    "Kerberos (Debian, Ubuntu: apt-get install libkrb5-dev gcc)"
)
CONFIGURATION: Final = "/etc/krb5.conf"

_caches = itertools.count()


def library() -> Any:
    """The package. Raises OttlaError where it is not installed, or its C library is not there."""
    try:
        import gssapi
    except (ImportError, OSError):
        raise OttlaError(INSTALL) from None
    return gssapi


class Context:
    """A security context. Implements `SecurityContext`."""

    def __init__(self, **what: Any) -> None:
        """Keywords of `gssapi.SecurityContext`."""
        gssapi = library()
        self._error = gssapi.exceptions.GSSError
        try:
            self._context = gssapi.SecurityContext(**what)
        except self._error as error:
            raise failure(error) from None
        self._context.__DEFER_STEP_ERRORS__ = False  # else a refusal is raised by whatever is called next

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def peer(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        try:
            return self._context.step(token) or b""
        except self._error as error:
            raise failure(error) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, False).message)
        except self._error as error:
            raise failure(error) from None

    def unwrap(self, token: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(token).message)
        except self._error as error:
            raise failure(error) from None


def failure(error: Exception) -> AuthenticationFailed:
    """The library's sentence is for the own log."""
    return AuthenticationFailed(reason=_sentence(error))


def _sentence(error: Exception) -> str:
    try:
        text = error.gen_message()  # type: ignore[attr-defined]
    except Exception:  # its own texts may be missing
        text = type(error).__name__
    found = re.search(r"Minor \(\d+\): (.*)", str(text), re.DOTALL)
    return str(text if found is None else found[1]).strip()[:500]


class Acceptor:
    """The key by which a node checks tickets. The file is read for each client, so that a new key is taken up."""

    def __init__(self, keytab: str, principal: str) -> None:
        """Raises OttlaError where the file has no key of the principal."""
        gssapi = library()
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        if not os.access(keytab, os.R_OK):
            raise OttlaError(f"the keytab {keytab} cannot be read")
        try:
            self._credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": keytab}
            )
        except gssapi.exceptions.GSSError as error:
            raise OttlaError(f"the keytab {keytab} has no key of {principal}: {_sentence(error)}") from None

    def context(self) -> Context:
        """For one client."""
        return Context(creds=self._credentials, usage="accept")


class Renewal(NamedTuple):
    """Settings `sasl.kerberos.ticket.renew.*` and `sasl.kerberos.min.time.before.relogin`."""

    window_factor: float = 0.8
    jitter: float = 0.05
    seconds_min: float = 60.0


class Initiator:
    """Logs in at services: with a keytab, or with the tickets of a cache that `kinit` keeps."""

    def __init__(
        self,
        service: str,
        *,
        keytab: str | None = None,
        principal: str | None = None,
        cache: str | None = None,
        renewal: Renewal | None = None,
        share: float = 0.5,
    ) -> None:
        """`cache` is a file of tickets, None the default one; `share` of the jitter is added, from 0 to 1."""
        self.service = service
        self._keytab, self._principal, self._cache = keytab, principal, cache
        self._renewal = renewal or Renewal()
        self._share = share
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._renew_at_s = 0.0
        self._expires_at_s = 0.0

    def context(self, host: str) -> Context:
        """For a login at the service of this host. Raises AuthenticationFailed; OttlaError without the package."""
        gssapi = library()
        credentials = self.credentials()
        flags = gssapi.RequirementFlag
        return Context(
            name=gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=[flags.mutual_authentication, flags.integrity, flags.out_of_sequence_detection],
        )

    def credentials(self) -> Any:
        """With a ticket that lasts: a new one is fetched before the last one ends. Raises AuthenticationFailed."""
        with self._lock:
            now_s = time.monotonic()
            if self._credentials is None or now_s >= self._renew_at_s:
                try:
                    self._acquire(now_s)
                except AuthenticationFailed as error:
                    if self._credentials is None or now_s >= self._expires_at_s:
                        self._credentials = None
                        raise
                    self._renew_at_s = now_s + self._renewal.seconds_min
                    _LOG.warning(
                        "the Kerberos ticket could not be renewed yet; the last one is used",
                        extra=fields(principal=self._principal, error=error.reason),
                    )
            return self._credentials

    def _acquire(self, now_s: float) -> None:
        gssapi = library()
        try:
            name = None
            if self._principal is not None:
                name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(
                name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=self._store()
            )
            life_s = credentials.lifetime  # asks the KDC where there is no ticket yet
        except gssapi.exceptions.GSSError as error:
            raise failure(error) from None
        life_s = float("inf") if life_s is None else float(life_s)
        self._credentials, self._expires_at_s = credentials, now_s + life_s
        share = min(self._renewal.window_factor + self._renewal.jitter * self._share, 1.0)
        if self._keytab is None:  # kinit renews it: look again soon
            self._renew_at_s = now_s + min(life_s, self._renewal.seconds_min)
        else:
            self._renew_at_s = now_s + min(max(life_s * share, self._renewal.seconds_min), life_s)

    def _store(self) -> Mapping[str, str] | None:
        """A keytab has a cache of its own in memory for each ticket, else the library would not fetch a new one."""
        if self._keytab is not None:
            cache = f"MEMORY:ottla-{os.getpid()}-{next(_caches)}"
            return {"client_keytab": self._keytab, "ccache": cache}
        return None if self._cache is None else {"ccache": self._cache}


def default_realm() -> str:
    """`default_realm` of the system's configuration (KRB5_CONFIG); empty where it says none."""
    for path in os.environ.get("KRB5_CONFIG", CONFIGURATION).split(":"):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = re.search(r"^\s*\[libdefaults\](?:(?!^\s*\[).)*?^\s*default_realm\s*=\s*(\S+)", text, re.M | re.S)
        if found is not None:
            return found[1]
    return ""
