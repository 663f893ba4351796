"""The certificates of one listener: loaded at the start, taken up again when their files or settings change.

A new pair is used only once it was seen to work: the key belongs to the certificate, the certificate is valid now, its
subject and alternative names are still those that clients know (`ssl.allow.dn.changes`, `ssl.allow.san.changes`), and
where the old one was accepted by the listener's own trust store, so is the new one. Until then the old one stays.
Connections keep the certificate that they began with.

Files are compared by their bytes, a few kilobytes every few seconds: so a file that is replaced, a symbolic link that
is moved (Kubernetes) and a file that is written in place are all seen, whatever their timestamps say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.config.listener_settings import PREFIX, of_listener
from ottla.drivers.nodes.tls_contexts import Loaded, Stores, load, read_stores
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.security.tls_settings import TlsSettings, tls_settings
from ottla.tls_handshakes import TlsContexts

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

_LOG = logging.getLogger("ottla.tls")

Changes = Mapping[str, str | None]
"""Dynamic settings to be tried; None removes one."""

DAY_MS: Final = 86_400_000
WARN_DAYS: Final = (1, 7, 30)
"""A warning is logged when a certificate has so many days left, once for each of them."""

CLIENT_AUTH: Final = "ssl.client.auth"

SKEW_MS: Final = 300_000
"""A certificate that begins so soon is taken: clocks differ."""


class ListenerCertificates:
    """All methods but `read` and `check` belong to the event loop's thread; these may be called in another one."""

    def __init__(
        self,
        config: ServerConfig,
        listener: str,
        read: Callable[[str], bytes],
        *,
        serves: bool,
        among_nodes: bool,
        has_login: bool = False,
    ) -> None:
        """`serves`: whether this node listens there. `among_nodes`: whether nodes connect to each other there, so that
        its certificate has to be accepted by its own trust store. `has_login`: whether clients log in by SASL."""
        self.contexts = TlsContexts()
        """Used by the networks of the listener; its fields are replaced."""
        self.listener = listener
        self.loaded: Loaded
        self.reloads = 0
        """Times that new certificates were taken up."""
        self._config = config
        self._read = read
        self._serves = serves
        self._among_nodes = among_nodes
        self._has_login = has_login
        self._refused = ""
        """Why the newest stores are not used, so that it is logged once."""
        self._warned: tuple[int, int] = (0, 0)
        """The end of the certificate that was warned of, and the days that it had left."""

    def start(self, now_ms: int) -> None:
        """Raises OttlaError for settings or stores that cannot be used."""
        try:
            loaded = load(self.read(self.settings()), serves=self._serves)
            self._check_among_nodes(loaded)
        except OttlaError as error:
            raise OttlaError(f"listener {self.listener}: {error}") from None
        if loaded.certificate is not None and loaded.certificate.not_after_ms <= now_ms:
            _LOG.error("the certificate has expired", extra=fields(listener=self.listener))
        self._use(loaded)
        self.warn(now_ms)

    def settings(self, changes: Changes | None = None) -> TlsSettings:
        """The settings of now, with `changes`. Raises OttlaError."""
        return tls_settings(lambda name: self._get(name, changes or {}))

    def _get(self, name: str, changes: Changes) -> Any:
        """Where clients log in, only the listener's own setting asks for certificates as well (KIP-684)."""
        if name == CLIENT_AUTH and self._has_login:
            own = f"{PREFIX}{self.listener.lower()}.{name}"
            config = self._config
            if (changes[own] if own in changes else config.dynamic_text(own)) is None and own not in config.static:
                return "none"
        return of_listener(self._config, self.listener, name, changes)

    def read(self, settings: TlsSettings) -> Stores:
        """Raises OttlaError."""
        return read_stores(settings, self._read)

    def check(self, stores: Stores, now_ms: int) -> Loaded:
        """What these stores give instead of those in use. Raises OttlaError where the old ones are to stay."""
        loaded = load(stores, serves=self._serves)
        old, new = self.loaded.certificate, loaded.certificate
        if new is not None and new != old:
            if new.not_after_ms <= now_ms:
                raise OttlaError("the new certificate has expired")
            if new.not_before_ms > now_ms + SKEW_MS:
                raise OttlaError("the new certificate is not valid yet")
        self._check_among_nodes(loaded)
        if not self._among_nodes and loaded.untrusted is not None and self.loaded.untrusted is None:
            raise OttlaError(f"the trust store accepts the old certificate but not the new one: {loaded.untrusted}")
        if new is None or old is None:
            return loaded
        settings = stores.settings
        if new.subject != old.subject and not settings.allows_name_changes:
            raise OttlaError(
                f"the new certificate is of {new.subject}, the old one of {old.subject}; ssl.allow.dn.changes=true "
                f"allows that"
            )
        if not new.alternative_names >= old.alternative_names and not settings.allows_alternative_name_changes:
            raise OttlaError(
                "the new certificate lacks an alternative name of the old one; ssl.allow.san.changes=true allows that"
            )
        return loaded

    def _check_among_nodes(self, loaded: Loaded) -> None:
        if self._among_nodes and loaded.untrusted is not None:
            raise OttlaError(
                f"nodes connect to each other here, but the trust store does not accept the node's own certificate: "
                f"{loaded.untrusted}"
            )

    def is_new(self, stores: Stores) -> bool:
        return stores != self.loaded.stores

    def take_up(self, loaded: Loaded) -> None:
        """Use these for the connections that are made from now on."""
        self._use(loaded)
        self.reloads += 1
        self._refused = ""
        subject = None if loaded.certificate is None else loaded.certificate.subject
        _LOG.info("certificates taken up", extra=fields(listener=self.listener, subject=subject))

    def keep(self, error: OttlaError) -> None:
        """Log why the old ones stay."""
        if self._refused != str(error):
            self._refused = str(error)
            _LOG.error(
                "new certificates are not usable, the old ones stay",
                extra=fields(listener=self.listener, error=str(error)),
            )

    def unchanged(self) -> None:
        """What is there now is what is in use."""
        self._refused = ""

    def _use(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.contexts.server = loaded.contexts.server
        self.contexts.client = loaded.contexts.client
        self.contexts.suites = loaded.contexts.suites

    def warn(self, now_ms: int) -> None:
        """Log that the certificate ends soon, if it does and that was not logged yet."""
        certificate = self.loaded.certificate
        if certificate is None:
            return
        left_days = (certificate.not_after_ms - now_ms) / DAY_MS
        due = next((days for days in WARN_DAYS if left_days <= days), 0)
        if due and self._warned != (certificate.not_after_ms, due):
            self._warned = (certificate.not_after_ms, due)
            what = "the certificate expires soon" if left_days > 0 else "the certificate has expired"
            _LOG.warning(what, extra=fields(listener=self.listener, days=round(max(left_days, 0), 1)))
