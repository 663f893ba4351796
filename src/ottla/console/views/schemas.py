"""Subjects of the schema registry that the console was given, and the versions of one."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ottla.console.asking import Asking, NotFound, Problem
from ottla.console.views.paging import Paging, paged
from ottla.formats.errors import SchemaError
from ottla.schemas.client import NOT_FOUND, Registry, RegistryError, RegistryUnreachable

SUBJECTS_FRESH_S = 10.0
VERSIONS_MAX = 50
"""Versions whose text is shown, newest first."""
COMPARED_LINES_MAX = 1_000
"""Lines of a version that are compared: the time that it takes grows with their square."""

T = TypeVar("T")


@dataclass(frozen=True)
class Subjects:
    registry: str | None
    """None: the console was given no registry."""
    subjects: list[str]
    paging: Paging


@dataclass(frozen=True)
class Version:
    version: int
    id: int
    type: str
    text: str
    references: list[str]


@dataclass(frozen=True)
class Line:
    mark: str
    """+ for a line that came, - for one that went, empty for one that both have."""
    text: str


@dataclass(frozen=True)
class Compared:
    """Two versions, line by line."""

    old: int
    new: int
    lines: list[Line]
    is_cut: bool


@dataclass(frozen=True)
class Subject:
    subject: str
    level: str
    """Which changes are compatible."""
    versions: list[Version]
    version_count: int
    numbers: list[int]
    """All versions, newest first."""
    compared: Compared | None
    """The two versions that the parameters name."""


def subjects(asking: Asking) -> Subjects:
    registry = asking.site.registry
    found: list[str] = []
    if registry is not None:
        found = _attempt(
            asking, lambda: asking.user.snapshots.get("subjects", SUBJECTS_FRESH_S, registry.subjects).value, []
        )
    wanted = asking.text("q").lower()
    page, paging = paged([each for each in found if wanted in each.lower()], asking.number("page"), len(found))
    return Subjects(asking.site.registry_url, list(page), paging)


def subject(asking: Asking) -> Subject:
    registry, name = asking.site.registry, asking.text("subject")
    if registry is None:
        raise NotFound("This console was given no schema registry: start it with --registry URL.")
    try:
        numbers = sorted(registry.versions(name), reverse=True)
    except RegistryError as error:
        if error.http_status == NOT_FOUND:
            raise NotFound(f"The registry has no subject {name}.") from error
        raise NotFound(f"The registry does not show subject {name}: {error}") from error
    except (RegistryUnreachable, SchemaError) as error:
        raise NotFound(f"The registry cannot be asked: {error}") from error
    none: list[Version] = []
    versions = _attempt(asking, lambda: [_version(registry, name, each) for each in numbers[:VERSIONS_MAX]], none)
    level = _attempt(asking, lambda: registry.compatibility(name), "")
    old, new = asking.number("old"), asking.number("new")
    compared = _attempt(asking, lambda: _compared(registry, name, numbers, old, new), None) if old and new else None
    return Subject(name, level, versions, len(numbers), numbers, compared)


def _version(registry: Registry, name: str, number: int) -> Version:
    found = registry.version(name, number)
    references = [f"{each.name} ({each.subject}, version {each.version})" for each in found.schema.references]
    return Version(found.version, found.id, found.schema.type, found.schema.text, references)


def _compared(registry: Registry, name: str, numbers: Sequence[int], old: int, new: int) -> Compared:
    """Raises NotFound for a version that is not there."""
    texts: list[list[str]] = []
    for number in (old, new):
        if number not in numbers:
            raise NotFound(f"Subject {name} has no version {number}.")
        texts.append(pretty(registry.version(name, number).schema.text).splitlines())
    is_cut = any(len(each) > COMPARED_LINES_MAX for each in texts)
    before, after = (each[:COMPARED_LINES_MAX] for each in texts)
    lines: list[Line] = []
    for tag, start, stop, begin, end in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if tag == "equal":
            lines += [Line("", each) for each in before[start:stop]]
        else:
            lines += [Line("-", each) for each in before[start:stop]] + [Line("+", each) for each in after[begin:end]]
    return Compared(old, new, lines, is_cut)


def pretty(text: str) -> str:
    """A schema in JSON with one thing on a line; any other as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _attempt(asking: Asking, do: Callable[[], T], instead: T) -> T:
    try:
        return do()
    except (RegistryUnreachable, SchemaError) as error:
        asking.problems.setdefault("schemas", Problem(f"The registry cannot be asked: {error}.", None))
        return instead
