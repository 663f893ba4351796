"""What the registry answers of what is stored: subjects, versions and schemas found, parsed, looked up, compared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.registry import api_errors, contracts, subjects
from ottla.registry.proposals import Proposal, inherited
from ottla.registry.records import Reference, SchemaRecord
from ottla.registry.schema_types import compatibility, parsed
from ottla.registry.schema_types.parsed import InvalidSchema, ParsedSchema, Resolved
from ottla.registry.state import State

LATEST: Final = -1
VERSION_MAX: Final = 2**31 - 1
_PARSED_MAX: Final = 1000
"""Parsed schemas that are kept, as `schema.cache.size` of Confluent's registry."""


class Catalog:
    """Reads a state, which it never changes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._parsed: OrderedDict[Any, ParsedSchema] = OrderedDict()
        self._lock = threading.Lock()

    # Parsing

    def parse(self, proposal: Proposal, *, keep: bool = True) -> ParsedSchema:
        """Parse a schema with its references, and theirs, in their current versions. Raises ApiError 42201."""
        references = self._resolve(proposal)
        key = (proposal.type, proposal.text, references)
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        try:
            found = parsed.parse(proposal.type, proposal.text, references)
        except InvalidSchema as error:
            named = ", ".join(f"{each.name} ({each.subject} {each.version})" for each in proposal.references)
            raise api_errors.invalid_schema(
                f"Invalid schema {_short(proposal.text)} with refs [{named}] of type {proposal.type}, details: {error}"
            ) from error
        if keep:
            with self._lock:
                self._parsed[key] = found
                while len(self._parsed) > _PARSED_MAX:
                    self._parsed.popitem(last=False)
        return found

    def parsed_record(self, record: SchemaRecord) -> ParsedSchema:
        """Parse a stored schema."""
        return self.parse(Proposal(record.subject, record.schema, record.type, record.references))

    def _canonical_text(self, record: SchemaRecord) -> str:
        """Canonical text of a stored schema: another registry, or an older one, may have written it differently."""
        if record.canonical is None:
            text = self.parsed_record(record).text
            record.canonical = record.schema if text == record.schema else text
        return record.canonical

    def _resolve(self, proposal: Proposal) -> tuple[Resolved, ...]:
        """All schemas that a schema refers to, dependencies first. Raises ApiError."""
        found: dict[str, Resolved] = {}
        under_way: set[tuple[str, int]] = set()

        def visit(subject: str, kind: str, references: Sequence[Reference]) -> None:
            for each in references:
                at = subjects.qualify(subject, each.subject)
                if (at, each.version) in under_way:
                    raise api_errors.invalid_schema(api_errors.RECURSION)
                record = self.state.version(at, each.version, deleted=each.version != LATEST)
                if record is None:
                    raise api_errors.invalid_schema(
                        f'No schema reference found for subject "{at}" and version {each.version}'
                    )
                if record.type != kind:
                    raise api_errors.invalid_schema(
                        f'the reference "{each.name}" is of type {record.type}, and the schema of type {kind}'
                    )
                if each.name in found:
                    continue
                under_way.add((at, each.version))
                visit(record.subject, kind, record.references)
                under_way.discard((at, each.version))
                found[each.name] = Resolved(each.name, record.schema)

        with self.state.lock:
            visit(proposal.subject, proposal.type, proposal.references)
        return tuple(found.values())

    def canonical(self, proposal: Proposal, *, normalize: bool) -> tuple[Proposal, ParsedSchema]:
        """A proposal in the form in which it would be stored. Raises ApiError 42201."""
        if proposal.is_empty:
            raise api_errors.invalid_schema("Empty schema")
        schema = self.parse(proposal)
        text = schema.text
        references = proposal.references
        if normalize:
            text = schema.normalized()
            references = tuple(sorted(set(references)))
        written = replace(proposal, text=text, references=references)
        return written, (self.parse(written) if normalize else schema)

    # Finding

    def has_subject(self, subject: str, *, deleted: bool) -> bool:
        return any(self.state.versions(each, deleted=deleted) for each in self.state.subjects_under(subject))

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaRecord:
        """Also of another context where the default one does not have it, as Confluent's registry finds it.

        Raises ApiError.
        """
        for each in self._in_contexts(subject):
            found = self.state.version(each, version, deleted=deleted)
            if found is not None:
                return found
        if not self.has_subject(subject, deleted=deleted):
            raise api_errors.subject_not_found(subject)
        raise api_errors.version_not_found(version)

    def _in_contexts(self, subject: str) -> list[str]:
        """Where a subject may be: its alias's name, and the same name in other contexts if it is in none."""
        alias = (self.state.configs.get(subject) or {}).get("alias")
        subject = subjects.qualify(subject, alias) if alias else subject
        found = subjects.parse(subject)
        if found.context != subjects.DEFAULT_CONTEXT:
            return [subject]
        return [subjects.Subject(context, found.name).text for context in self.state.contexts()]

    def by_id(self, schema_id: int, subject: str = "") -> list[SchemaRecord]:
        """Every version with an id: in the context of `subject`, or else in any that has it. Raises ApiError."""
        hint = subjects.parse(subject)
        with self.state.lock:
            found = self.state.with_id(hint.context, schema_id)
            if hint.name and not any(each.subject == subject for each in found):
                found = []
            if found or hint.context != subjects.DEFAULT_CONTEXT:
                chosen = found
            else:
                chosen = self._in_any_context(schema_id, hint.name)
        if not chosen:
            raise api_errors.schema_not_found(schema_id)
        return sorted(chosen, key=lambda each: each.subject != subject)

    def _in_any_context(self, schema_id: int, name: str) -> list[SchemaRecord]:
        default: list[SchemaRecord] = []
        for context in self.state.contexts():
            found = self.state.with_id(context, schema_id)
            if not name or any(subjects.parse(each.subject).name == name for each in found):
                if found:
                    return found
            elif context == subjects.DEFAULT_CONTEXT:
                default = found
        return default

    def lookup(self, proposal: Proposal, *, normalize: bool, deleted: bool) -> SchemaRecord:
        """The version that has this schema. Raises ApiError."""
        failure: api_errors.ApiError | None = None
        for subject in self._in_contexts(proposal.subject):
            if not self.state.versions(subject, deleted=True) and subject != proposal.subject:
                continue
            try:
                found = self._looked_up(replace(proposal, subject=subject), normalize, deleted)
            except api_errors.ApiError as error:
                failure = failure or error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        if not self.has_subject(proposal.subject, deleted=deleted):
            raise api_errors.subject_not_found(proposal.subject)
        raise api_errors.schema_not_found()

    def _looked_up(self, proposal: Proposal, normalize: bool, deleted: bool) -> SchemaRecord | None:
        """Look up the schema as it is, or else in the form in which it would be registered: clients ask for a schema by
        its text."""
        found = self.find(proposal, normalize=normalize, deleted=deleted)
        latest = self.state.version(proposal.subject, LATEST)
        if found is not None or latest is None or proposal.is_empty:
            return found
        with_more = inherited(proposal, latest, self.state.config_in_scope(proposal.subject))
        return None if with_more == proposal else self.find(with_more, normalize=normalize, deleted=deleted)

    def find(
        self, proposal: Proposal, *, normalize: bool, deleted: bool = False, latest_only: bool = False
    ) -> SchemaRecord | None:
        """The youngest version of the subject that is the same as a proposal. Raises ApiError 42201."""
        if proposal.is_empty:
            return None
        written, schema = self.canonical(proposal, normalize=normalize)
        versions = [
            each for each in self.state.versions(proposal.subject, deleted=deleted) if each.type == written.type
        ]
        if latest_only:
            versions = versions[-1:]
        digest = written.digest
        for record in reversed(versions):
            if record.digest == digest:
                return record
        for record in reversed(versions):
            if _is_same_contract(written, record) and self._is_same_schema(written, schema, record):
                return record
        return None

    def _is_same_schema(self, written: Proposal, schema: ParsedSchema, record: SchemaRecord) -> bool:
        """The same, though another registry wrote its text otherwise, or one has its references written in."""
        new, old = (
            self._numbered(written.subject, written.references),
            self._numbered(record.subject, record.references),
        )
        if new == old:
            return schema.text == self._canonical_text(record)
        return bool(new) != bool(old) and schema.resolved() == self.parsed_record(record).resolved()

    def _numbered(self, subject: str, references: Sequence[Reference]) -> list[Reference]:
        """The references with the latest version's number in place of -1."""
        found = []
        for each in references:
            latest = (
                self.state.version(subjects.qualify(subject, each.subject), LATEST) if each.version == LATEST else None
            )
            found.append(each if latest is None else each._replace(version=latest.version))
        return found

    # Comparing

    def problems(
        self, proposal: Proposal, earlier: Sequence[SchemaRecord], *, normalize: bool, config: Mapping[str, Any]
    ) -> list[str]:
        """Why a schema may not follow these versions under a configuration. Raises ApiError 42201."""
        _, schema = self.canonical(proposal, normalize=normalize)
        group = config.get("compatibilityGroup")
        if group:
            value = group_value(proposal.metadata, group)
            earlier = [each for each in earlier if group_value(each.metadata, group) == value]
        level = str(config["compatibilityLevel"])
        chosen = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
        if level == "NONE":
            return []
        older = [(each.version, self.parsed_record(each)) for each in chosen]
        try:
            found = compatibility.problems(level, schema, older)
        except (InvalidSchema, RecursionError) as error:
            raise api_errors.invalid_schema(
                f"Schema {_short(proposal.text)} cannot be compared with the versions before it: {error}"
            ) from error
        return [*found, f"{{validateFields: 'false', compatibility: '{level}'}}"] if found else []


def group_value(metadata: Mapping[str, Any] | None, group: str) -> str | None:
    """The value of the property that groups versions, from a schema's metadata."""
    return ((metadata or {}).get("properties") or {}).get(group)


def _is_same_contract(written: Proposal, record: SchemaRecord) -> bool:
    return written.rule_set == record.rule_set and contracts.are_same_metadata(
        written.metadata, record.metadata, record.version
    )


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
