"""Requests of the REST API taken apart: parameters of the path, of the query, members of the body."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.registry import api_errors, contracts, registrar, subjects
from ottla.registry.api_errors import ApiError
from ottla.registry.catalog import LATEST, VERSION_MAX
from ottla.registry.proposals import Proposal
from ottla.registry.records import AVRO
from ottla.registry.rights import ALL, Rights
from ottla.registry.schema_types import parsed
from ottla.server.http.callers import Caller

ANY_MEMBERS: Final = "confluent-accept-unknown-properties"
"""The header by which a newer client accepts that this registry may not know all its fields."""
_PROPOSAL: Final = frozenset(
    {"subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "propagateSchemaTags"}
)


@dataclass
class Call:
    """One request, as handlers see it."""

    method: str
    path: str
    """The path as received: percent-encoded, with its query."""
    parameters: Mapping[str, str]
    """Parameters of the path, decoded."""
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes = b""
    rights: Rights = ALL
    """What the sender may do."""
    caller: Caller | None = None
    """The sender."""
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
        """The subject in the path, in canonical form."""
        return subjects.normalize(self.parameters["subject"])

    @property
    def version(self) -> int:
        """The version in the path; LATEST for the last. Raises ApiError 42202."""
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
        return rows[offset:] if limit <= 0 else rows[offset : offset + limit]

    def body(self, members: Collection[str]) -> dict[str, Any]:
        """The JSON object that was sent. Raises ApiError for anything else, and for members that are not known."""
        if self._body is None:
            try:
                self._body = json.loads(self.content)
                json.dumps(self._body, ensure_ascii=False).encode()  # half a surrogate pair is no text
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
        return Proposal(
            self.subject,
            text,
            kind,
            registrar.references_of(body.get("references")),
            metadata_of(body.get("metadata")),
            rule_set_of(body.get("ruleSet")),
            _number(body, "id", -1),
            _number(body, "version", 0),
        )


def version_of(text: str) -> int:
    """Raises ApiError 42202."""
    given = text.strip().lower()
    if given in ("latest", "-1"):
        return LATEST
    number = given.removeprefix("+")
    if number.isascii() and number.isdecimal() and len(number) < 11 and 1 <= int(number) <= VERSION_MAX:
        return int(number)
    raise api_errors.invalid_version(text)


def _number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= VERSION_MAX:
        return value
    raise ApiError(422, f"{name} is a whole number")


def metadata_of(value: Any) -> dict[str, Any] | None:
    """Raises ApiError 422."""
    try:
        return contracts.metadata_of(value)
    except contracts.InvalidContract as error:
        raise ApiError(422, str(error)) from error


def rule_set_of(value: Any) -> dict[str, Any] | None:
    """Raises ApiError 42210."""
    try:
        return contracts.rule_set_of(value)
    except contracts.InvalidContract as error:
        raise api_errors.invalid_rule_set(str(error)) from error
