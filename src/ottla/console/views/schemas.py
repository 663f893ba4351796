"""Subjects of the schema registry that the console was given, and the versions of one."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ottla.console.asking import Asking, NotFound, Problem
from ottla.console.decoding import for_a_page
from ottla.console.views.paging import Paging, paged
from ottla.formats.errors import SchemaError
from ottla.schemas.client import NOT_FOUND, Registered, Registry, RegistryError, RegistryUnreachable

SUBJECTS_FRESH_S = 10.0
VERSIONS_MAX = 50
"""Versions whose text is shown, newest first."""
LINES_MAX = 1_000
"""Lines of a schema that are compared: the time for it grows with their square."""
CONTEXT_LINES = 3
AT_ONCE = 8
"""Versions that are asked for at the same time."""

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
    sign: str
    """+ in the later version only, - in the earlier one only, empty in both, … for lines that are alike and left
    out."""
    text: str


@dataclass(frozen=True)
class Comparison:
    """What a version changed, and whether the registry would take it after another one."""

    before: int
    after: int
    lines: list[Line] | None
    """None where the schemas are too large to compare."""
    added: int
    removed: int
    problems: list[str] | None
    """Why the later one is not compatible with the earlier one by the subject's level; None where it is not known."""


@dataclass(frozen=True)
class Subject:
    subject: str
    level: str
    """Which changes are compatible."""
    versions: list[Version]
    version_count: int
    comparison: Comparison | None
    """None where there is one version only."""


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
    registry = asking.site.registry
    if registry is None:
        raise NotFound("This console was given no schema registry: start it with --registry URL.")
    with for_a_page():
        return _subject(asking, registry, asking.text("subject"))


def _subject(asking: Asking, registry: Registry, name: str) -> Subject:
    try:
        numbers = sorted(registry.versions(name), reverse=True)
    except RegistryError as error:
        if error.http_status == NOT_FOUND:
            raise NotFound(f"The registry has no subject {name}.") from error
        raise NotFound(f"The registry does not show subject {name}: {error}") from error
    except (RegistryUnreachable, SchemaError) as error:
        raise NotFound(f"The registry cannot be asked: {error}") from error
    level = _attempt(asking, lambda: registry.compatibility(name), "")
    comparison = _comparison(asking, registry, name, numbers)
    found = _versions(asking, registry, name, numbers[:VERSIONS_MAX])
    return Subject(name, level, [_version(each) for each in found], len(numbers), comparison)


def _versions(asking: Asking, registry: Registry, name: str, numbers: list[int]) -> list[Registered]:
    """The versions that the registry gives in time, a few at once; the newest are asked for first."""

    def read(number: int) -> Registered | None:
        return _attempt(asking, lambda: registry.version(name, number), None)

    found: list[Registered | None] = []
    for start in range(0, len(numbers), AT_ONCE):
        calls = [functools.partial(read, each) for each in numbers[start : start + AT_ONCE]]
        found += [each for each in asking.brokers.gather(calls) if not isinstance(each, Exception)]
    return [each for each in found if each is not None]


def _comparison(asking: Asking, registry: Registry, name: str, numbers: list[int]) -> Comparison | None:
    """Compares two versions, the two newest ones unless others are named. Raises NotFound, Invalid."""
    if len(numbers) < 2 and not asking.text("after") and not asking.text("before"):
        return None
    after = _chosen(asking, "after", numbers[0] if numbers else 0)
    earlier = [each for each in numbers if each < after]
    before = _chosen(asking, "before", earlier[0] if earlier else 0)
    missing = [each for each in (before, after) if each not in numbers]
    if missing and (asking.text("before") or asking.text("after")):
        raise NotFound(f"Subject {name} has no version {missing[0]}; it has {', '.join(map(str, numbers[::-1]))}.")
    old = _attempt(asking, lambda: registry.version(name, before), None)
    new = _attempt(asking, lambda: registry.version(name, after), None)
    if old is None or new is None:
        return None
    none: list[str] | None = None
    problems = _attempt(asking, lambda: registry.problems(name, new.schema, str(before)), none)
    lines = compared(_lines(old.schema.text), _lines(new.schema.text))
    signs = [each.sign for each in lines or ()]
    return Comparison(before, after, lines, signs.count("+"), signs.count("-"), problems)


def _chosen(asking: Asking, name: str, otherwise: int) -> int:
    value = asking.parameters[name]
    return otherwise if value == "" else int(value)


def _lines(text: str) -> list[str]:
    """JSON with a line for each member, so that only those differ that were changed; Protobuf as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    except (ValueError, RecursionError):
        return text.splitlines()


def compared(before: list[str], after: list[str]) -> list[Line] | None:
    """The lines of both, with those around changes; None where they are too many to compare."""
    if max(len(before), len(after)) > LINES_MAX:
        return None
    found: list[Line] = []
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        if group[0][1] > 0:
            found.append(Line("…", ""))
        for kind, old, old_end, new, new_end in group:
            if kind == "equal":
                found += [Line("", each) for each in before[old:old_end]]
                continue
            found += [Line("-", each) for each in before[old:old_end]]
            found += [Line("+", each) for each in after[new:new_end]]
    return found


def _version(found: Registered) -> Version:
    references = [f"{each.name} ({each.subject}, version {each.version})" for each in found.schema.references]
    return Version(found.version, found.id, found.schema.type, found.schema.text, references)


def _attempt(asking: Asking, do: Callable[[], T], instead: T) -> T:
    try:
        return do()
    except (RegistryUnreachable, SchemaError) as error:
        asking.problems.setdefault("schemas", Problem(f"The registry cannot be asked: {error}.", None))
        return instead
