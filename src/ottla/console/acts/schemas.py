"""Acts on schemas: register, say what is compatible, delete.

The registry is asked with the console's own login, so they are served only where nobody logs in: else a user could do
what the console may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote

from ottla.console.acts.act import Act, Blocked, Change, Field, Plan, plural
from ottla.console.asking import Asking, Invalid, NotFound
from ottla.console.brokers import Unanswered
from ottla.formats.errors import SchemaError
from ottla.schemas.client import NOT_FOUND, Registry, RegistryError, RegistryUnreachable, Schema

TEXT_MAX: Final = 500_000
LEVELS: Final = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
NEEDS: Final = "no right of the cluster: the console's own login at the registry decides"
SUBJECT: Final = Field("subject", "The subject; TOPIC-value and TOPIC-key by default.", is_required=True,
                       label="Subject")  # fmt: skip

T = TypeVar("T")


def register(asking: Asking) -> Plan:
    registry, name = _registry(asking), asking.text("subject")
    schema = Schema(asking.text("schema"), asking.text("type"))
    number = _newest(registry, name)
    problems = [] if number is None else _asked(lambda: registry.problems(name, schema))
    return Plan(
        f"The schema is registered as the next version of {name}.",
        lambda: _changed(lambda: registry.register(name, schema)),
        [Change("newest version", None if number is None else str(number), str((number or 0) + 1))],
        warnings=["If the subject has this schema already, nothing changes."],
        blocked=f"It is not compatible: {'; '.join(problems)[:2_000]}" if problems else "",
        back=_page(name),
    )


def set_compatibility(asking: Asking) -> Plan:
    registry, name, level = _registry(asking), asking.text("subject"), asking.text("level")
    before = _asked(lambda: registry.compatibility(name))
    return Plan(
        f"Changes of {name} must be {level} compatible." if level != "NONE" else f"Any change of {name} is taken.",
        lambda: _changed(lambda: registry.call("PUT", f"/config/{quote(name, safe='')}", {"compatibility": level})),
        [Change("compatibility", before, level)],
        warnings=["Readers and writers may no longer understand each other."] if level == "NONE" else [],
        back=_page(name),
    )


def delete(asking: Asking) -> Plan:
    registry, name = _registry(asking), asking.text("subject")
    numbers = _asked(lambda: registry.versions(name))
    return Plan(
        f"Subject {name} is deleted.",
        lambda: _changed(lambda: registry.call("DELETE", f"/subjects/{quote(name, safe='')}")),
        [Change("versions", plural(len(numbers), "version"), None)],
        warnings=[
            "Ids of its schemas stay known, so that records can still be read. Producers that use the subject "
            "fail, or register it again."
        ],
        back=("/schemas", "Schemas"),
    )


def _registry(asking: Asking) -> Registry:
    if asking.site.registry is None:
        raise NotFound("This console was given no schema registry: start it with --registry URL.")
    if asking.site.has_login:
        raise Blocked(
            "The registry knows the console's login and not yours, so this console changes no schema. Use ottla schema."
        )
    if asking.text("subject") in (".", ".."):
        raise Invalid("subject cannot be . or .., which an address drops")
    return asking.site.registry


def _newest(registry: Registry, name: str) -> int | None:
    try:
        return max(registry.versions(name), default=None)
    except RegistryError as error:
        if error.http_status == NOT_FOUND:
            return None
        raise Invalid(f"the registry refuses this: {error}") from error
    except RegistryUnreachable:
        raise
    except SchemaError as error:
        raise Invalid(str(error)) from error


def _asked(call: Callable[[], T]) -> T:
    try:
        return call()
    except RegistryError as error:
        if error.http_status == NOT_FOUND:
            raise NotFound(f"The registry says: {error}.") from error
        raise Invalid(f"the registry refuses this: {error}") from error
    except SchemaError as error:
        raise Invalid(str(error)) from error


def _changed(call: Callable[[], object]) -> None:
    try:
        _asked(call)
    except RegistryUnreachable as error:
        raise Unanswered(str(error)) from error


def _page(name: str) -> tuple[str, str]:
    return f"/schemas/{quote(name, safe='')}", f"Subject {name}"


ACTS: Final = (
    Act("register-schema", "Register a schema", "The next version of a subject.", NEEDS,
        register,
        (SUBJECT, Field("type", "Its type.", ("AVRO", "JSON", "PROTOBUF"), "AVRO", widget="choice"),
         Field("schema", "The schema itself.", is_required=True, widget="area", length_max=TEXT_MAX, is_data=True)),
        "subjects", body_max=4 * TEXT_MAX, needs_registry=True, is_direct=False),
    Act("set-compatibility", "Set what is compatible", "Which changes of a subject the registry takes.",
        NEEDS, set_compatibility,
        (SUBJECT, Field("level", "Which changes are compatible.", LEVELS, LEVELS[0], widget="choice")), "subject",
        needs_registry=True, is_direct=False),
    Act("delete-subject", "Delete the subject", "All versions of a subject.", NEEDS, delete,
        (SUBJECT,), "subject", confirm="subject", needs_registry=True),
)  # fmt: skip
