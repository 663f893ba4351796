"""Runs the console: listens, serves HTTP until it is stopped, and closes its connections to the brokers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import PLAINTEXT, Security
from ottla.console.access.provider_settings import Oidc, read_oidc
from ottla.console.access.roles import Roles
from ottla.console.access.rule_files import RuleFiles, roles_of_file
from ottla.console.asking import Asking, Site, User
from ottla.console.brokers import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Brokers
from ottla.console.masks import Masks, read_masks
from ottla.console.records.searches import Searches
from ottla.console.sampling import Sampler, sample
from ottla.console.snapshots import Snapshots
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.registry.port_settings import CannotStart

if TYPE_CHECKING:
    from ottla.console.access.logins import Logins
    from ottla.console.sessions import Sessions
    from ottla.registry.guarded import GuardedProtocol

_LOG = logging.getLogger("ottla.console")

DEFAULT_PORT: Final = 8080
REQUESTS_AT_ONCE: Final = 64
"""Threads that wait for brokers: those of all pages that are read at the same time."""
READS_AHEAD: Final = 4
"""Threads that read snapshots again while the old ones are shown."""
READ_AHEAD_S: Final = 5.0
"""How long the console waits for the cluster before it says where it is; connections are taken meanwhile."""
_STOP_S: Final = 2
CLIENT_FILE_HINT: Final = "secure the cluster and name its settings with --config"
CERTIFICATE_HINT: Final = "give it a certificate with --http-config"
PROXY_HINT: Final = "say so: --behind-proxy"
OIDC_HINT: Final = "in the file of --config"
"""What `ottla console` advises; a program with other options puts its own in their place."""
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Options:
    """Options of a console."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 is any free one."""
    security: Security = PLAINTEXT
    """Security of the brokers; its login, where it has one, says how users log in, and is not used itself."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of a client of the schema registry, `schema.registry.url` among them; empty for none."""
    masks: Path | None = None
    roles: Path | None = None
    """A file of roles; None: the cluster's ACLs alone decide."""
    oidc: Path | None = None
    """A file of identity providers."""
    host_names: tuple[str, ...] = ()
    """Further names by which browsers call it."""
    http: Mapping[str, str] = field(default_factory=dict, repr=False)
    """TLS of its port: settings of a node's HTTP port. They may hold secrets."""
    is_behind_proxy: bool = False
    """A proxy before it speaks TLS."""
    is_read_only: bool = False
    """Whether nothing can be changed."""
    pipelines: Path | None = None
    """Where pipelines of this machine keep their status; None for their default."""
    log_dirs: tuple[str, ...] = ()
    """Log directories of nodes on this machine, which searches read in place of Fetches."""

    @property
    def asks_for_login(self) -> bool:
        return self.security.login is not None


class Console:
    """A console in this process: `serve` until `stop` is called from another thread."""

    def __init__(self, options: Options) -> None:
        """Raises CannotStart; OttlaError for masks or TLS that cannot be read."""
        try:
            from ottla.console.app import Application
            from ottla.registry.http_server import HttpServer
        except ImportError as error:
            raise CannotStart(f"{error.name} is not installed: pip install 'ottla[console]'") from error
        self.options = options
        self._door = Door(options)
        masks, oidc, roles = rules_of(options, is_secured=self._door.is_secured)
        self._requests = ThreadPoolExecutor(REQUESTS_AT_ONCE, "console request")
        self._ahead = ThreadPoolExecutor(READS_AHEAD, "console ahead")
        self._site = replace(_site(options, masks), roles=roles)
        self._server = HttpServer(self._door, options.host, options.port, stop_s=_STOP_S)
        self.port = self._server.port
        config = ClientConfig(
            parse_addresses(options.bootstrap),
            "ottla-console",
            None,
            REQUEST_TIMEOUT_S,
            CONNECT_TIMEOUT_S,
            security=options.security,
            software="ottla-console",
        )
        self._rule_files = RuleFiles(self._site, options.masks, options.roles, _provider_ids(oidc))
        self._sampler = Sampler(self._site)
        self._sessions: Sessions | None = None
        self._anonymous: User | None = None
        logins = None
        is_secure = self._door.is_secured or options.is_behind_proxy
        if options.asks_for_login:
            from ottla.console.sessions import Sessions

            self._sessions = Sessions(config, self._user)
            if oidc is not None:
                logins = _logins(oidc, oidc.url or self.url, self._site, self._sessions, is_secure=is_secure)
            hosts = None
        else:
            self._anonymous = self._user(None, config)
            hosts = frozenset((*_LOOPBACK_NAMES, options.host, *options.host_names))
        self._application = Application(
            self._site,
            sessions=self._sessions,
            anonymous=self._anonymous,
            hosts=hosts,
            is_secure=is_secure,
            logins=logins,
            takes_passwords=oidc is None or oidc.takes_passwords,
        )

    def _user(self, name: str | None, config: ClientConfig) -> User:
        made = User(name, Brokers(config, self._requests), Snapshots(self._ahead))
        self._sampler.watch(made)
        return made

    @property
    def url(self) -> str:
        return self._server.url

    def read_ahead(self) -> None:
        """Read the cluster, so that the first page is as fast as the others. What fails is shown on the page."""
        if self._anonymous is None:
            return
        try:
            asking = Asking(self._anonymous, self._site, {})
            asking.cluster()
            sample(self._anonymous, self._site)
        except (KafkaError, OSError) as error:
            _LOG.warning("the cluster cannot be read yet", extra=fields(error=str(error)))

    def serve(self, serving: Callable[[], None] = lambda: None) -> None:
        """Until `stop`; the caller's thread has no event loop. `serving` is called when the first page can be fast."""
        reading = threading.Thread(target=self.read_ahead, name="console first", daemon=True)
        reading.start()
        reading.join(READ_AHEAD_S)
        self._sampler.start()
        self._rule_files.start(self._application.renew_tails)
        serving()
        try:
            self._server.run(self._application.asgi(), ending=self._application.end_tails)
        finally:
            self.close()

    def stop(self) -> None:
        """Stop the server, from any thread or from a signal handler."""
        self._server.stop()

    def close(self) -> None:
        self._server.close()
        self._rule_files.stop()
        self._sampler.stop()
        if self._sessions is not None:
            self._sessions.close()
        if self._anonymous is not None:
            self._anonymous.brokers.close()
        self._site.searches.close()
        for executor in (self._ahead, self._requests):
            executor.shutdown(wait=False, cancel_futures=True)
        if self._site.registry is not None:
            self._site.registry.close()


