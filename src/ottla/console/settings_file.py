"""The options of a console in one file, for a console that starts beside a node as well (`--console-config`).

roles = "roles.toml"            # files are beside this one, unless a path says otherwise
oidc = "oidc.toml"
masks = "masks.toml"
http_config = "tls.properties"  # the TLS of the console's own port
registry = "https://registry:8081"
pipelines = "/var/lib/ottla/pipelines"
host_names = ["console.example.com"]
behind_proxy = true
read_only = true
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.console.masks import flag_of, read_toml, refuse_unknown, texts_of
from ottla.errors import OttlaError

_PATHS: Final = ("masks", "roles", "oidc", "http_config", "pipelines")
_FLAGS: Final = ("behind_proxy", "read_only")
_KNOWN: Final = (*_PATHS, "registry", "host_names", *_FLAGS)


@dataclass(frozen=True)
class SettingsFile:
    """The options that a file gives; None and empty for those that it does not."""

    masks: Path | None = None
    roles: Path | None = None
    oidc: Path | None = None
    http_config: Path | None = None
    pipelines: Path | None = None
    registry: str | None = None
    host_names: tuple[str, ...] = ()
    behind_proxy: bool = False
    read_only: bool = False


def read_settings(path: Path) -> SettingsFile:
    """Raises OttlaError."""
    return parse_settings(read_toml(path, "options of a console"), path)


def parse_settings(found: Mapping[str, Any], path: Path) -> SettingsFile:
    """`path` is where the options stand: other files are found from there. Raises OttlaError."""
    where = str(path)
    refuse_unknown(found, _KNOWN, where)
    texts = {name: _text_of(found, name, where) for name in (*_PATHS, "registry")}
    base = path.absolute().parent
    rest: dict[str, Any] = {name: flag_of(found, name, where) for name in _FLAGS}
    rest |= {name: None if texts[name] is None else base / str(texts[name]) for name in _PATHS}
    return SettingsFile(
        registry=texts["registry"],
        host_names=texts_of(found, "host_names", where),
        **rest,
    )


def _text_of(row: Mapping[str, Any], name: str, where: str) -> str | None:
    """Raises OttlaError."""
    value = row.get(name)
    if value is not None and (not isinstance(value, str) or not value or "\0" in value):
        raise OttlaError(f"{where}: {name} must be a text")
    return value
