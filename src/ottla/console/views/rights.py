"""Why a user may do something or not: the rule that decides, by the cluster's ACLs and a broker's settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.client.requests import asked_settings
from ottla.config.authorizer import is_principal
from ottla.config.explained import BROKER
from ottla.console.asking import Asking, Invalid
from ottla.console.brokers import NodeAway, ensure_none
from ottla.console.views.security import NoAuthorizer, asked_acls
from ottla.protocol.messages import ApiKey
from ottla.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding,
    described,
)
from ottla.security.denials import denial_of
from ottla.security.explained import KINDS, SETTINGS, WORDS, Resource, explained, sentence, word_of

OPERATIONS: Final[Mapping[str, Operation]] = {
    each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ANY
}
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
    """The commands that would allow it, one on a line."""
    decider: DecidingAcl | None
    """The ACL that decides; None where none does."""
    rule: str
    """What the line says has decided then; empty without a line."""


@dataclass(frozen=True)
class DecidingAcl:
    """An ACL as the act that deletes it names it."""

    principal: str
    permission: str
    operation: str
    kind: str
    name: str
    pattern: str
    host: str


def rights(asking: Asking) -> RightsPage:
    rule = _read_line(asking)
    user, name, host = (asking.text(each) for each in ("user", "name", "host"))
    word, kind_word = asking.text("operation"), asking.text("resource")
    kind, operation = KINDS[kind_word], OPERATIONS[word]
    blank = RightsPage(user, word, kind_word, name, host, False, None, "", "", [], True, "", None, rule)
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
    except NoAuthorizer:
        because = "the cluster has no authorizer: every user may do everything"
        return replace(blank, is_asked=True, may=True, sentence=f"{principal} may {word} {place}", because=because)
    unknown: dict[str, str | None] = {"super.users": None}
    told = asking.attempt("settings", lambda: _settings(asking), unknown)
    found = explained(principal, operation, place, host or None, covering, told)
    may, acl = found.verdict.allowed, found.verdict.acl
    where = f" from {host}" if host else ""
    return replace(
        blank,
        is_asked=True,
        may=may,
        sentence=f"{principal} {'may' if may else 'may not'} {word} {place}{where}",
        because=found.because,
        others=[sentence(each) for each in found.others[:_OTHERS_MAX]],
        is_complete=found.is_complete,
        remedy="\n".join(_remedies(principal, operation, place, host or None, covering, told)),
        decider=None if acl is None else _decider(acl),
    )


def _read_line(asking: Asking) -> str:
    """Takes the question from a line of a log, if there is one; returns what the broker said has decided. Raises
    Invalid."""
    line = asking.text("line")
    if not line:
        return ""
    found = denial_of(line)
    if found is None or found.operation not in OPERATIONS:
        raise Invalid(
            "line names no user, operation and resource: paste a line of a broker's authorizer log or audit log, or "
            "leave it empty and fill in the rest"
        )
    asking.parameters = {
        **asking.parameters,
        "user": found.principal,
        "operation": found.operation,
        "resource": found.kind,
        "name": "" if found.kind == "cluster" else found.name,
        "host": found.host,
    }
    return found.rule


def _remedies(
    principal: str,
    operation: Operation,
    place: Resource,
    host: str | None,
    covering: Sequence[Binding],
    settings: Mapping[str, str | None],
) -> list[str]:
    """Commands after which it is allowed: a denial beats what allows, so that those go first."""
    left = list(covering)
    commands: list[str] = []
    while True:
        verdict = explained(principal, operation, place, host, left, settings).verdict
        if verdict.allowed:
            return commands
        denying = None if verdict.acl is None else next((each for each in left if binding(verdict.acl) == each), None)
        if denying is None:
            add = f"ottla acl add {shlex.quote(principal)} {word_of(operation)} {shlex.quote(str(place))}"
            return [*commands, add]
        left.remove(denying)
        commands.append(_removal(denying))


def _removal(acl: Binding) -> str:
    place = Resource(ResourceType(acl.resource_type), acl.resource_name)
    words = ["ottla", "acl", "remove", acl.principal, word_of(acl.operation), str(place)]
    words += ["--prefixed"] if acl.pattern_type == PatternType.PREFIXED else []
    return shlex.join([*words, *([f"--host={acl.host}"] if acl.host != WILDCARD else [])])


def _decider(acl: Acl) -> DecidingAcl:
    permission = "deny" if acl.permission_type == Permission.DENY else "allow"
    pattern = "prefixed" if acl.pattern_type == PatternType.PREFIXED else "literal"
    kind = WORDS.get(ResourceType(acl.resource_type), "topic")
    return DecidingAcl(acl.principal, permission, word_of(acl.operation), kind, acl.resource_name, pattern, acl.host)


def _covering(asking: Asking, place: Resource) -> list[Binding]:
    """The ACLs that match the resource. Raises KafkaError, OSError."""
    return described(asked_acls(asking, AclFilter(place.kind, place.name, PatternType.MATCH)))


def _settings(asking: Asking) -> dict[str, str | None]:
    """Settings of the authorizer of the first broker that answers; without a value those that it hides. Raises
    KafkaError, OSError."""
    failures: list[OSError] = []
    for node in asking.cluster().nodes:
        values = asked_settings(BROKER, [str(node)], SETTINGS)
        try:
            (found,) = asking.brokers.ask(node, ApiKey.DESCRIBE_CONFIGS, values)["results"]
        except NodeAway as error:
            failures.append(error)
            continue
        ensure_none(ApiKey.DESCRIBE_CONFIGS, found, str(node))
        return {each["name"]: each["value"] for each in found["configs"]}
    raise failures[0] if failures else ConnectionError("the cluster names no broker")
