"""The file of identity providers (`--oidc FILE`), where users of the console log in by OpenID Connect.

url = "https://console.example.com"        # how browsers reach the console
passwords = false                          # whether names and passwords of the cluster log in too

[[provider]]
id = "corp"                                # its callback is URL/oidc/corp/callback
issuer = "https://login.example.com/realms/corp"
client_id = "ottla-console"
client_secret_file = "/etc/ottla/console.secret"
scopes = ["openid", "profile", "offline_access"]
credential = "access_token"                # or id_token: what the brokers are shown
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.config.secret import Secret
from ottla.console.masks import flag_of, read_toml, refuse_unknown, texts_of
from ottla.drivers.nodes.identity_provider import check_url
from ottla.errors import OttlaError

CREDENTIALS: Final = ("access_token", "id_token")
SKEW_S_MAX: Final = 300
PROVIDERS_MAX: Final = 20
SECRET_BYTES_MAX: Final = 64 * 1024
_OWN: Final = frozenset({
    "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method",
    "response_mode", "request", "request_uri",
})  # fmt: skip
"""Parameters of a request that the console sets itself."""
_TEXTS: Final = (
    "id", "title", "issuer", "client_id", "client_secret", "client_secret_file", "credential", "user_claim",
    "groups_claim", "audience", "ca_file",
)  # fmt: skip
_KNOWN: Final = (*_TEXTS, "scopes", "skew_seconds", "parameters")


@dataclass(frozen=True)
class ProviderSettings:
    id: str
    title: str
    """On the button."""
    issuer: str
    client_id: str
    client_secret: Secret | None = None
    """None: a public client, which PKCE alone protects."""
    scopes: tuple[str, ...] = ("openid", "profile", "offline_access")
    credential: str = "access_token"
    user_claim: str = "sub"
    """The claim of the id token that is the principal's name at the brokers."""
    groups_claim: str = "groups"
    audience: str = ""
    """Audience of access tokens; with it programs may show such tokens to the API."""
    ca_file: str | None = None
    skew_s: int = 30
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Further parameters of the request for a code, such as `resource`."""


@dataclass(frozen=True)
class Oidc:
    providers: tuple[ProviderSettings, ...]
    url: str = ""
    """How browsers reach the console; empty: at the address where it listens."""
    takes_passwords: bool = True


def read_oidc(path: Path) -> Oidc:
    """Raises OttlaError with what is wrong."""
    return parse_oidc(read_toml(path, "identity providers"), str(path))


def parse_oidc(found: Mapping[str, Any], where: str) -> Oidc:
    """Raises OttlaError."""
    refuse_unknown(found, ("url", "passwords", "provider"), where)
    url = found.get("url", "")
    if not isinstance(url, str):
        raise OttlaError(f"{where}: url is a text")
    if url:
        check_url(f"{where}: url", url)
        parts = urlsplit(url)
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise OttlaError(f"{where}: url is https://HOST or https://HOST:PORT, without a path")
    takes = flag_of(found, "passwords", where) if "passwords" in found else True
    rows = found.get("provider", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(each, dict) for each in rows):
        raise OttlaError(f"{where}: it names no provider, which is [[provider]] with two brackets")
    if len(rows) > PROVIDERS_MAX:
        raise OttlaError(f"{where}: it has more than {PROVIDERS_MAX} providers")
    providers = tuple(_provider(each, f"{where}: provider {number}") for number, each in enumerate(rows, 1))
    for name in ("id", "issuer"):
        values = [getattr(each, name) for each in providers]
        if len(set(values)) < len(values):
            raise OttlaError(f"{where}: two providers have the same {name}")
    return Oidc(providers, url.rstrip("/"), takes)


def _provider(row: Mapping[str, Any], where: str) -> ProviderSettings:
    refuse_unknown(row, _KNOWN, where)
    for name in _TEXTS:
        if not isinstance(row.get(name, ""), str):
            raise OttlaError(f"{where}: {name} is a text")
    for name in ("id", "issuer", "client_id"):
        if not row.get(name):
            raise OttlaError(f"{where}: {name} is missing")
    if not re.fullmatch(r"[a-z0-9-]{1,32}", row["id"]):
        raise OttlaError(f"{where}: id has 1 to 32 small letters, digits and hyphens: it is a part of an address")
    check_url(f"{where}: issuer", row["issuer"])
    credential = row.get("credential", CREDENTIALS[0])
    if credential not in CREDENTIALS:
        raise OttlaError(f"{where}: credential is one of {', '.join(CREDENTIALS)}")
    skew_s = row.get("skew_seconds", 30)
    if isinstance(skew_s, bool) or not isinstance(skew_s, int) or not 0 <= skew_s <= SKEW_S_MAX:
        raise OttlaError(f"{where}: skew_seconds is a whole number from 0 to {SKEW_S_MAX}")
    scopes = texts_of(row, "scopes", where) or ("openid", "profile", "offline_access")
    if "openid" not in scopes:
        raise OttlaError(f"{where}: scopes must have openid")
    parameters = row.get("parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(each, str) for each in parameters.values()):
        raise OttlaError(f"{where}: parameters is a table of texts")
    for name in parameters:
        if name in _OWN:
            raise OttlaError(f"{where}: the console sets {name} itself")
    return ProviderSettings(
        row["id"],
        row.get("title") or row["id"],
        row["issuer"],
        row["client_id"],
        _secret(row, where),
        scopes,
        credential,
        row.get("user_claim") or "sub",
        row.get("groups_claim") or "groups",
        row.get("audience", ""),
        row.get("ca_file") or None,
        skew_s,
        parameters,
    )


def _secret(row: Mapping[str, Any], where: str) -> Secret | None:
    if "client_secret" in row and "client_secret_file" in row:
        raise OttlaError(f"{where}: client_secret and client_secret_file are both set; keep one")
    if not row.get("client_secret_file"):
        return Secret(row["client_secret"]) if row.get("client_secret") else None
    try:
        with Path(row["client_secret_file"]).open("rb") as file:
            text = file.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OttlaError(f"{where}: client_secret_file cannot be read: {error}") from error
    if not text:
        raise OttlaError(f"{where}: client_secret_file is empty")
    return Secret(text)
