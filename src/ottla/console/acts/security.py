"""Acts on who may do what and how much: SCRAM users, ACLs, client quotas."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any, Final

from ottla.config.authorizer import is_principal
from ottla.console.acts.act import Act, Change, Field, Partly, Plan, command
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.brokers import Refused, ensure_none
from ottla.console.views.security import DEFAULT, acl_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, WILDCARD, Operation, PatternType, Permission
from ottla.security.acls import ResourceType as Kind
from ottla.security.sasl import scram

SALT_BYTES: Final = 24
ITERATIONS_MAX: Final = 16_384
"""Kafka's own limit."""
_BACK: Final = ("/security", "Security")
USER: Final = Field("user", "The user's name, as it logs in.", is_required=True, label="User")
MECHANISM: Final = Field("mechanism", "How the user logs in.", tuple(scram.BY_NAME), scram.SHA_512.name,
                         widget="choice")  # fmt: skip


def set_password(asking: Asking) -> Plan:
    user, mechanism = asking.text("user"), scram.BY_NAME[asking.text("mechanism")]
    password, iterations = asking.text("password"), asking.number("iterations")
    if not password.isprintable():
        raise Invalid("password has characters that cannot be printed")
    warnings: list[str] = []
    before = _mechanisms(asking, user, warnings)

    def run() -> None:
        salt = secrets.token_bytes(SALT_BYTES)
        row = {
            "name": user,
            "mechanism": mechanism.number,
            "iterations": iterations,
            "salt": salt,
            "salted_password": scram.salted_password(mechanism, password, salt, iterations),
        }
        _alter_user(asking, {"deletions": [], "upsertions": [row]}, user)

    old = (before or {}).get(mechanism.number)
    return Plan(
        f"User {user} logs in with {mechanism.name}, and a new password.",
        run,
        [
            Change(
                mechanism.name,
                None if old is None else f"{old:,} iterations",
                f"{iterations:,} iterations",
                "The old password is no longer taken." if old is not None else "",
            )
        ],
        command(
            asking,
            "user create",
            [user],
            {
                "--mechanism": mechanism.name,
                "--iterations": iterations,
                **({"--replace": None} if old is not None else {}),
            },
        ),
        warnings,
        back=_BACK,
    )


def _mechanisms(asking: Asking, user: str, warnings: list[str]) -> dict[int, int] | None:
    """Mechanisms and iterations of a user; None where this user may not see them."""
    values = {"users": [{"name": user}]}
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, values)
    try:
        ensure_none(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer)
        for row in answer["results"]:
            if row["error_code"] == ErrorCode.resource_not_found:
                return {}
            ensure_none(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, row, user)
            return {each["mechanism"]: each["iterations"] for each in row["credential_infos"]}
    except Refused as error:
        warnings.append(f"It is not known how the user logs in now: {error}.")
        return None
    return {}


def _alter_user(asking: Asking, values: Mapping[str, Any], user: str) -> None:
    for each in asking.brokers.change(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values)["results"]:
        ensure_none(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, each, user)


def delete_user(asking: Asking) -> Plan:
    user = asking.text("user")
    warnings: list[str] = []
    known = _mechanisms(asking, user, warnings)
    if known is None:
        raise Refused("Describe", "Cluster", "", ErrorCode.cluster_authorization_failed)
    if not known:
        raise NotFound(f"There is no user {user} with a SCRAM password.")

    def run() -> None:
        for count, number in enumerate(known):  # two mechanisms of one user in a request are refused as a duplicate
            try:
                _alter_user(asking, {"deletions": [{"name": user, "mechanism": number}], "upsertions": []}, user)
            except (KafkaError, OSError) as error:
                if count:
                    raise Partly(f"the user still logs in with {scram.BY_NUMBER[number].name}: {error}") from error
                raise

    return Plan(
        f"User {user} can no longer log in with SCRAM.",
        run,
        [
            Change(scram.BY_NUMBER[each].name if each in scram.BY_NUMBER else str(each), "a password", None)
            for each in sorted(known)
        ],
        command(asking, "user delete", [user]),
        ["Connections that are open stay open, and the user's ACLs stay: delete them too if the name may come back."],
        back=_BACK,
    )


# ACLs

KINDS: Final = {
    "topic": Kind.TOPIC, "group": Kind.GROUP, "cluster": Kind.CLUSTER, "transactional-id": Kind.TRANSACTIONAL_ID,
    "token": Kind.DELEGATION_TOKEN, "user": Kind.USER,
}  # fmt: skip
"""As `ottla acl` types them."""
OPERATIONS: Final = {each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ANY}
PATTERNS: Final = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED}
PERMISSIONS: Final = {"allow": Permission.ALLOW, "deny": Permission.DENY}


