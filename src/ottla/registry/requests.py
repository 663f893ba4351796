"""Requests of the REST API taken apart: parameters of the path, of the query, members of the body."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.registry import api_errors, parsed, registrar, subjects
from ottla.registry.api_errors import ApiError
from ottla.registry.catalog import LATEST, VERSION_MAX, Proposal
from ottla.registry.records import AVRO

ANY_MEMBERS: Final = "confluent-accept-unknown-properties"
"""The header by which a newer client says that it is content if this registry does not know all that it sends."""
_PROPOSAL: Final = frozenset({
    "subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "propagateSchemaTags",
})  # fmt: skip


@dataclass
class Call:
    """One request, as handlers see it."""

    method: str
    path: str
    """As it came: percent-encoded, with its query."""
    parameters: Mapping[str, str]
    """Of the path, decoded."""
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes = b""
    _body: Any = field(default=None, init=False)

    def flag(self, *names: str) -> bool:
        """Whether one of these is `true`."""
        return any(value.lower() == "true" for name in names for value in self.query.get(name, ()))

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError as error:
            raise ApiError(404, "HTTP 404 Not Found") from error  # as JAX-RS says it

    @property
    def subject(self) -> str:
        """Of the path, in its one form."""
        return subjects.normalize(self.parameters["subject"])

    @property
    def version(self) -> int:
        """Of the path; LATEST for the last. Raises ApiError 42202."""
        return version_of(self.parameters["version"])

    @property
    def id(self) -> int:
        text = self.parameters["id"]
        if not text.isascii() or not text.lstrip("-").isdigit() or len(text) > 11:
            raise ApiError(404, "HTTP 404 Not Found")
        return int(text)

    def page(self, rows: list[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` ask for."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return rows[offset:] if limit < 0 else rows[offset : offset + limit]

    def body(self, members: Collection[str]) -> dict[str, Any]:
        """The JSON object that was sent. Raises ApiError for anything else, and for members that are not known."""
        if self._body is None:
            try:
                self._body = json.loads(self.content)
            except (ValueError, RecursionError) as error:
                raise ApiError(400, f"the request's body is not JSON: {error}") from error
        if not isinstance(self._body, dict):
            raise ApiError(400, "the request's body is not a JSON object")
        if self.headers.get(ANY_MEMBERS, "").lower() != "true":
            for name in self._body:
                if name not in members:
                    raise ApiError(422, f"Unrecognized field: {name}")
        return self._body

    def proposal(self) -> Proposal:
        """The schema of the body, for the subject of the path. Raises ApiError."""
        body = self.body(_PROPOSAL)
        kind = body.get("schemaType") or AVRO
        if not isinstance(kind, str) or kind not in parsed.KINDS:
            raise api_errors.invalid_schema(f"Invalid schema type {kind}")
        text = body.get("schema")
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise ApiError(422, "schema is a string: a schema's text within the request's JSON")
        rule_set = _object(body, "ruleSet")
        check_rules(rule_set)
        return Proposal(
            self.subject,
            text,
            kind,
            registrar.references_of(body.get("references")),
            _object(body, "metadata"),
            rule_set,
            _number(body, "id", -1),
            _number(body, "version", 0),
        )


def version_of(text: str) -> int:
    """Raises ApiError 42202."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdecimal() and len(text) < 11 and 1 <= int(text) <= VERSION_MAX:
        return int(text)
    raise api_errors.invalid_version(text)


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise ApiError(422, f"{name} is an object")


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= VERSION_MAX:
        return value
    raise ApiError(422, f"{name} is a whole number")


def check_rules(rule_set: Mapping[str, Any] | None) -> None:
    """Rules have names that differ. Raises ApiError 42210."""
    names: set[str] = set()
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        rules = (rule_set or {}).get(kind) or []
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise api_errors.invalid_rule_set(f"{kind} is a list of rules")
        for rule in rules:
            name = rule.get("name")
            if not name:
                raise api_errors.invalid_rule_set("Missing rule name")
            if name in names:
                raise api_errors.invalid_rule_set(f"Found rule with duplicate name '{name}'")
            names.add(name)
