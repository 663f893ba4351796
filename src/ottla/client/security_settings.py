"""Settings of security: Kafka's names (`ssl.truststore.location`) and librdkafka's (`ssl.ca.location`) alike.

A setting of `security.`, `ssl.` or `sasl.` that is not known, or cannot be honoured, is refused: nobody's password is
sent where a mistyped name was to protect it. No error has the value of a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ottla.client.secret_names import is_secret
from ottla.client.security import MECHANISMS, PLAINTEXT, PROTOCOLS, Kerberos, Login, Security, Store, Tls, TokenEndpoint
from ottla.config.secret import Secret
from ottla.errors import OttlaError
from ottla.security.sasl import jaas
from ottla.security.sasl.kerberos_options import kerberos_options, service_name
from ottla.security.tls_settings import SUITES_1_3, openssl_name

PREFIXES: Final = ("security.", "ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")

_ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_TLS: Final = (
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.ca.location", "ssl.ca.pem", "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password",
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.certificate.location", "ssl.certificate.pem",
    "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification", "ssl.enabled.protocols", "ssl.cipher.suites",
)  # fmt: skip
_SASL: Final = (
    "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions", "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.jwt.retriever.class", "sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms", "https.ca.location", "https.ca.pem", "sasl.kerberos.service.name",
    "sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.min.time.before.relogin",
)  # fmt: skip
_WITHOUT_EFFECT: Final = (
    "security.providers", "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms",
    "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.header.urlencode", "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
)  # fmt: skip
"""Settings that name parts of Java, or times that are fixed here."""
_REFUSED: Final = {
    "ssl.engine.factory.class": "no class is loaded by its name",
    "sasl.client.callback.handler.class": "no class is loaded by its name",
    "sasl.login.class": "no class is loaded by its name",
    "ssl.crl.location": "lists of revoked certificates are not checked",
    "ssl.curves.list": "the curves are OpenSSL's choice",
    "ssl.sigalgs.list": "the signature algorithms are OpenSSL's choice",
    "ssl.ca.certificate.stores": "there are such stores on Windows only",
    "ssl.engine.location": "no engine of OpenSSL is loaded",
    "ssl.engine.id": "no engine of OpenSSL is loaded",
    "ssl.providers": "no provider of OpenSSL is loaded",
    "sasl.oauthbearer.config": "unsecured tokens are not supported; set sasl.oauthbearer.token.endpoint.url",
    "enable.sasl.oauthbearer.unsecure.jwt": "unsecured tokens are not supported",
}
SECURITY_SETTINGS: Final = ("security.protocol", *_TLS, *_SASL, *_ALIASES, *_WITHOUT_EFFECT)
"""All that are accepted."""

_CALLBACKS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_RETRIEVERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
)
_KINDS: Final = ("PEM", "PKCS12", "JKS")
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLD_VERSIONS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")
_EXTENSION: Final = re.compile(r"[A-Za-z]{1,100}")


class WrongSecurity(ValueError):
    """A setting of security that cannot be: its text begins with the setting's name."""


def is_security(name: str) -> bool:
    return name.startswith(PREFIXES)


