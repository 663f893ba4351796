"""What the `_schemas` topic says so far: its records, applied one after the other, and what finds schemas again.

Every instance applies the same records in the same order and so has the same state. Nothing else changes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from ottla.registry import records, subjects
from ottla.registry.records import Key, SchemaRecord

DEFAULT_LEVEL = "BACKWARD"
READWRITE = "READWRITE"


class State:
    """Read it under `lock`, which the thread holds while it applies records."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._subjects: dict[str, dict[int, SchemaRecord]] = {}
        """Versions in ascending order. Invariant: no subject without a version."""
        self._by_id: dict[str, dict[int, list[SchemaRecord]]] = {}
        """Keyed by context. Invariant: all records of an id have the same digest."""
        self._by_digest: dict[str, dict[bytes, int]] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._last_id: dict[str, int] = {}
        """Keyed by context; ids are not given twice, even of schemas that are gone."""
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._contexts: set[str] = set()

    # Applying records

    def apply(self, key: Key, value: bytes | None, timestamp: int = 0) -> bool:
        """Take one record in. False for a schema that is passed over, as another has its id: the first that was written
        counts (two instances may have written at once). Raises UnreadableRecord."""
        with self.lock:
            match key.keytype:
                case records.SCHEMA:
                    return self._apply_schema(key, value, timestamp)
                case records.CONFIG:
                    _put(self.configs, key.subject, None if value is None else records.decode_fields(value))
                case records.MODE:
                    mode = None if value is None else str(records.decode_fields(value).get("mode"))
                    _put(self.modes, key.subject, mode)
                case records.DELETE_SUBJECT if value is not None:
                    self._delete_subject(records.decode_fields(value))
                case records.CLEAR_SUBJECT if value is not None:
                    self._clear(key.subject)
                case records.CONTEXT if key.context:
                    (self._contexts.discard if value is None else self._contexts.add)(key.context)
            return True

    def _apply_schema(self, key: Key, value: bytes | None, timestamp: int) -> bool:
        assert key.subject is not None
        if value is None:
            self._remove(key.subject, key.version)
            return True
        record = records.decode_schema(value)
        record.subject, record.version, record.timestamp = key.subject, key.version, timestamp
        context = subjects.parse(key.subject).context
        known = self._by_id.get(context, {}).get(record.id)
        if known and known[0].schema != record.schema:
            return False
        self._remove(key.subject, key.version)
        versions = self._subjects.setdefault(key.subject, {})
        versions[key.version] = record
        if key.version != max(versions):
            self._subjects[key.subject] = dict(sorted(versions.items()))
        self._by_id.setdefault(context, {}).setdefault(record.id, []).append(record)
        self._by_digest.setdefault(context, {})[record.digest] = record.id
        self._last_id[context] = max(record.id, self._last_id.get(context, 0))
        if context != subjects.DEFAULT_CONTEXT:
            self._contexts.add(context)
        for at in _referenced(record):
            self._referrers.setdefault(at, set()).add((record.subject, record.version))
        return True

    def _remove(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        record = versions.pop(version, None)
        if record is None:
            return
        if not versions:
            del self._subjects[subject]
        context = subjects.parse(subject).context
        same = self._by_id[context][record.id]
        same.remove(record)
        if not same:
            del self._by_id[context][record.id]
            self._by_digest[context].pop(record.digest, None)
        for at in _referenced(record):
            self._referrers.get(at, set()).discard((subject, version))

    def _delete_subject(self, fields: dict[str, Any]) -> None:
        last = int(fields.get("version", 0))
        for version, record in self._subjects.get(str(fields.get("subject")), {}).items():
            if version <= last:
                record.deleted = True

    def _clear(self, prefix: str | None) -> None:
        """Drop what is softly deleted, of a subject or of a whole context."""
        for subject in list(self.subjects_under(prefix)):
            for version, record in list(self._subjects[subject].items()):
                if record.deleted:
                    self._remove(subject, version)

    # Reading

    def subjects(self) -> list[str]:
        """All, of every context, sorted; also those whose versions are all deleted."""
        return sorted(self._subjects)

    def subjects_under(self, text: str | None) -> Iterator[str]:
        """A subject by itself, or the subjects of a context: None is the default one."""
        found = subjects.parse(text or "")
        if found.name:
            yield from [text] if text in self._subjects else []
            return
        for subject in self.subjects():
            if found.context == subjects.GLOBAL_CONTEXT or subjects.parse(subject).context == found.context:
                yield subject

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaRecord]:
        """In ascending order; with `deleted` also those that are softly deleted."""
        return [each for each in self._subjects.get(subject, {}).values() if deleted or not each.deleted]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaRecord | None:
        """-1 is the last one."""
        if version == -1:
            found = self.versions(subject, deleted=deleted)
            return found[-1] if found else None
        record = self._subjects.get(subject, {}).get(version)
        return None if record is None or (record.deleted and not deleted) else record

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, {}), default=0) + 1

    def with_id(self, context: str, schema_id: int) -> list[SchemaRecord]:
        """Every version of that id, also those that are softly deleted."""
        return sorted(self._by_id.get(context, {}).get(schema_id, ()), key=lambda each: (each.subject, each.version))

    def id_of(self, context: str, digest: bytes) -> int | None:
        return self._by_digest.get(context, {}).get(digest)

    def with_guid(self, guid: str) -> list[SchemaRecord]:
        """Schemas with this guid in every context."""
        try:
            digest = UUID(guid).bytes
        except ValueError:
            return []
        found = [(context, self.id_of(context, digest)) for context in self.contexts()]
        return [
            each for context, schema_id in found if schema_id is not None for each in self.with_id(context, schema_id)
        ]

    def next_id(self, context: str) -> int:
        return self._last_id.get(context, 0) + 1

    def last_id(self, context: str) -> int:
        return self._last_id.get(context, 0)

    def contexts(self) -> list[str]:
        """Sorted; the default one is always there."""
        return sorted({subjects.DEFAULT_CONTEXT, *self._contexts})

    def referrers(self, subject: str, version: int, *, deleted: bool = False) -> list[SchemaRecord]:
        """The schemas that refer to this one."""
        found = [self.version(*at, deleted=deleted) for at in sorted(self._referrers.get((subject, version), ()))]
        return [each for each in found if each is not None]

    # Configuration and modes

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """The effective configuration of a subject: its own, over that of its context, over the global one and the
        default."""
        own = self.configs.get(subject) if subject else None
        base = self._in_scope(self.configs, subject) or {}
        merged = {"compatibilityLevel": DEFAULT_LEVEL, **base, **(own or {})}
        merged.pop("subject", None)
        if own is not None or subject is None:
            return merged
        merged.pop("alias", None)
        return merged

    def mode_in_scope(self, subject: str | None) -> str:
        if subject and subject in self.modes:
            return self.modes[subject]
        return self._in_scope(self.modes, subject) or READWRITE

    def _in_scope(self, settings: dict[str | None, Any], subject: str | None) -> Any:
        """The setting of the context, or of all contexts."""
        prefix = subjects.prefix_of(subjects.parse(subject or "").context)
        return settings.get(prefix or None) or settings.get(subjects.prefix_of(subjects.GLOBAL_CONTEXT))


def _referenced(record: SchemaRecord) -> Iterable[tuple[str, int]]:
    return {(subjects.qualify(record.subject, each.subject), each.version) for each in record.references}


def _put(settings: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value