def _row(asking: Asking) -> dict[str, Any]:
    """The ACL of the form, in the words of CreateAcls. Raises Invalid."""
    principal, kind, operation = (
        asking.text("principal"),
        KINDS[asking.text("kind")],
        OPERATIONS[asking.text("operation")],
    )
    typed = principal if ":" in principal else f"User:{principal}"
    if not is_principal(typed):
        raise Invalid("principal must be a user such as alice, User:alice, or * for everyone")
    name, pattern = asking.text("name"), PATTERNS[asking.text("pattern")]
    if kind == Kind.CLUSTER:
        if name not in ("", CLUSTER_NAME) or pattern != PatternType.LITERAL:
            raise Invalid("name must be empty for the cluster, of which there is one")
        name = CLUSTER_NAME
    elif not name:
        raise Invalid("name is missing")
    if operation != Operation.ALL and operation not in SUPPORTED_OPERATIONS[kind]:
        known = ", ".join(word for word, each in OPERATIONS.items() if each in SUPPORTED_OPERATIONS[kind])
        raise Invalid(f"operation of a {asking.text('kind')} must be all or one of: {known}")
    return {
        "resource_type": int(kind),
        "resource_name": name,
        "resource_pattern_type": int(pattern),
        "principal": typed,
        "host": asking.text("host") or WILDCARD,
        "operation": int(operation),
        "permission_type": int(PERMISSIONS[asking.text("permission")]),
    }


def create_acl(asking: Asking) -> Plan:
    row = _row(asking)

    def run() -> None:
        for each in asking.brokers.change(ApiKey.CREATE_ACLS, {"creations": [row]})["results"]:
            ensure_none(ApiKey.CREATE_ACLS, each)

    warnings = []
    if row["permission_type"] == Permission.DENY:
        warnings.append("A denial goes before everything that allows, for this user's own session too.")
    if row["principal"] == "User:*" and row["permission_type"] == Permission.ALLOW:
        warnings.append("Everyone gets this right, users who have not logged in among them.")
    return Plan(
        f"{_sentence(row)}.",
        run,
        [Change("ACL", None, _sentence(row))],
        _acl_command(asking, "add", row),
        warnings,
        back=_BACK,
    )


def _sentence(row: Mapping[str, Any]) -> str:
    found = acl_of({**row, "pattern_type": row["resource_pattern_type"]}, row)
    where = f"{found.resource} {found.name}" if found.pattern == "literal" else f"{found.resource}s {found.name}..."
    host = "" if found.host == WILDCARD else f" from {found.host}"
    return f"{found.permission} {found.principal} {found.operation} on {where}{host}"


def _acl_command(asking: Asking, verb: str, row: Mapping[str, Any]) -> str:
    kind = asking.text("kind")
    user = row["principal"].removeprefix("User:")
    names = [
        user if ":" not in user else row["principal"],
        asking.text("operation"),
        kind if kind == "cluster" else f"{kind}:{row['resource_name']}",
    ]
    options: dict[str, Any] = {}
    if row["resource_pattern_type"] == PatternType.PREFIXED:
        options["--prefixed"] = None
    if row["permission_type"] == Permission.DENY and verb == "add":
        options["--deny"] = None
    if row["host"] != WILDCARD:
        options["--host"] = row["host"]
    return command(asking, f"acl {verb}", names, options)


def delete_acl(asking: Asking) -> Plan:
    row = _row(asking)
    asked = {
        "resource_type_filter": row["resource_type"],
        "resource_name_filter": row["resource_name"],
        "pattern_type_filter": row["resource_pattern_type"],
        "principal_filter": row["principal"],
        "host_filter": row["host"],
        "operation": row["operation"],
        "permission_type": row["permission_type"],
    }
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_ACLS, asked)
    ensure_none(ApiKey.DESCRIBE_ACLS, answer)
    if not any(each["acls"] for each in answer["resources"]):
        raise NotFound(f"There is no such ACL: {_sentence(row)}.")

    def run() -> None:
        for each in asking.brokers.change(ApiKey.DELETE_ACLS, {"filters": [asked]})["filter_results"]:
            ensure_none(ApiKey.DELETE_ACLS, each)
            for one in each["matching_acls"]:
                ensure_none(ApiKey.DELETE_ACLS, one)

    return Plan(
        f"Deleted: {_sentence(row)}.",
        run,
        [Change("ACL", _sentence(row), None)],
        _acl_command(asking, "remove", row),
        ["The command removes what allows and what denies of this kind; this act removes this one alone."],
        back=_BACK,
    )


# Quotas

QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
                 "connection_creation_rate")  # fmt: skip
_ENTITIES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}


def set_quota(asking: Asking) -> Plan:
    text = asking.text("value")
    try:
        value = float(text)
    except ValueError:
        raise Invalid("value must be a number") from None
    if not (math.isfinite(value) and value > 0):
        raise Invalid("value must be a number above 0")
    return _quota(asking, value)


def remove_quota(asking: Asking) -> Plan:
    return _quota(asking, None)


