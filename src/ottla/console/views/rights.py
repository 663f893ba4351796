"""Why a user may do something or not: the rule that decides, by the cluster's ACLs and a broker's settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.config.authorizer import is_principal
from ottla.config.explained import BROKER
from ottla.console.asking import Asking, Invalid
from ottla.console.brokers import ensure_none
from ottla.console.views.settings import resource
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Binding, Operation, PatternType, ResourceType
from ottla.security.explained import KINDS, SETTINGS, Resource, explained, sentence, word_of

OPERATIONS: Final[Mapping[str, Operation]] = {
    each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ANY
}
_ANY: Final = 1
_OTHERS_MAX: Final = 20


@dataclass(frozen=True)
class RightsPage:
    user: str
    operation: str
    resource: str
    name: str
    host: str
    is_asked: bool
    """Whether a question was asked: a user, an operation and a resource."""
    may: bool | None
    """None where it is not known."""
    sentence: str
    because: str
    others: list[str]
    """Other ACLs of the user or of everyone here, in words."""
    is_complete: bool
    """Whether the cluster shows its super users: whoever is one may do everything."""
    remedy: str
    """The command that would allow it."""


def rights(asking: Asking) -> RightsPage:
    user, name, host = (asking.text(each) for each in ("user", "name", "host"))
    word, kind_word = asking.text("operation"), asking.text("resource")
    kind, operation = KINDS[kind_word], OPERATIONS[word]
    blank = RightsPage(user, word, kind_word, name, host, False, None, "", "", [], True, "")
    if not user or not (name or kind is ResourceType.CLUSTER):
        return blank
    principal = user if is_principal(user) else f"User:{user}"
    if not is_principal(principal):
        raise Invalid("user must be a name such as alice, or a principal such as User:alice")
    if operation not in SUPPORTED_OPERATIONS[kind] and operation is not Operation.ALL:
        known = ", ".join(map(word_of, SUPPORTED_OPERATIONS[kind]))
        raise Invalid(f"nothing asks to {word} a {kind_word}: its operations are {known}")
    place = Resource(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name)
    try:
        covering = _covering(asking, place)
    except _NoAuthorizer:
        said = f"{principal} may {word} {place}"
        return _answer(blank, True, said, "the cluster has no authorizer: every user may do everything", [], True, "")
    unknown: dict[str, str | None] = {"super.users": None}
    told = asking.attempt("settings", lambda: _settings(asking), unknown)
    found = explained(principal, operation, place, host or None, covering, told)
    may = found.verdict.allowed
    where = f" from {host}" if host else ""
    shell = f"ottla acl add {shlex.quote(principal)} {word} {shlex.quote(str(place))}"
    return _answer(
        blank, may, f"{principal} {'may' if may else 'may not'} {word} {place}{where}", found.because,
        [sentence(each) for each in found.others[:_OTHERS_MAX]], found.is_complete, "" if may else shell,
    )  # fmt: skip


def _answer(
    blank: RightsPage, may: bool, said: str, because: str, others: list[str], complete: bool, remedy: str
) -> RightsPage:
    return RightsPage(
        blank.user, blank.operation, blank.resource, blank.name, blank.host, True, may, said, because, others,
        complete, remedy,
    )  # fmt: skip


class _NoAuthorizer(Exception):
    """The cluster has none, so that there are no ACLs."""


def _covering(asking: Asking, place: Resource) -> list[Binding]:
    """The ACLs that match the resource. Raises KafkaError, OSError."""
    values = {
        "resource_type_filter": place.kind, "resource_name_filter": place.name,
        "pattern_type_filter": PatternType.MATCH, "principal_filter": None, "host_filter": None, "operation": _ANY,
        "permission_type": _ANY,
    }  # fmt: skip
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_ACLS, values)
    if answer["error_code"] == ErrorCode.security_disabled:
        raise _NoAuthorizer
    ensure_none(ApiKey.DESCRIBE_ACLS, answer)
    return [
        Binding(
            row["resource_type"], row["resource_name"], row["pattern_type"], acl["principal"], acl["host"],
            acl["operation"], acl["permission_type"],
        )
        for row in answer["resources"]
        for acl in row["acls"]
    ]  # fmt: skip


def _settings(asking: Asking) -> dict[str, str | None]:
    """Settings of the authorizer of a broker; without a value those that it hides. Raises KafkaError, OSError."""
    node = next(iter(asking.cluster().nodes))
    wanted = {**resource(BROKER, str(node)), "configuration_keys": list(SETTINGS)}
    values = {"resources": [wanted], "include_synonyms": False, "include_documentation": False}
    (found,) = asking.brokers.ask(node, ApiKey.DESCRIBE_CONFIGS, values)["results"]
    ensure_none(ApiKey.DESCRIBE_CONFIGS, found, str(node))
    return {each["name"]: each["value"] for each in found["configs"]}
