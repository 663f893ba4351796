"""Records of the `_schemas` topic: Confluent's JSON, its names and their order: either registry reads the other's.

A key says what it is about (`keytype`), a value what holds from then on; a record without a value takes that back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.registry import contracts

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
NOOP: Final = "NOOP"

_MAGIC: Final = {SCHEMA: 1}
_KEYTYPES: Final = frozenset({SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, CONTEXT, NOOP})
TENANT: Final = "default"

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
SCHEMA_TYPES: Final = (JSON, PROTOBUF, AVRO)


class UnreadableRecord(ValueError):
    """The record was not written by a schema registry, or by a newer one."""


@dataclass(frozen=True)
class Key:
    """Key of a record. A CONFIG or MODE without a subject applies to all subjects."""

    keytype: str
    subject: str | None = None
    version: int = 0
    """Version, for a SCHEMA."""
    context: str | None = None
    """Context, for a CONTEXT."""

    def encode(self) -> bytes:
        fields: dict[str, Any] = {"keytype": self.keytype}
        if self.keytype == CONTEXT:
            fields |= {"tenant": TENANT, "context": self.context}
        if self.subject:
            fields["subject"] = self.subject
        if self.keytype == SCHEMA:
            fields["version"] = self.version
        fields["magic"] = _MAGIC.get(self.keytype, 0)
        return dumps(fields)


class Reference(NamedTuple):
    """A reference to another subject's version, with the name that the schema uses for it."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


@dataclass
class SchemaRecord:
    """The value of a SCHEMA: one version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    deleted: bool = False
    """Softly: its id still finds it."""
    timestamp: int = 0
    """Timestamp of its record in the topic, ms; not part of the value."""
    other: dict[str, Any] = field(default_factory=dict)
    """Members that a newer registry wrote and this one does not know: kept when the record is written again."""

    canonical: str | None = field(default=None, compare=False)
    """The schema's canonical text, once it was asked for."""

    @property
    def key(self) -> Key:
        return Key(SCHEMA, self.subject, self.version)

    def encode(self) -> bytes:
        fields: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id}
        fields["schemaType"] = self.type
        if self.references:
            fields["references"] = [each.as_json() for each in self.references]
        if self.metadata is not None:
            fields["metadata"] = self.metadata
        if self.rule_set is not None:
            fields["ruleSet"] = self.rule_set
        fields |= {"schema": self.schema, "deleted": self.deleted}
        return dumps({**fields, **self.other})

    @cached_property
    def digest(self) -> bytes:
        """Digest that makes two schemas the same, in any subject: MD5, as in Confluent's registry."""
        return digest_of(self.schema, self.references, self.metadata, self.rule_set)

    @property
    def guid(self) -> str:
        """The digest as clients write it into headers of records."""
        return str(UUID(bytes=self.digest))


def digest_of(
    schema: str,
    references: Sequence[Reference],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> bytes:
    """MD5 over all that a schema consists of, in the order of Confluent's registry."""
    md5 = hashlib.md5(schema.encode(), usedforsecurity=False)
    for reference in references:
        version = reference.version.to_bytes(4, "big", signed=True)
        md5.update(reference.name.encode() + reference.subject.encode() + version)
    for part in contracts.hashed(metadata, rule_set):
        md5.update(part)
    return md5.digest()


_SCHEMA_FIELDS: Final = frozenset(
    {"subject", "version", "id", "md5", "schemaType", "references", "metadata", "ruleSet", "schema", "deleted"}
)


def decode_key(data: bytes | None) -> Key:
    """Raises UnreadableRecord."""
    fields = _object(data, "key")
    keytype = fields.get("keytype")
    if keytype not in _KEYTYPES:
        raise UnreadableRecord(f"keytype {keytype!r} is not known")
    subject, version = fields.get("subject"), fields.get("version", 0)
    if not isinstance(subject, str | None) or not isinstance(version, int):
        raise UnreadableRecord(f"a key of a {keytype} with subject {subject!r}, version {version!r}")
    if keytype == SCHEMA and (fields.get("magic") not in (0, 1) or subject is None or version < 1):
        raise UnreadableRecord(f"a key of a schema that is none: {data!r}")
    return Key(keytype, subject or None, version if keytype == SCHEMA else 0, fields.get("context"))


def decode_schema(data: bytes) -> SchemaRecord:
    """Raises UnreadableRecord."""
    fields = _object(data, "value")
    try:
        return SchemaRecord(
            str(fields["subject"]),
            int(fields["version"]),
            int(fields["id"]),
            str(fields["schema"]),
            fields.get("schemaType") or AVRO,
            tuple(Reference(each["name"], each["subject"], each["version"]) for each in fields.get("references") or ()),
            contracts.metadata_of(fields.get("metadata")),
            contracts.rule_set_of(fields.get("ruleSet"), is_checked=False),
            bool(fields.get("deleted", False)),
            other={name: value for name, value in fields.items() if name not in _SCHEMA_FIELDS},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"a schema that cannot be read: {error!r}") from error


def decode_fields(data: bytes) -> dict[str, Any]:
    """The value of any other record. Raises UnreadableRecord."""
    return _object(data, "value")


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    try:
        fields = json.loads(data or b"")
    except ValueError as error:
        raise UnreadableRecord(f"a {what} that is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UnreadableRecord(f"a {what} that is not an object")
    return fields


def dumps(value: Any) -> bytes:
    """JSON as Jackson writes it: no spaces, no escapes that are not needed. Half a surrogate pair becomes `?`."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