def normalized(given: Mapping[str, str]) -> dict[str, str]:
    """Security settings by one name each, the login of `sasl.jaas.config` as settings of its own. What one source of
    settings says can then replace what another says. Raises WrongSecurity."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if not is_security(name):
            continue
        _check_known(name)
        found[_ALIASES.get(name, name)] = value.strip() if not is_secret(name) else value
    text = found.pop("sasl.jaas.config", None)
    if text is not None and text.strip():
        found = {**_of_jaas(text, found), **found}
    if "sasl.username" in found:
        found.setdefault(_TOKEN, "false")  # else a name would be taken for a token's that another source has
    return {name: value for name, value in found.items() if value or name in _MAY_BE_EMPTY}


_MAY_BE_EMPTY: Final = ("ssl.endpoint.identification.algorithm", "sasl.password", "ssl.keystore.password")


def parse_security(given: Mapping[str, str]) -> Security:
    """Raises WrongSecurity. Names that are not of security are passed over."""
    return security_of(normalized(given))


def security_of(known: Mapping[str, str], *, needs_login: bool = True) -> Security:
    """The same for settings that are `normalized`. Without `needs_login` they need not say who logs in, nor how."""
    protocol = known.get("security.protocol", "").upper()
    if not protocol:
        others = [name for name in known if name in _TLS or name in _SASL]
        if others:
            wanted = "SASL_SSL" if any(name.startswith("sasl.") for name in others) else "SSL"
            raise WrongSecurity(f"security.protocol: is not set, but {min(others)} is: set security.protocol={wanted}")
        return PLAINTEXT
    if protocol not in PROTOCOLS:
        raise WrongSecurity(f"security.protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol}")
    return Security(
        protocol,
        _tls(known) if protocol.endswith("SSL") else None,
        None if not protocol.startswith("SASL") else _login(known) if needs_login else _login_of_others(known),
    )


def _check_known(name: str) -> None:
    if name in SECURITY_SETTINGS or name == _TOKEN:
        return
    if name in _REFUSED:
        raise WrongSecurity(f"{name}: is not supported: {_REFUSED[name]}")
    near = difflib.get_close_matches(name, SECURITY_SETTINGS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise WrongSecurity(f"{name}: is not a setting of a client{hint}")


# TLS


def _tls(known: Mapping[str, str]) -> Tls:
    certificate, key = _own(known)
    algorithm = known.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise WrongSecurity("ssl.endpoint.identification.algorithm: expected https, or none to accept any name")
    verified = _flag(known, "enable.ssl.certificate.verification", True)
    return Tls(
        trusted=_trusted(known),
        certificate=certificate,
        key=key,
        key_password=_secret(known, "ssl.key.password"),
        is_verified=verified,
        is_name_checked=verified and algorithm == "https",
        versions=_tls_versions(known),
        ciphers=_ciphers(known),
    )


def _trusted(known: Mapping[str, str]) -> Store | None:
    named = [
        name
        for name in ("ssl.truststore.location", "ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem")
        if name in known
    ]
    if len(named) > 1:
        raise WrongSecurity(f"{named[1]}: {named[0]} is set too; keep one of them")
    if not named:
        return None
    (name,) = named
    if name == "ssl.truststore.location":
        kind = _kind(known, "ssl.truststore.type")
        return Store(known[name], password=_secret(known, "ssl.truststore.password"), kind=kind)
    if name == "ssl.ca.location":
        return None if known[name] == "probe" else Store(known[name], kind="PEM")
    return _inline(name, known)


def _own(known: Mapping[str, str]) -> tuple[Store | None, Store | None]:
    """The client's certificate and its key."""
    if "ssl.keystore.location" in known:
        kind = _kind(known, "ssl.keystore.type")
        store = Store(known["ssl.keystore.location"], password=_secret(known, "ssl.keystore.password"), kind=kind)
        return store, store
    certificate = _one_of(known, "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.certificate.chain")
    key = _one_of(known, "ssl.key.location", "ssl.key.pem", "ssl.keystore.key")
    if (certificate is None) != (key is None):
        missing, there = ("ssl.key.location", "certificate") if key is None else ("ssl.certificate.location", "key")
        raise WrongSecurity(f"{missing}: is not set, but the client's {there} is")
    return certificate, key


def _one_of(known: Mapping[str, str], location: str, *inline: str) -> Store | None:
    if location in known:
        return Store(known[location], kind="PEM")
    return next((_inline(name, known) for name in inline if name in known), None)


def _inline(name: str, known: Mapping[str, str]) -> Store:
    text = known[name]
    if "-----BEGIN" not in text:
        raise WrongSecurity(f"{name}: expected PEM, which begins with -----BEGIN; a file goes into another setting")
    if "\n" not in text:  # as environments and properties files often have it
        text = text.replace("\\n", "\n")
    return Store(content=text.encode(), kind="PEM")


def _kind(known: Mapping[str, str], name: str) -> str:
    kind = known.get(name, "").upper()
    if kind and kind not in _KINDS:
        raise WrongSecurity(f"{name}: expected one of {', '.join(_KINDS)}, got {kind}")
    # What Java calls JKS is PKCS12 as often: the bytes say what it is.
    return "PEM" if kind == "PEM" else ""


def _tls_versions(known: Mapping[str, str]) -> tuple[str, ...]:
    text = known.get("ssl.enabled.protocols")
    if text is None:
        return _VERSIONS
    named = [each.strip() for each in text.split(",") if each.strip()]
    if others := [each for each in named if each not in _VERSIONS and each not in _OLD_VERSIONS]:
        raise WrongSecurity(f"ssl.enabled.protocols: expected {' and '.join(_VERSIONS)}, got {others[0]}")
    found = tuple(each for each in _VERSIONS if each in named)
    if not found:
        raise WrongSecurity(f"ssl.enabled.protocols: needs {' or '.join(_VERSIONS)}; older ones are not secure")
    return found


def _ciphers(known: Mapping[str, str]) -> tuple[str, ...]:
    """OpenSSL's names for TLS 1.2, given by those or by Java's. Those of TLS 1.3 are all allowed."""
    named = [each.strip() for each in re.split(r"[,:]", known.get("ssl.cipher.suites", "")) if each.strip()]
    try:
        return tuple(openssl_name(each) for each in named if each not in SUITES_1_3)
    except OttlaError as error:
        raise WrongSecurity(str(error)) from None


# SASL


