"""Settings of one listener: `listener.name.NAME.X` goes before `X`, and `listener.name.NAME.MECHANISM.X` before both.

Kafka's `ListenerName.configPrefix` and `saslMechanismConfigPrefix`: names of listeners and of mechanisms are in lower
case in the names of settings. Dynamic values go before static ones of the same name, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

from ottla.config import definitions
from ottla.config.checks import InvalidValue
from ottla.errors import OttlaError

PREFIX = "listener.name."

CHECKED = ("ssl.", "sasl.")
"""What begins so after the prefix must be a setting of the table: a mistyped one would leave open what it closes."""


class NodeSettings(Protocol):
    """The settings of a node, static and dynamic ones: `ServerConfig`."""

    @property
    def static(self) -> Mapping[str, str]: ...
    def __getitem__(self, name: str, /) -> Any: ...
    def dynamic_text(self, name: str, /) -> str | None: ...


def of_listener(config: NodeSettings, listener: str, name: str, changes: Mapping[str, str | None] | None = None) -> Any:
    """The typed value of a setting for a listener. `changes` are dynamic values of the node that are to be tried: they
    replace its own, and None removes one."""
    return _found(config, (f"{PREFIX}{listener.lower()}.{name}",), name, changes)


def of_mechanism(config: NodeSettings, listener: str, mechanism: str, name: str) -> Any:
    """The typed value of a setting for a SASL mechanism of a listener."""
    prefix = f"{PREFIX}{listener.lower()}."
    return _found(config, (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}"), name, None)


def _found(config: NodeSettings, full_names: Iterable[str], name: str, changes: Mapping[str, str | None] | None) -> Any:
    setting = definitions.BROKER[name]
    for full_name in full_names:
        text = _text(config, full_name, changes or {})
        if text is not None:
            try:
                return setting.parse(text)
            except InvalidValue:  # a record of a newer controller: static texts were checked at the start
                continue
    if changes and name in changes:
        text = changes[name]
        return config[name] if text is None else setting.parse(text)
    return config[name]


def _text(config: NodeSettings, full_name: str, changes: Mapping[str, str | None]) -> str | None:
    changed = changes.get(full_name) if full_name in changes else config.dynamic_text(full_name)
    return config.static.get(full_name) if changed is None else changed


def mistakes(static: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each setting of a listener that is none, or whose value cannot be."""
    for full_name, text in static.items():
        if not full_name.startswith(PREFIX):
            continue
        listener, _, name = full_name.removeprefix(PREFIX).partition(".")
        if name not in definitions.BROKER and not name.startswith(CHECKED):
            name = name.partition(".")[2]  # behind the name of a mechanism
        setting = definitions.BROKER.get(name)
        if setting is None:
            if name.startswith(CHECKED):
                near = get_close_matches(name, definitions.BROKER, n=2)
                hint = f"; did you mean {' or '.join(f'{PREFIX}{listener}.{each}' for each in near)}?" if near else ""
                yield f"unknown setting {full_name}: {name} is not a setting of Kafka 4.3{hint}"
            continue
        try:
            setting.parse(text)
        except InvalidValue:
            shown = "[hidden]" if setting.sensitive else text
            yield f"setting {full_name}={shown} is refused: allowed is {setting.allowed}"


def checked(static: Mapping[str, str]) -> None:
    """Raises OttlaError for the settings of listeners that cannot be."""
    found = list(mistakes(static))
    if found:
        raise OttlaError("\n  ".join(found))