class Door:
    """The port: TLS where its settings say so, and the limits that the registry's connections have too."""

    def __init__(self, options: Options) -> None:
        """Raises OttlaError for settings that cannot be."""
        from ottla.registry.guarded import PortTls
        from ottla.registry.port_settings import config_of

        self._tls = PortTls(config_of(options.http, options.host, options.port))
        self.is_secured = self._tls.is_secured
        self.connections: dict[GuardedProtocol, None] = {}
        self.start, self.stop = self._tls.start, self._tls.stop

    def protocol(self, **arguments: Any) -> asyncio.BaseProtocol:
        """Makes the protocol of a connection, as uvicorn asks for it."""
        return self._tls.protocol(self, arguments)

    def user_of(self, subject: str) -> str | None:
        """A certificate is no login here: users show a name and a password."""
        return subject


def ensure_guarded(options: Options, *, is_secured: bool) -> None:
    """Raises CannotStart for a port at which strangers could see the cluster, or the passwords of its users."""
    from ottla.server.listeners.exposure import is_loopback

    if is_loopback(options.host):
        return
    where = options.host or "every interface"
    if not options.asks_for_login:
        raise CannotStart(
            f"everyone who reaches this machine could read every record: the cluster asks for no login, and {where} is "
            "not a loopback address\n"
            "  to serve this machine alone, listen on 127.0.0.1\n"
            f"  to ask for a login, {CLIENT_FILE_HINT} (docs/console.md)"
        )
    if not is_secured and not options.is_behind_proxy:
        raise CannotStart(
            f"passwords would be sent as they are: {where} is not a loopback address, and the console's port has no "
            "TLS\n"
            f"  {CERTIFICATE_HINT} (docs/console.md)\n"
            f"  or, where a proxy before it speaks TLS, {PROXY_HINT}"
        )


def ensure_oidc(options: Options, oidc: Oidc | None) -> None:
    """Raises CannotStart for logins at an identity provider that cannot be."""
    if oidc is None:
        return
    if not options.asks_for_login:
        raise CannotStart(
            "the brokers ask for no login, so they could not tell the users of an identity provider apart\n"
            f"  set security.protocol=SASL_SSL and sasl.mechanism {OIDC_HINT} (docs/console.md)"
        )
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError as error:
        raise CannotStart(f"{error.name} is not installed: pip install 'ottla[console,security]'") from error
    from ottla.server.listeners.exposure import is_loopback

    if not oidc.url and (options.is_behind_proxy or not is_loopback(options.host)):
        raise CannotStart(
            "the identity provider sends browsers back to the console by a URL that it knows\n"
            f'  say it in {options.oidc}: url = "https://console.example.com"'
        )


def rules_of(options: Options, *, is_secured: bool) -> tuple[Masks, Oidc | None, Roles]:
    """What the files of a console say. Raises OttlaError for what a console could not start with: CannotStart where
    it would be open to strangers. `is_secured`: its port has TLS."""
    ensure_guarded(options, is_secured=is_secured)
    masks = Masks() if options.masks is None else read_masks(options.masks)
    oidc = read_oidc(options.oidc) if options.oidc is not None else None
    ensure_oidc(options, oidc)
    return masks, oidc, Roles() if options.roles is None else roles_of_file(options.roles, _provider_ids(oidc))


def _provider_ids(oidc: Oidc | None) -> list[str]:
    return [] if oidc is None else [each.id for each in oidc.providers]


def _logins(oidc: Oidc, url: str, site: Site, sessions: Sessions, *, is_secure: bool) -> Logins:
    from ottla.console.access.logins import Logins
    from ottla.console.access.provider import Provider

    providers = [
        Provider(each, f"{url}/oidc/{each.id}/callback", claims=lambda: site.roles.claims) for each in oidc.providers
    ]
    return Logins(providers, sessions, site.trail, url, is_secure=is_secure)


def registry_options(url: str, security: Security) -> Mapping[str, str]:
    """Options of the registry's client, for one that is known by its address. Raises CannotStart."""
    try:
        from ottla.formats.errors import SchemaError
        from ottla.schemas import access
    except ImportError as error:
        raise CannotStart(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    try:
        return access.carried({access.URL: url}, security)
    except SchemaError as error:
        raise CannotStart(str(error)) from error


def _site(options: Options, masks: Masks) -> Site:
    site = Site(
        masks,
        searches=Searches(options.log_dirs),
        is_read_only=options.is_read_only,
        bootstrap=options.bootstrap,
        pipelines=options.pipelines,
    )
    if not options.registry:
        return site
    try:
        from ottla.console.decoding import PageRegistry, Schemas
        from ottla.schemas import access, client
    except ImportError as error:
        raise CannotStart(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    registry = PageRegistry(options.registry)
    url = client.shown(options.registry[access.URL])
    return replace(
        site, registry=registry, schemas=Schemas(registry), registry_url=url, registry_options=options.registry
    )
