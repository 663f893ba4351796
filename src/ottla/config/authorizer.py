"""The settings of the authorizer, two of which Kafka hands to its plugin without knowing them itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.config.foreign import ALLOW_EVERYONE, AUTHORIZER, SUPER_USERS

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only authorizer: a name that is known, not a class that is loaded."""


def is_principal(text: str) -> bool:
    """Whether it is TYPE:NAME with neither of them empty (`SecurityUtils.parseKafkaPrincipal`)."""
    kind, _, name = text.partition(":")
    return bool(kind and name)


def super_users(static: Mapping[str, str]) -> tuple[str, ...]:
    """The principals that may do everything, separated by semicolons in the setting."""
    return tuple(each for part in static.get(SUPER_USERS, "").split(";") if (each := part.strip()))


def allows_everyone(static: Mapping[str, str]) -> bool:
    """Whether a resource that no ACL covers is everyone's. As in Java, whatever is not `true` is false."""
    return static.get(ALLOW_EVERYONE, "").strip().lower() == "true"


def early_listeners(values: Mapping[str, Any], controllers: frozenset[str]) -> frozenset[str]:
    """Names of the listeners that serve super users before the ACLs are loaded; those of controllers, unless said."""
    named = values["early.start.listeners"]
    return controllers if named is None else frozenset(each.upper() for each in named if each)


def mistakes(
    values: Mapping[str, Any], static: Mapping[str, str], listeners: frozenset[str], controllers: frozenset[str]
) -> Iterator[str]:
    """One sentence for each setting that cannot be."""
    name = values[AUTHORIZER]
    if name and name != STANDARD:
        yield f"{AUTHORIZER} is {name}, but the only authorizer is Kafka's own: set it to {STANDARD} or to nothing"
    if name:
        for each in super_users(static):
            if not is_principal(each):
                yield f"{SUPER_USERS} contains {each}: expected principals such as User:admin, separated by semicolons"
    for each in sorted(early_listeners(values, controllers) - listeners - controllers):
        yield (
            f"early.start.listeners contains listener {each}, but this is not contained in listeners or "
            "controller.listener.names"
        )
