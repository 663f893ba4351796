"""Options of `Krb5LoginModule` in a JAAS text: where a program's Kerberos key or tickets are, and who it is."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.security.sasl.jaas import KERBEROS_MODULE, LoginModule

_WITHOUT_EFFECT: Final = (
    "storeKey", "doNotPrompt", "debug", "renewTGT", "refreshKrb5Config", "isInitiator", "useFirstPass", "tryFirstPass",
    "storePass", "clearPass",
)  # fmt: skip
"""What Java's module asks, keeps or prints."""
OPTIONS: Final = ("useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName", *_WITHOUT_EFFECT)


class KerberosOptions(NamedTuple):
    """What a login module says."""

    keytab: str | None = None
    """A file of keys; None: tickets are in a cache that somebody else fills, such as kinit."""
    principal: str | None = None
    cache: str | None = None
    """A file of tickets; None: the system's default."""
    service: str | None = None
    """The first part of the principal of services."""


def kerberos_options(module: LoginModule) -> KerberosOptions:
    """Raises OttlaError for options that are unknown or contradict each other."""
    if module.name != KERBEROS_MODULE:
        raise OttlaError(f"GSSAPI needs {KERBEROS_MODULE}, not {module.name}")
    for name in module.options:
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OttlaError(f"{KERBEROS_MODULE} has no option {name}{hint}")

    def text(name: str) -> str | None:
        found = module.options.get(name)
        return None if found is None else found.reveal()

    def flag(name: str) -> bool:
        return (text(name) or "").lower() == "true"

    keytab = text("keyTab")
    if flag("useKeyTab") and keytab is None:
        raise OttlaError(f'{KERBEROS_MODULE} has useKeyTab=true: add keyTab="FILE"')
    if keytab is not None and not flag("useKeyTab"):
        raise OttlaError(f"{KERBEROS_MODULE} has a keyTab: add useKeyTab=true")
    if keytab is not None and text("principal") is None:
        raise OttlaError(f'{KERBEROS_MODULE} has a keyTab: add principal="NAME@REALM"')
    if keytab is None and not flag("useTicketCache"):
        raise OttlaError(f"{KERBEROS_MODULE} needs useKeyTab=true with a keyTab, or useTicketCache=true")
    return KerberosOptions(
        None if keytab is None else keytab.removeprefix("FILE:"),
        text("principal"),
        text("ticketCache"),
        text("serviceName"),
    )


def service_name(setting: str | None, options: KerberosOptions) -> str:
    """The service's name, which the setting `sasl.kerberos.service.name` and the option may both give. Raises
    OttlaError where neither does, or they differ."""
    if setting and options.service and setting != options.service:
        raise OttlaError(
            f"sasl.kerberos.service.name is {setting}, but serviceName in the JAAS text is {options.service}"
        )
    found = setting or options.service
    if not found:
        raise OttlaError(
            "sasl.kerberos.service.name is not set: set it to the first part of the brokers' principal, such as kafka"
        )
    return found
