"""What the registry changes: schemas registered and deleted, configuration and modes set. Only the leader does.

Each change is decided by the state, written, and answered when it has been read back. One at a time: an id or a version
number is given by what is in the log, and there is nothing between the decision and the record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.registry import api_errors, records, store, subjects
from ottla.registry.catalog import LATEST, Catalog
from ottla.registry.proposals import Proposal, inherited
from ottla.registry.records import Key, Reference, SchemaRecord
from ottla.registry.state import READWRITE

READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)

Write = Callable[[Mapping[Key, bytes | None]], None]


class Registrar:
    """Every method raises ApiError, and Fenced where another instance has become the leader."""

    def __init__(self, catalog: Catalog, write: Write, catch_up: Callable[[], None]) -> None:
        """`catch_up` returns when all that is in the log is in the state."""
        self._catalog = catalog
        self._state = catalog.state
        self._write_records = write
        self._catch_up = catch_up
        self._lock = threading.RLock()

    def _write(self, entries: Mapping[Key, bytes | None], what: str) -> None:
        try:
            self._write_records(entries)
        except store.RecordTooLarge as error:
            raise api_errors.schema_too_large() from error
        except store.StoreTimeout as error:
            raise api_errors.timed_out(f"{what} operation timed out: {error}") from error
        except store.Fenced:
            raise  # nothing is written: what was decided may be decided again
        except store.StoreError as error:
            raise api_errors.store_error(
                f"{what} operation failed while writing to the Kafka store: {error}"
            ) from error

    # Schemas

    def register(self, proposal: Proposal, *, normalize: bool) -> SchemaRecord:
        """The version that has this schema: a new one unless it is there already. Raises ApiError."""
        with self._lock:
            self._catch_up()
            self._check_mode(proposal)
            found = self.registered(proposal, normalize=normalize)
            if found is not None:  # in the meantime
                return found
            subject = proposal.subject
            config = self._state.config_in_scope(subject)
            is_import = self._state.mode_in_scope(subject) == IMPORT
            normalize = normalize and not is_import
            versions = self._state.versions(subject)
            if not is_import:
                proposal = inherited(
                    proposal, versions[-1] if versions else None, config, self._state.next_version(subject)
                )
            written, _ = self._catalog.canonical(proposal, normalize=normalize)
            found = self._catalog.find(written, normalize=False) if proposal.version == 0 or not is_import else None
            if found is not None and proposal.id in (-1, found.id) and proposal.version <= 0:
                return found
            if not is_import:
                problems = self._catalog.problems(written, versions, normalize=False, config=config)
                if problems:
                    raise api_errors.incompatible(subject, problems)
            record = self._new_record(written, is_import)
            self._write(self._entries(record), "Register schema")
            stored = self._state.version(subject, record.version, deleted=True)
            if stored is None:
                raise api_errors.store_error("the schema was written but cannot be found")
            return stored

    def registered(self, proposal: Proposal, *, normalize: bool) -> SchemaRecord | None:
        """The version that a proposal asks for, if it is there: any instance knows, and nothing need be written."""
        config = self._state.config_in_scope(proposal.subject)
        if any(name.startswith(("default", "override")) for name in config):
            return None
        is_latest = proposal.version == LATEST
        found = self._catalog.find(proposal, normalize=normalize, latest_only=is_latest)
        if found is None or proposal.id not in (-1, found.id):
            return None
        if proposal.version in (0, LATEST, found.version):
            return found
        other = self._state.version(proposal.subject, proposal.version)
        return other if other is not None and (other.id, other.digest) == (found.id, found.digest) else None

    def _check_mode(self, proposal: Proposal) -> None:
        subject = proposal.subject
        self._check_writable(subject)
        mode = self._state.mode_in_scope(subject)
        where = f"Subject {subject} in context {subjects.prefix_of(subjects.parse(subject).context)}"
        if proposal.id >= 0 and mode != IMPORT:
            raise api_errors.not_permitted(f"{where} is not in import mode")
        if proposal.id < 0 and mode != READWRITE:
            raise api_errors.not_permitted(f"{where} is not in read-write mode")

    def _check_writable(self, subject: str | None) -> None:
        if READONLY_OVERRIDE in (self._state.modes.get(None), self._state.modes.get(":.__GLOBAL:")):
            mode = READONLY
        else:
            mode = self._state.mode_in_scope(subject)
        if mode in (READONLY, READONLY_OVERRIDE):
            context = subjects.prefix_of(subjects.parse(subject or "").context)
            raise api_errors.not_permitted(f"Subject {subject} in context {context} is in read-only mode")

    def _new_record(self, written: Proposal, is_import: bool) -> SchemaRecord:
        context = subjects.parse(written.subject).context
        following = self._state.next_version(written.subject)
        version = written.version if written.version > 0 else following
        if version != following and not is_import:
            raise api_errors.invalid_schema("Version is not one more than previous version")
        known = self._state.id_of(context, written.digest)
        schema_id = written.id if written.id >= 0 else known
        if schema_id is None:
            schema_id = self._state.next_id(context)
        others = self._state.with_id(context, schema_id)
        if others and others[0].digest != written.digest:
            raise api_errors.not_permitted(
                f"Overwrite new schema with id {schema_id} in context {subjects.prefix_of(context)} is not permitted."
            )
        return SchemaRecord(
            written.subject,
            version,
            schema_id,
            written.text,
            written.type,
            written.references,
            written.metadata,
            written.rule_set,
        )

    def _entries(self, record: SchemaRecord) -> dict[Key, bytes | None]:
        """The record, its context if that is new, and deletions of older versions that are the same and were deleted:
        the new one takes their place."""
        entries: dict[Key, bytes | None] = {}
        context = subjects.parse(record.subject).context
        if context not in self._state.contexts():
            fields = {"tenant": records.TENANT, "context": context}
            entries[Key(records.CONTEXT, context=context)] = records.dumps(fields)
        for old in self._state.versions(record.subject, deleted=True):
            is_same = old.deleted and old.id == record.id and old.version < record.version
            if is_same and not self._state.referrers(old.subject, old.version, deleted=True):
                entries[old.key] = None
        entries[record.key] = record.encode()
        return entries

    # Deleting

    def delete_version(self, subject: str, version: int, *, permanent: bool) -> int:
        """Raises ApiError."""
        with self._lock:
            self._catch_up()
            record = self._state.version(subject, version, deleted=version != LATEST)
            if record is None:
                if not self._catalog.has_subject(subject, deleted=True):
                    raise api_errors.subject_not_found(subject)
                raise api_errors.version_not_found(version)
            if record.deleted and not permanent:
                raise api_errors.version_soft_deleted(subject, record.version)
            self._check_writable(subject)
            if self._state.referrers(subject, record.version, deleted=permanent):
                raise api_errors.reference_exists(subject, record.version)
            if permanent and not record.deleted:
                raise api_errors.version_not_soft_deleted(subject, record.version)
            if not permanent:
                self._write({record.key: replace(record, deleted=True).encode()}, "Delete schema version")
                return record.version
            entries: dict[Key, bytes | None] = {record.key: None}
            if len(self._state.versions(subject, deleted=True)) == 1:
                entries |= self._settings_of(subject)
            self._write(entries, "Delete schema version")
            return record.version

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """The versions that are deleted now and were not before. Raises ApiError."""
        with self._lock:
            self._catch_up()
            if not self._state.versions(subject, deleted=True):
                raise api_errors.subject_not_found(subject)
            versions = self._state.versions(subject, deleted=permanent)
            if not versions:
                raise api_errors.subject_soft_deleted(subject)
            self._check_writable(subject)
            for record in versions:
                referrers = self._state.referrers(subject, record.version, deleted=permanent)
                if any(each.subject != subject for each in referrers):
                    raise api_errors.reference_exists(subject, record.version)
                if permanent and not record.deleted:
                    raise api_errors.subject_not_soft_deleted(subject)
            if permanent:
                entries: dict[Key, bytes | None] = {record.key: None for record in reversed(versions)}
                entries |= self._settings_of(subject)
            else:
                fields = {"subject": subject, "version": versions[-1].version}
                entries = {Key(records.DELETE_SUBJECT, subject): records.dumps(fields)}
            self._write(entries, "Delete subject")
            return [record.version for record in versions]

    def _settings_of(self, subject: str) -> dict[Key, bytes | None]:
        """Configuration and mode of a subject, which are deleted with it."""
        entries: dict[Key, bytes | None] = {}
        if subject in self._state.configs:
            entries[Key(records.CONFIG, subject)] = None
        if subject in self._state.modes:
            entries[Key(records.MODE, subject)] = None
        return entries

    def delete_context(self, context: str) -> None:
        """An empty one. Raises ApiError."""
        with self._lock:
            self._catch_up()
            prefix = subjects.prefix_of(context)
            if next(self._state.subjects_under(prefix), None) is not None:
                raise api_errors.ApiError(42211, f"The specified context '{prefix}' is not empty.")
            self._write({Key(records.CONTEXT, context=context): None}, "Delete context")

    # Configuration and modes. None as subject is the default context, and the global one.

    def set_config(self, subject: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Changes as `{name: value}`; a value of None takes the setting away. Raises ApiError."""
        with self._lock:
            self._catch_up()
            self._check_writable(subject)
            config = {name: value for name, value in self._state.configs.get(subject, {}).items() if name != "subject"}
            config |= changes
            config = {name: value for name, value in config.items() if value is not None}
            value = records.dumps({**({"subject": subject} if subject else {}), **config})
            self._write({Key(records.CONFIG, subject): value}, "Update config")
            return config

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Delete the configuration, and return it. Raises ApiError."""
        with self._lock:
            self._catch_up()
            config = self._state.configs.get(subject)
            if config is None and subject is not None:
                raise api_errors.subject_not_found(subject)
            self._check_writable(subject)
            self._write({Key(records.CONFIG, subject): None}, "Delete config")
            return {name: value for name, value in (config or {}).items() if name != "subject"}

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool) -> None:
        """Raises ApiError."""
        with self._lock:
            self._catch_up()
            entries: dict[Key, bytes | None] = {}
            if mode == IMPORT and self._state.mode_in_scope(subject) != IMPORT and not force:
                entries |= self._cleared(subject)
            value = None
            if mode is not None:
                value = records.dumps({**({"subject": subject} if subject else {}), "mode": mode})
            self._write({**entries, Key(records.MODE, subject): value}, "Update mode")

    def _cleared(self, subject: str | None) -> dict[Key, bytes | None]:
        """Records that make room for an import: softly deleted versions are removed. Raises ApiError if there are
        others."""
        found = [
            record
            for each in self._state.subjects_under(subject)
            for record in self._state.versions(each, deleted=True)
        ]
        if any(not record.deleted for record in found):
            raise api_errors.not_permitted("Cannot import since found existing subjects")
        for record in found:
            if self._state.referrers(record.subject, record.version, deleted=True):
                raise api_errors.reference_exists(record.subject, record.version)
        entries: dict[Key, bytes | None] = {record.key: None for record in found}
        fields = {"subject": subject} if subject else {}
        return {**entries, Key(records.CLEAR_SUBJECT, subject): records.dumps(fields)}

    def delete_mode(self, subject: str | None, *, recursive: bool) -> str | None:
        """Delete the mode, and return it. Raises ApiError."""
        with self._lock:
            self._catch_up()
            mode = self._state.modes.get(subject)
            if mode is None and subject is not None and not recursive:
                raise api_errors.subject_not_found(subject)
            entries: dict[Key, bytes | None] = {Key(records.MODE, subject): None}
            found = subjects.parse(subject or "")
            if recursive and not found.name:
                for each in self._state.modes:
                    if each and subjects.parse(each).context == found.context:
                        entries[Key(records.MODE, each)] = None
            self._write(entries, "Delete mode")
            return mode


def references_of(rows: Any) -> tuple[Reference, ...]:
    """Parse the references in a request's JSON. Raises ApiError."""
    try:
        return tuple(Reference(str(row["name"]), str(row["subject"]), int(row["version"])) for row in rows or ())
    except (KeyError, TypeError, ValueError) as error:
        raise api_errors.ApiError(422, "a reference has a name, a subject and a version") from error
