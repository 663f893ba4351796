"""What is hidden of records, by a file of rules; the server hides it, so that it is not in the page or the JSON.

    [[mask]]
    topics = ["payments", "orders-*"]
    fields = ["card.number", "email"]
    headers = ["authorization"]
    except = ["alice"]

A field with dots is a path from the top of a key or value, through lists; one without is hidden wherever it is. A key
or value that is not JSON, nor decoded to JSON by a schema, has no fields: where a rule names fields it is hidden whole.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.errors import OttlaError

HIDDEN: Final = "•••"
FILE_BYTES_MAX: Final = 1024 * 1024
_LISTS: Final = ("topics", "fields", "headers", "except")
_FLAGS: Final = ("key", "value")


@dataclass(frozen=True)
class TopicMask:
    """What is hidden of one topic's records for one user."""

    fields: frozenset[tuple[str, ...]] = frozenset()
    """In lower case, as what they are compared with."""
    headers: frozenset[str] = frozenset()
    hides_key: bool = False
    hides_value: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.fields or self.headers or self.hides_key or self.hides_value)

    def hides_header(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name.lower(), each) for each in self.headers)

    def masked(self, value: Any) -> Any:
        """A JSON value with what is hidden replaced."""
        return self._masked(value, ())

    def _masked(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {
                name: HIDDEN if self._hides((*path, name.lower())) else self._masked(each, (*path, name.lower()))
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self._masked(each, path) for each in value]
        return value

    def _hides(self, path: tuple[str, ...]) -> bool:
        return path in self.fields or path[-1:] in self.fields


@dataclass(frozen=True)
class Rule:
    topics: tuple[str, ...]
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    key: bool
    value: bool
    exempt: tuple[str, ...]
    """Users who see everything."""


@dataclass(frozen=True)
class Masks:
    rules: tuple[Rule, ...] = ()

    def of(self, topic: str, user: str | None) -> TopicMask:
        mine = [
            each
            for each in self.rules
            if (user is None or user not in each.exempt)
            and any(fnmatch.fnmatchcase(topic, pattern) for pattern in each.topics)
        ]
        return TopicMask(
            frozenset(tuple(each.lower().split(".")) for rule in mine for each in rule.fields),
            frozenset(each.lower() for rule in mine for each in rule.headers),
            any(each.key for each in mine),
            any(each.value for each in mine),
        )


def read_masks(path: Path) -> Masks:
    """Raises OttlaError with what is wrong: a rule that is not understood would hide nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise OttlaError(f"{path} has more than {FILE_BYTES_MAX} bytes: it is not a file of masks")
        found = tomllib.loads(data.decode())
    except OSError as error:
        raise OttlaError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OttlaError(f"{path}: {error}") from error
    return parse_masks(found, str(path))


def parse_masks(found: Mapping[str, Any], where: str) -> Masks:
    """Raises OttlaError."""
    others = [name for name in found if name != "mask"]
    if others:
        raise OttlaError(f"{where}: unknown entry {others[0]!r}; rules are [[mask]]")
    rules = found.get("mask", [])
    if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
        raise OttlaError(f"{where}: rules are [[mask]], with two brackets")
    return Masks(tuple(_rule(each, f"{where}: mask {number}") for number, each in enumerate(rules, 1)))


def _rule(row: Mapping[str, Any], where: str) -> Rule:
    _refuse_unknown(row, where)
    lists: dict[str, tuple[str, ...]] = {}
    for name in _LISTS:
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
            raise OttlaError(f"{where}: {name} must be a list of texts")
        lists[name] = tuple(value)
    for name in _FLAGS:
        if not isinstance(row.get(name, False), bool):
            raise OttlaError(f"{where}: {name} must be true or false")
    if not lists["topics"]:
        raise OttlaError(f'{where}: topics is missing; topics = ["*"] means all')
    hides = bool(lists["fields"] or lists["headers"] or row.get("key") or row.get("value"))
    if not hides:
        raise OttlaError(f"{where}: it hides nothing: name fields or headers, or set key or value to true")
    return Rule(
        lists["topics"], lists["fields"], lists["headers"], row.get("key", False), row.get("value", False),
        lists["except"],
    )  # fmt: skip


def _refuse_unknown(row: Iterable[str], where: str) -> None:
    for name in row:
        if name not in (*_LISTS, *_FLAGS):
            raise OttlaError(f"{where}: unknown entry {name!r}; known: {', '.join((*_LISTS, *_FLAGS))}")