def _of_jaas(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Settings for what a login module's options say."""
    try:
        entry = jaas.parse_jaas(text)
    except OttlaError as error:
        raise WrongSecurity(f"sasl.jaas.config: {error}") from None
    mechanisms, options = _MODULES[entry.name], dict(entry.options)
    mechanism = known.get("sasl.mechanism")
    if mechanism is not None and mechanism.upper() not in mechanisms:
        raise WrongSecurity(f"sasl.jaas.config: {entry.name.rpartition('.')[2]} is not for sasl.mechanism={mechanism}")
    if "GSSAPI" in mechanisms:
        return _of_kerberos(entry, known)
    names = _JAAS_OAUTH if "OAUTHBEARER" in mechanisms else _JAAS_LOGIN
    found = {names[name]: options.pop(name).reveal() for name in list(options) if name in names}
    extensions = {name: options.pop(name).reveal() for name in list(options) if name.startswith("extension_")}
    if extensions and "OAUTHBEARER" in mechanisms:
        found["sasl.oauthbearer.extensions"] = ",".join(
            f"{name.removeprefix('extension_')}={value}" for name, value in extensions.items()
        )
    if "tokenauth" in options and "SCRAM-SHA-256" in mechanisms:
        found[_TOKEN] = options.pop("tokenauth").reveal().lower()
    if any(name.startswith("unsecured") for name in options):
        raise WrongSecurity("sasl.jaas.config: unsecured tokens are not supported")
    others = [name for name in options if not name.startswith("user_")]
    if others:
        raise WrongSecurity(f"sasl.jaas.config: the option {others[0]} is not known")
    if mechanism is None and len(mechanisms) == 1:
        found["sasl.mechanism"] = mechanisms[0]
    return found


def _of_kerberos(entry: jaas.LoginModule, known: Mapping[str, str]) -> dict[str, str]:
    try:
        options = kerberos_options(entry)
        if options.service or "sasl.kerberos.service.name" in known:
            service_name(known.get("sasl.kerberos.service.name"), options)
    except OttlaError as error:
        raise WrongSecurity(f"sasl.jaas.config: {error}") from None
    found = {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": options.service,
        _CACHE: options.cache,
        "sasl.kerberos.keytab": options.keytab,
        "sasl.kerberos.principal": options.principal,
    }
    return {name: value for name, value in found.items() if value}


_CACHE: Final = "sasl.kerberos.ticket.cache"
"""What a JAAS text alone says: neither Kafka nor librdkafka has a setting for it."""
_MODULES: Final = {
    jaas.PLAIN_MODULE: ("PLAIN",), jaas.SCRAM_MODULE: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    jaas.OAUTHBEARER_MODULE: ("OAUTHBEARER",), jaas.KERBEROS_MODULE: ("GSSAPI",),
}  # fmt: skip
"""The mechanisms that each login module is for."""
_TOKEN: Final = "sasl.jaas.config tokenauth"
"""Made of the option `tokenauth` of a SCRAM login module (KIP-48); no setting has this name."""
_JAAS_LOGIN: Final = {"username": "sasl.username", "password": "sasl.password"}
_JAAS_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}


def _login(known: Mapping[str, str]) -> Login:
    mechanism = known.get("sasl.mechanism", "").upper()
    if not mechanism:
        raise WrongSecurity(f"sasl.mechanism: must be set, to one of {', '.join(MECHANISMS)}")
    if mechanism not in MECHANISMS:
        raise WrongSecurity(f"sasl.mechanism: expected one of {', '.join(MECHANISMS)}, got {mechanism}")
    if mechanism == "OAUTHBEARER":
        return Login(mechanism, endpoint=_endpoint(known))
    if mechanism == "GSSAPI":
        return Login(mechanism, known.get("sasl.kerberos.principal", ""), kerberos=_kerberos(known))
    for name in ("sasl.username", "sasl.password"):
        if name not in known:
            raise WrongSecurity(f"{name}: must be set for {mechanism}, or sasl.jaas.config")
    if not known["sasl.username"]:
        raise WrongSecurity("sasl.username: is empty")
    by_token = known.get(_TOKEN) == "true" and mechanism.startswith("SCRAM")
    return Login(mechanism, known["sasl.username"], Secret(known["sasl.password"]), by_token=by_token)


def _login_of_others(known: Mapping[str, str]) -> Login:
    """The mechanism, where the users of a program log in and the program itself does not. Raises WrongSecurity."""
    mechanism = known.get("sasl.mechanism", "").upper()
    if "sasl.username" in known or "sasl.password" in known:
        return _login(known)
    if mechanism in ("", "OAUTHBEARER", *_BY_PASSWORD):
        return Login(mechanism or _BY_PASSWORD[0])
    return _login(known)