def _quota(asking: Asking, value: float | None) -> Plan:
    key = asking.text("quota")
    given = {kind: asking.text(field) for field, kind in _ENTITIES.items() if asking.text(field)}
    if not given:
        raise Invalid("user, client_id or ip is missing")
    if "ip" in given and len(given) > 1:
        raise Invalid("ip stands alone: an address has no user")
    entity = [{"entity_type": kind, "entity_name": None if name == DEFAULT else name} for kind, name in given.items()]
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    whose = ", ".join(f"{kind} {name}" for kind, name in given.items())

    def ask(validate_only: bool) -> None:
        values = {"entries": [{"entity": entity, "ops": ops}], "validate_only": validate_only}
        for each in asking.brokers.change(ApiKey.ALTER_CLIENT_QUOTAS, values)["entries"]:
            ensure_none(ApiKey.ALTER_CLIENT_QUOTAS, each, whose)

    warnings: list[str] = []
    before = _limit(asking, entity, key, warnings)
    if value is None and before is None and not warnings:
        raise NotFound(f"There is no {key} of {whose}.")
    after = None if value is None else f"{value:.15g}"
    options = {f"--{kind}": name for kind, name in given.items() if name != DEFAULT}
    defaults = [kind for kind, name in given.items() if name == DEFAULT]
    words = [key] if value is None else [f"{key}={after}"]
    return Plan(
        f"{key} of {whose} is {'removed' if value is None else f'set to {after}'}.",
        lambda: ask(False),
        [Change(key, before, after)],
        command(
            asking,
            f"quota {'remove' if value is None else 'set'}",
            words,
            {**options, **({"--default": defaults} if defaults else {})},
        ),
        warnings,
        check=lambda: ask(True),
        back=_BACK,
    )


def _limit(asking: Asking, entity: list[dict[str, Any]], key: str, warnings: list[str]) -> str | None:
    components = [
        {
            "entity_type": each["entity_type"],
            "match_type": 1 if each["entity_name"] is None else 0,
            "match": each["entity_name"],
        }
        for each in entity
    ]
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": components, "strict": True})
    try:
        ensure_none(ApiKey.DESCRIBE_CLIENT_QUOTAS, answer)
    except KafkaError as error:
        warnings.append(f"The present value is not known: {error}.")
        return None
    for entry in answer["entries"] or ():
        for each in entry["values"]:
            if each["key"] == key:
                return f"{each['value']:.15g}"
    return None


_ENTITY: Final = (
    Field("user", f"A user; {DEFAULT} for all that have no quota of their own.", label="User"),
    Field("client_id", f"A client id; {DEFAULT} for all others.", label="Client id"),
    Field("ip", f"An address; {DEFAULT} for all others.", label="Address"),
    Field("quota", "What is limited.", QUOTAS, QUOTAS[0], widget="choice"),
)
_ACL: Final = (
    Field("principal", "A user such as alice or User:alice; * for everyone.", is_required=True, label="User"),
    Field("permission", "Whether it allows or denies.", tuple(PERMISSIONS), "allow", widget="choice"),
    Field("operation", "What may be done.", tuple(OPERATIONS), "read", widget="choice"),
    Field("kind", "On what.", tuple(KINDS), "topic", widget="choice", label="Resource"),
    Field("name", "Its name; * for all. Empty for the cluster.", label="Name"),
    Field("pattern", "Whether the name is meant, or all that begin with it.", tuple(PATTERNS), "literal",
          widget="choice"),
    Field("host", "The address that clients come from; any if left out.", label="Host"),
)  # fmt: skip
ACTS: Final = (
    Act("set-password", "Create a user, or set a password", "The SCRAM password of a user, who may be new.",
        "Alter on the cluster", set_password,
        (USER, MECHANISM,
         Field("password", "The new password.", is_required=True, widget="password", is_private=True),
         Field("iterations", "Rounds of hashing: more make a stolen record harder to guess.", default=4096,
               low=scram.ITERATIONS_MIN, high=ITERATIONS_MAX, widget="number")),
        "security"),
    Act("delete-user", "Delete a user", "What a user logs in with.", "Alter on the cluster", delete_user, (USER,),
        "security", confirm="user", is_listed=False),
    Act("create-acl", "Create an ACL", "What a user may do, or may not.", "Alter on the cluster", create_acl, _ACL,
        "security"),
    Act("delete-acl", "Delete an ACL", "One ACL.", "Alter and Describe on the cluster", delete_acl, _ACL, "security",
        confirm="principal", is_listed=False),
    Act("set-quota", "Set a quota", "How much clients may use.", "AlterConfigs on the cluster", set_quota,
        (*_ENTITY, Field("value", "Bytes a second, percent of a thread, or changes or connections a second.",
                         is_required=True, hint="1048576")), "security"),
    Act("remove-quota", "Remove a quota", "One limit, so that the next less specific one counts.",
        "AlterConfigs on the cluster", remove_quota, _ENTITY, "security", is_direct=False, is_listed=False),
)  # fmt: skip
