"""The JAAS text of a mechanism on a listener, among a node's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.config import definitions
from ottla.config.listener_settings import PREFIX
from ottla.errors import OttlaError
from ottla.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, jaas
from ottla.security.sasl.jaas import LoginModule, parse_jaas

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

SETTING: Final = "sasl.jaas.config"

MODULES: Final[Mapping[str, str]] = {
    PLAIN: jaas.PLAIN_MODULE, SCRAM_SHA_256: jaas.SCRAM_MODULE, SCRAM_SHA_512: jaas.SCRAM_MODULE,
    OAUTHBEARER: jaas.OAUTHBEARER_MODULE, GSSAPI: jaas.KERBEROS_MODULE,
}  # fmt: skip
"""The login module of each mechanism."""


def jaas_of(config: ServerConfig, listener: str, mechanism: str) -> LoginModule | None:
    """The entry by which clients are checked and this node logs in at others; None where there is none. As in Kafka a
    `sasl.jaas.config` without the names of listener and mechanism counts for nothing. Raises OttlaError."""
    full_name = jaas_name(listener, mechanism)
    text = config.dynamic_text(full_name) or config.static.get(full_name)
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except OttlaError as error:
        raise OttlaError(f"{full_name}: {error}") from None


def in_file(config: ServerConfig, listener: str, mechanism: str, name: str) -> Any:
    """The typed value of a setting that only the node's own file decides: whoever may alter settings over the network
    must not decide whose tokens are believed, nor what a node reads (CVE-2025-27817)."""
    prefix = f"{PREFIX}{listener.lower()}."
    texts = (config.static.get(each) for each in (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}", name))
    setting = definitions.BROKER[name]
    text = next((each for each in texts if each is not None), setting.default)
    return None if text is None else setting.parse(text)


def mistakes(changes: Mapping[str, str | None]) -> Iterator[str]:
    """A sentence for each text among changed settings that is none, or of another mechanism than the setting's."""
    for name, text in changes.items():
        if text is None or not name.endswith(f".{SETTING}"):
            continue
        mechanism = name.removesuffix(f".{SETTING}").rpartition(".")[2].upper()
        try:
            module = parse_jaas(text)
        except OttlaError as error:
            yield f"{name}: {error}"
            continue
        expected = MODULES.get(mechanism)
        if expected is not None and module.name != expected:
            yield f"{name}: {mechanism} needs {expected}, not {module.name}"


def jaas_name(listener: str, mechanism: str) -> str:
    """The name of the setting."""
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{SETTING}"