_BY_PASSWORD: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def _kerberos(known: Mapping[str, str]) -> Kerberos:
    keytab, principal = known.get("sasl.kerberos.keytab"), known.get("sasl.kerberos.principal")
    if keytab is not None and principal is None:
        raise WrongSecurity("sasl.kerberos.principal: must be set with sasl.kerberos.keytab")
    return Kerberos(
        known.get("sasl.kerberos.service.name", "kafka"),
        keytab,
        principal,
        known.get(_CACHE),
        _share(known, "sasl.kerberos.ticket.renew.window.factor", 0.8),
        _share(known, "sasl.kerberos.ticket.renew.jitter", 0.05),
        _milliseconds(known, "sasl.kerberos.min.time.before.relogin", 60_000) / 1000,
    )


def _share(known: Mapping[str, str], name: str, default: float) -> float:
    text = known.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]?\.?[0-9]{1,17}", text) or not 0 <= float(text) <= 1:
        raise WrongSecurity(f"{name}: expected a number from 0 to 1, got {text}")
    return float(text)


def _endpoint(known: Mapping[str, str]) -> TokenEndpoint:
    handler = known.get("sasl.login.callback.handler.class")
    if handler is not None and handler not in _CALLBACKS:
        raise WrongSecurity(
            f"sasl.login.callback.handler.class: no class is loaded by its name; known is {_CALLBACKS[0]}"
        )
    retriever = known.get("sasl.oauthbearer.jwt.retriever.class")
    if retriever is not None and retriever not in _RETRIEVERS:
        raise WrongSecurity(f"sasl.oauthbearer.jwt.retriever.class: expected {_RETRIEVERS[1]}")
    for name, allowed in (("sasl.oauthbearer.method", ("oidc", "default")), ("sasl.oauthbearer.grant.type", _GRANTS)):
        if known.get(name, allowed[0]).lower() not in allowed:
            raise WrongSecurity(f"{name}: expected {allowed[0]}: other ways to a token are not supported")
    for name in ("token.endpoint.url", "client.id", "client.secret"):
        if f"sasl.oauthbearer.{name}" not in known:
            raise WrongSecurity(f"sasl.oauthbearer.{name}: must be set for OAUTHBEARER")
    url = known["sasl.oauthbearer.token.endpoint.url"]
    check_url("sasl.oauthbearer.token.endpoint.url", url)
    trusted = Store(known["https.ca.location"], kind="PEM") if "https.ca.location" in known else None
    if "https.ca.pem" in known:
        trusted = _inline("https.ca.pem", known)
    return TokenEndpoint(
        url,
        known["sasl.oauthbearer.client.id"],
        Secret(known["sasl.oauthbearer.client.secret"]),
        known.get("sasl.oauthbearer.scope"),
        _extensions(known.get("sasl.oauthbearer.extensions", "")),
        trusted,
        _milliseconds(known, "sasl.login.connect.timeout.ms", 10_000) / 1000,
        _milliseconds(known, "sasl.login.read.timeout.ms", 10_000) / 1000,
    )


_GRANTS: Final = ("client_credentials",)


def check_url(name: str, url: str) -> None:
    """Raises WrongSecurity for what is neither https nor of this machine: secrets and tokens go there in clear."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and _is_loopback(host):
        return
    raise WrongSecurity(f"{name}: expected an https URL (http only for a loopback address)")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not _EXTENSION.fullmatch(name) or name == "auth":
            raise WrongSecurity("sasl.oauthbearer.extensions: expected name=value,... with names of letters")
        found.append((name, value))
    return tuple(found)


def _secret(known: Mapping[str, str], name: str) -> Secret | None:
    return Secret(known[name]) if name in known else None


def _flag(known: Mapping[str, str], name: str, default: bool) -> bool:
    text = known.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise WrongSecurity(f"{name}: expected true or false, got {text}")
    return text.lower() == "true"


def _milliseconds(known: Mapping[str, str], name: str, default: int) -> int:
    text = known.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise WrongSecurity(f"{name}: expected a whole number from 1 to 999999999, got {text}")
    return int(text)


@dataclass(frozen=True)
class Sides:
    """The settings of two clusters: those with the prefix `source.`, and those without one or with `target.`."""

    source: dict[str, str]
    target: dict[str, str]


_SOURCE: Final = ("source.cluster.", "source.")
_TARGET: Final = ("target.cluster.", "target.")


def sides_of(given: Mapping[str, str]) -> Sides:
    """Settings of a mirror, told apart as MirrorMaker 2 does. A name with a prefix goes before one without."""
    source: dict[str, str] = {}
    target: dict[str, str] = {}
    plain: dict[str, str] = {}
    for name, value in given.items():
        for prefixes, found in ((_SOURCE, source), (_TARGET, target)):
            prefix = next((each for each in prefixes if name.startswith(each)), None)
            if prefix is not None:
                found[name.removeprefix(prefix)] = value
                break
        else:
            plain[name] = value
    return Sides(source, {**plain, **target})
