"""How a registry is reached: certificates and a login, by the names of Confluent's clients.

    schema.registry.ssl.ca.location, .ssl.truststore.*, .ssl.keystore.*   as `ssl.*` of a Kafka client; without any the
                                                  certificates that this client trusts at the brokers, else the system's
    schema.registry.basic.auth.user.info          NAME:PASSWORD; also in the URL
    schema.registry.basic.auth.credentials.source USER_INFO, URL, or SASL_INHERIT: the client's own login at the brokers
    schema.registry.bearer.auth.token             a token

A login is inherited only where that is said, and is sent only over https whose certificate is checked, or on this
machine: the URL of a registry may be anybody's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.client import stores, tls
from ottla.client.properties import read_file, replaced, settings_of
from ottla.client.security import Security, SecurityFailure, Store, Tls
from ottla.client.security_settings import SECURITY_SETTINGS, WrongSecurity, is_security, normalized, security_of
from ottla.formats.errors import SchemaError

if TYPE_CHECKING:
    import httpx

URL: Final = "schema.registry.url"
PREFIX: Final = "schema.registry."
USER_INFO: Final = "schema.registry.basic.auth.user.info"
SOURCE: Final = "schema.registry.basic.auth.credentials.source"
TOKEN: Final = "schema.registry.bearer.auth.token"
INHERITED: Final = "SASL_INHERIT"
_SOURCES: Final = ("USER_INFO", "URL", INHERITED)
NAMES: Final = (
    USER_INFO,
    SOURCE,
    TOKEN,
    *(f"{PREFIX}{name}" for name in SECURITY_SETTINGS if name.startswith(("ssl.", "enable.ssl."))),
)
"""Options of a source or sink."""
_CLIENT_CONFIG: Final = "client.config"
_KAFKA: Final = "kafka."


def of_file(settings: Mapping[str, str]) -> dict[str, str]:
    """What a client's file says of registries, also by Confluent's names without a prefix."""
    found = {name: value for name, value in settings.items() if name.startswith(PREFIX)}
    for name in (USER_INFO, SOURCE):
        value = settings.get(name.removeprefix(PREFIX))
        if value is not None:
            found.setdefault(name, value)
    return found


def inherited(options: Mapping[str, str], *, needs_login: bool = True) -> tuple[Security, dict[str, str]]:
    """The security of the client itself, and what its file says of registries: options `kafka.*`, the file of
    `client.config`, the environment. Raises SchemaError."""
    given = {
        name.removeprefix(_KAFKA): value
        for name, value in options.items()
        if name.startswith(_KAFKA) and is_security(name.removeprefix(_KAFKA))
    }
    named = options.get(_CLIENT_CONFIG)
    try:
        file = {} if named is None else read_file(named.strip())
        beside = os.environ.get("OTTLA_CLIENT_CONFIG")
        others = of_file(read_file(beside)) if beside else {}
        security = security_of(settings_of(replaced(normalized(file), normalized(given))), needs_login=needs_login)
        return security, {**others, **of_file(file)}
    except WrongSecurity as error:
        raise SchemaError(str(error)) from None


def carried(options: Mapping[str, str], security: Security | None = None) -> dict[str, str]:
    """The options with all in them that a registry is asked with: texts of certificates in place of files, and the
    login that is inherited. Other machines need no file then. Raises SchemaError."""
    known, of_client = inherited(options, needs_login=security is None)
    found = {**of_client, **options}
    known = security or known
    source = found.pop(SOURCE, "USER_INFO").upper()
    if source not in _SOURCES:
        raise SchemaError(f"{SOURCE}: expected one of {', '.join(_SOURCES)}, got {source}")
    if source == INHERITED and USER_INFO not in found and TOKEN not in found:
        found |= _login(found[URL], known)
    if _is_https(found[URL]):
        own = tls_of(found)
        found = {name: value for name, value in found.items() if not _is_tls(name)} | _texts(own or known.tls)
    return found


def _is_https(urls: str) -> bool:
    return any(each.strip().startswith("https://") for each in urls.split(","))


def _is_tls(name: str) -> bool:
    return name.startswith((f"{PREFIX}ssl.", f"{PREFIX}enable.ssl."))


def tls_of(options: Mapping[str, str]) -> Tls | None:
    """None where the options say nothing of it. Raises SchemaError."""
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if _is_tls(name)}
    if not given:
        return None
    try:
        return security_of({**normalized(given), "security.protocol": "SSL"}).tls
    except WrongSecurity as error:
        raise SchemaError(f"{PREFIX}{error}") from None


def _login(urls: str, security: Security) -> dict[str, str]:
    from ottla.client import http  # each planner of Spark imports this module, and few have a login for HTTP

    login = security.login
    if login is None or not (login.username or login.endpoint or login.kerberos):
        raise SchemaError(f"{SOURCE}: {INHERITED}, and this client has no login (sasl.mechanism)")
    for url in urls.split(","):
        scheme, _, rest = url.strip().partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].rpartition(":")[0] or rest
        if not http.may_send(host, security, is_https=scheme == "https"):
            raise SchemaError(
                f"{SOURCE}: {INHERITED}, and {scheme}://{host} is not https with a checked certificate: the client's "
                "password is not sent there"
            )
    try:
        given = http.authorization(login)
    except (SecurityFailure, OSError) as error:
        raise SchemaError(str(error)) from None
    if given is None:
        raise SchemaError(f"{SOURCE}: {INHERITED}, and {login.mechanism} has no password for it")
    if given.startswith("Bearer "):
        return {TOKEN: given.removeprefix("Bearer ")}
    return {USER_INFO: f"{login.username}:{login.password.reveal()}"}


def _texts(found: Tls | None) -> dict[str, str]:
    """Options with certificates and keys as texts. Raises SchemaError."""
    if found is None:
        return {}
    texts = {"ssl.endpoint.identification.algorithm": "https" if found.is_name_checked else "none"}
    if not found.is_verified:
        texts["enable.ssl.certificate.verification"] = "false"
    try:
        if found.trusted is not None:
            texts["ssl.ca.pem"] = _pem(found.trusted)
        if found.certificate is not None and found.key is not None:
            identity = stores.identity(found.certificate, found.key, found.key_password)
            texts |= {"ssl.certificate.pem": identity.pem, "ssl.key.pem": identity.pem}
            if identity.password:
                texts["ssl.key.password"] = identity.password
    except SecurityFailure as error:
        raise SchemaError(f"{PREFIX}ssl: {error.sentence}") from None
    return {f"{PREFIX}{name}": text for name, text in texts.items()}


def _pem(store: Store) -> str:
    import ssl

    return "".join(map(ssl.DER_cert_to_PEM_cert, stores.trusted(store)))


def client_of(urls: str, options: Mapping[str, str], timeout_s: float) -> httpx.Client:
    """The HTTP client for options that are `carried`, for `httpx_answers.ask`. Raises SchemaError."""
    import httpx

    from ottla.httpx_answers import bounded

    user, _, password = options.get(USER_INFO, "").partition(":")
    token = options.get(TOKEN)
    context: Any = True
    if _is_https(urls):
        try:
            context = tls.context(tls_of(options) or Tls())
        except SecurityFailure as error:
            raise SchemaError(f"{PREFIX}ssl: {error.sentence}") from None
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    auth = (user, password) if user else None
    return bounded(httpx.Client(auth=auth, headers=headers, verify=context, timeout=timeout_s))
