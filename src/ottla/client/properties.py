"""Where the settings of a client's security come from: what was typed, the environment, a file of properties.

    given        `--config FILE`, options `kafka.*` of Spark, `client.config`
    environment  OTTLA_CLIENT_SECURITY_PROTOCOL, OTTLA_CLIENT_SASL_PASSWORD, ...
    file         named by OTTLA_CLIENT_CONFIG

What stands earlier wins, name by name; the two families of names are one. Secrets belong into the file (mode 0600) or
the environment: everyone on a machine sees arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.client.security import Security
from ottla.client.security_settings import WrongSecurity, is_security, normalized, security_of
from ottla.config.properties import decode_properties, parse_entries
from ottla.errors import OttlaError

ENVIRONMENT: Final = "OTTLA_CLIENT_"
CONFIG: Final = "OTTLA_CLIENT_CONFIG"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


def read_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a `client.properties`. Raises WrongSecurity for a file that cannot be read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise WrongSecurity(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise WrongSecurity(f"{os.fspath(path)} is larger than {FILE_BYTES_MAX} bytes: it is no properties file")
    return _replaced(
        os.fspath(path), {name: entry.value for name, entry in parse_entries(decode_properties(data)).items()}
    )


def _replaced(file: str, settings: dict[str, str]) -> dict[str, str]:
    """The settings with what `config.providers` of the file say (KIP-421), and without these. Raises WrongSecurity."""
    from ottla.config import providers
    from ottla.config.secret import revealed

    if not settings.get(providers.PROVIDERS):
        return settings
    try:
        own = providers.Providers(settings, providers.Outside(_read_bytes, os.path.realpath, os.environ))
        return {
            name: revealed(own.replaced(name, text))
            for name, text in settings.items()
            if name != providers.PROVIDERS and not name.startswith(providers.PREFIX)
        }
    except OttlaError as error:
        raise WrongSecurity(f"{file}: {error}") from None


def _read_bytes(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


def from_environment(prefix: str = ENVIRONMENT, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings of variables: OTTLA_CLIENT_SASL_PASSWORD is `sasl.password`. Other variables with the prefix are left
    out."""
    found = {}
    for variable, text in (os.environ if environ is None else environ).items():
        if variable.startswith(prefix) and text:
            name = variable.removeprefix(prefix).lower().replace("_", ".")
            if is_security(name):
                found[name] = text
    return found


def settings_of(
    given: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None, *, prefix: str = ENVIRONMENT
) -> dict[str, str]:
    """Normalized settings from all places, by the names of one family. Raises WrongSecurity."""
    environment = os.environ if environ is None else environ
    named = environment.get(f"{prefix}CONFIG")
    merged: dict[str, str] = {}
    for where, source in (
        (f"{named}: ", read_file(named) if named else {}),
        ("", from_environment(prefix, environment)),
        ("", given or {}),
    ):
        try:
            found = normalized(source)
        except WrongSecurity as error:
            raise WrongSecurity(f"{where}{error}") from None
        merged = replaced(merged, found)
    return merged


def replaced(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """`before` with what `after` says in its place: where `after` names certificates to trust, or a key, nothing is
    left of those of `before` by any name."""
    dropped: set[str] = set()
    for group in _GROUPS:
        if any(name.startswith(group) for name in after):
            dropped |= {name for name in before if name.startswith(group)}
    return {**{name: value for name, value in before.items() if name not in dropped}, **after}


_GROUPS: Final = (
    ("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates", "ssl.ca."),
    ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate", "ssl.certificate.", "ssl.key.location",
     "ssl.key.pem"),
)  # fmt: skip


def security_from(
    given: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    prefix: str = ENVIRONMENT,
    needs_login: bool = True,
) -> Security:
    """The security that all places together say. Raises WrongSecurity."""
    return security_of(settings_of(given, environ, prefix=prefix), needs_login=needs_login)


def security_of_file(path: Path) -> Security:
    """The security that a file says by itself: nothing of the environment counts. Raises WrongSecurity."""
    return security_from(read_file(path), {})
