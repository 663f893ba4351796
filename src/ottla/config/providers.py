"""`${provider:path:key}` in the values of a file, replaced by what files and variables say (KIP-297, KIP-421).

Three providers by the names of Kafka's classes; nothing is loaded. Only values of the file that a node or a client is
started with are replaced: never what a client sends, never settings of the metadata (CVE-2024-31141). What is replaced
becomes a `Secret`. Kafka leaves an unknown provider, key or variable as it is written, and uses that as the password;
here it is an error, which names the setting and the key.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.properties import decode_properties, parse_properties
from ottla.config.secret import Secret
from ottla.errors import OttlaError

PROVIDERS: Final = "config.providers"
PREFIX: Final = f"{PROVIDERS}."
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
FILE, DIRECTORY, ENVIRONMENT = (f"{_PACKAGE}{name}ConfigProvider" for name in ("File", "Directory", "EnvVar"))
_ALLOWED_PATHS: Final = "allowed.paths"
_PATTERN: Final = "allowlist.pattern"
_PARAMETERS: Final[Mapping[str, str]] = {FILE: _ALLOWED_PATHS, DIRECTORY: _ALLOWED_PATHS, ENVIRONMENT: _PATTERN}
"""What each class can be told."""

FILE_BYTES_MAX: Final = 1 << 20
"""A file of secrets that is larger is the wrong one."""

_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
"""As Kafka's `ConfigTransformer` has it."""


class Outside(NamedTuple):
    """What providers read; of whoever starts the process."""

    read: Callable[[str], bytes]
    """The content of a file. Raises OSError."""
    real: Callable[[str], str]
    """A path without symbolic links."""
    environ: Mapping[str, str]


class _Refused(Exception):
    """Why a variable has no value, in words that follow on its name."""


class _Provider(NamedTuple):
    name: str
    kind: str
    paths: tuple[str, ...]
    """Where it may read; empty: everywhere."""
    pattern: re.Pattern[str] | None
    outside: Outside

    def value(self, path: str, key: str) -> str:
        """Raises _Refused."""
        if self.kind == ENVIRONMENT:
            return self._variable(path, key)
        if not path:
            raise _Refused(f"has no path: write ${{{self.name}:/path:key}}")
        if self.kind == DIRECTORY:
            if "/" in key or key in ("", ".", ".."):
                raise _Refused("names no file of the directory")
            text = self._text(posixpath.join(path, key))
            return text[: -2 if text.endswith("\r\n") else -1] if text.endswith("\n") else text
        found = parse_properties(self._text(path)).get(key)
        if found is None:
            raise _Refused(f"{path} has no key {key}")
        return found

    def _variable(self, path: str, key: str) -> str:
        if path:
            raise _Refused(f"has a path: write ${{{self.name}:NAME}}")
        if self.pattern is not None and not self.pattern.fullmatch(key):
            raise _Refused(f"{_name(self.name, _PATTERN)} does not allow the variable {key}")
        found = self.outside.environ.get(key)
        if found is None:
            raise _Refused(f"the environment has no variable {key}")
        return found

    def _text(self, path: str) -> str:
        """The text of a file that may be read, as it is named and where its links lead."""
        plain = posixpath.normpath(path)
        if self.paths:
            real = self.outside.real(plain)
            as_named = _is_below(plain, self.paths)
            as_linked = _is_below(real, [*self.paths, *map(self.outside.real, self.paths)])
            if not (as_named and as_linked):
                raise _Refused(f"{path} is not below {_name(self.name, _ALLOWED_PATHS)}={','.join(self.paths)}")
        try:
            data = self.outside.read(plain)
        except OSError as error:
            raise _Refused(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
        if len(data) > FILE_BYTES_MAX:
            raise _Refused(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return decode_properties(data)


def _name(provider: str, parameter: str) -> str:
    return f"{PREFIX}{provider}.param.{parameter}"


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in places)


class Providers:
    """The providers that a file declares."""

    def __init__(self, settings: Mapping[str, str], outside: Outside | None) -> None:
        """Raises OttlaError for what cannot be."""
        names = [each.strip() for each in settings.get(PROVIDERS, "").split(",") if each.strip()]
        self._by_name = {name: _provider(name, settings, outside) for name in dict.fromkeys(names)}
        for name in settings:
            if name.startswith(PREFIX) and name.removeprefix(PREFIX).partition(".")[0] not in self._by_name:
                raise OttlaError(f"{name}: {PROVIDERS} does not name this provider")

    def replaced(self, setting: str, text: str) -> str:
        """The value of a setting: as it is, or a `Secret`. Raises OttlaError."""
        if not self._by_name or "${" not in text or setting == PROVIDERS or setting.startswith(PREFIX):
            return text
        replaced = _VARIABLE.sub(lambda match: self._value(setting, match), text)
        return text if replaced == text else Secret(replaced)

    def _value(self, setting: str, match: re.Match[str]) -> str:
        name, _, path, key = match.groups()
        provider = self._by_name.get(name)
        if provider is None:
            known = ", ".join(self._by_name)
            raise OttlaError(f"setting {setting}: {match[0]}: {PROVIDERS} has no provider {name}, but {known}")
        try:
            return provider.value(path or "", key)
        except _Refused as why:
            raise OttlaError(f"setting {setting}: {match[0]}: {why}") from None


def _provider(name: str, settings: Mapping[str, str], outside: Outside | None) -> _Provider:
    if outside is None:
        raise OttlaError(f"{PROVIDERS}: values can be replaced in the file of a node or a client alone")
    own = {
        each.removeprefix(f"{PREFIX}{name}."): text.strip()
        for each, text in settings.items()
        if each.startswith(f"{PREFIX}{name}.")
    }
    kind = own.pop("class", None)
    if kind is None or kind not in _PARAMETERS:
        said = f"{PREFIX}{name}.class is missing" if kind is None else f"{PREFIX}{name}.class={kind} is not known"
        raise OttlaError(f"{said}; one of {', '.join(_PARAMETERS)}, and no other class is loaded")
    known = _PARAMETERS[kind]
    for each in own:
        if each != f"param.{known}":
            raise OttlaError(f"{PREFIX}{name}.{each} is not known; {kind.removeprefix(_PACKAGE)} has param.{known}")
    text = own.get(f"param.{known}", "")
    paths: tuple[str, ...] = ()
    pattern = None
    if known == _PATTERN:
        try:
            pattern = re.compile(text) if text else None
        except re.error as error:
            raise OttlaError(f"{_name(name, known)} cannot be parsed: {error}") from None
    elif text:
        paths = tuple(posixpath.normpath(each.strip()) for each in text.split(","))
        for each in paths:
            if not each.startswith("/"):
                raise OttlaError(f"{_name(name, known)}: {each} is not absolute")
    return _Provider(name, kind, paths, pattern, outside)
