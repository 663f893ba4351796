"""What is hidden of records, by a file of rules; the server hides it, so that it is not in the page or the JSON.

    [[mask]]
    topics = ["payments", "orders-*"]
    fields = ["card.number", "email"]
    headers = ["authorization"]
    how = "last4"
    except = ["alice"]

A field with dots is a path from the top of a key or value, through lists; one without is hidden wherever it is. A key
or value that is not JSON, nor decoded to JSON by a schema, has no fields: where a rule names fields it is hidden whole.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import json
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.errors import OttlaError

HIDDEN: Final = "•••"
FILE_BYTES_MAX: Final = 1024 * 1024
REPLACE: Final = "replace"
HOWS: Final = ("last4", "hash", REPLACE)
"""What is shown instead, what tells most first."""
TAIL_CHARS: Final = 4
TAIL_WHOLE_MIN: Final = 12
"""A text must be so long that its last characters tell little of the rest."""
INSTEAD_MAX: Final = 200
_LISTS: Final = ("topics", "fields", "headers", "except")
_FLAGS: Final = ("key", "value")
_TEXTS: Final = ("how", "instead")
_HASH_KEY: Final = secrets.token_bytes(32)
"""The key of this process. Without one anyone could hash all numbers of cards and compare."""


@dataclass(frozen=True)
class How:
    """What is shown instead of something hidden."""

    kind: str = REPLACE
    instead: str = HIDDEN
    hash_key: bytes = field(default=_HASH_KEY, repr=False)
    """It goes with the mask to the process of a query, so that the same value is the same there."""

    def shown(self, value: Any) -> str:
        """`value` is a value of JSON, or bytes."""
        if self.kind == REPLACE or value is None:
            return self.instead
        if self.kind == "hash":
            data = value if isinstance(value, bytes) else _text(value).encode(errors="surrogatepass")
            return "#" + hmac.digest(self.hash_key, data, hashlib.sha256).hex()[:16]
        text = value.decode(errors="replace") if isinstance(value, bytes) else _text(value)
        is_one = isinstance(value, str | int | float | bytes) and not isinstance(value, bool)
        return HIDDEN + (text[-TAIL_CHARS:] if is_one and len(text) >= TAIL_WHOLE_MIN else "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def stricter(one: How | None, other: How | None) -> How | None:
    """The one that tells less, where two hide the same thing."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda each: HOWS.index(each.kind))


@dataclass(frozen=True)
class TopicMask:
    """What is hidden of one topic's records for one user."""

    fields: Mapping[tuple[str, ...], How] = field(default_factory=dict)
    """In lower case, as what they are compared with."""
    headers: Mapping[str, How] = field(default_factory=dict)
    key: How | None = None
    """Not None: all of it is hidden."""
    value: How | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.fields or self.headers or self.key or self.value)

    def header(self, name: str) -> How | None:
        found: How | None = None
        for pattern, how in self.headers.items():
            if fnmatch.fnmatchcase(name.lower(), pattern):
                found = stricter(found, how)
        return found

    def text(self, decoded: tuple[Any] | None) -> str:
        """JSON of what is left of a value; hidden whole where it is None or has no fields: their names say what is
        hidden."""
        if decoded is None or not isinstance(decoded[0], dict | list):
            return HIDDEN
        try:
            return json.dumps(self.masked(decoded[0]), ensure_ascii=False)
        except RecursionError:
            return HIDDEN

    def masked(self, value: Any) -> Any:
        """A JSON value with what is hidden replaced."""
        return self._masked(value, ())

    def _masked(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {name: self._member(each, (*path, name.lower())) for name, each in value.items()}
        if isinstance(value, list):
            return [self._masked(each, path) for each in value]
        return value

    def _member(self, value: Any, path: tuple[str, ...]) -> Any:
        how = stricter(self.fields.get(path), self.fields.get(path[-1:]))
        return self._masked(value, path) if how is None else how.shown(value)


NOTHING_HIDDEN: Final = TopicMask()


@dataclass(frozen=True)
class Rule:
    topics: tuple[str, ...]
    fields: tuple[str, ...]
    headers: tuple[str, ...]
    key: bool
    value: bool
    exempt: tuple[str, ...]
    """Users who see everything."""
    how: How = How()

    def is_for(self, topic: str, user: str | None) -> bool:
        return (user is None or user not in self.exempt) and is_among(topic, self.topics)


def is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def joined(rules: Iterable[Rule]) -> TopicMask:
    """All that rules hide together; where two hide the same, the stricter one counts."""
    fields: dict[tuple[str, ...], How] = {}
    headers: dict[str, How] = {}
    key: How | None = None
    value: How | None = None
    for rule in rules:
        for name in rule.fields:
            path = tuple(name.lower().split("."))
            fields[path] = stricter(fields.get(path), rule.how) or rule.how
        for name in rule.headers:
            headers[name.lower()] = stricter(headers.get(name.lower()), rule.how) or rule.how
        key = stricter(key, rule.how if rule.key else None)
        value = stricter(value, rule.how if rule.value else None)
    return TopicMask(fields, headers, key, value)


@dataclass
class Masks:
    """The rules of a file, which may be replaced by newer ones; from any thread."""

    rules: tuple[Rule, ...] = ()

    def rules_for(self, topic: str, user: str | None) -> list[Rule]:
        return [each for each in self.rules if each.is_for(topic, user)]

    def of(self, topic: str, user: str | None) -> TopicMask:
        return joined(self.rules_for(topic, user))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The settings of a file. Raises OttlaError with what is wrong: a rule that is not understood would hide
    nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise OttlaError(f"{path} has more than {FILE_BYTES_MAX} bytes: it is not a file of {what}")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise OttlaError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OttlaError(f"{path}: {error}") from error


def read_masks(path: Path) -> Masks:
    """Raises OttlaError."""
    return parse_masks(read_toml(path, "masks"), str(path))


def parse_masks(found: Mapping[str, Any], where: str) -> Masks:
    """Raises OttlaError."""
    others = [name for name in found if name != "mask"]
    if others:
        raise OttlaError(f"{where}: unknown entry {others[0]!r}; rules are [[mask]]")
    return Masks(parse_rules(found.get("mask", []), where, "[[mask]]"))


def parse_rules(rules: Any, where: str, shape: str) -> tuple[Rule, ...]:
    """Raises OttlaError."""
    if not isinstance(rules, list) or not all(isinstance(each, dict) for each in rules):
        raise OttlaError(f"{where}: rules are {shape}, with two brackets")
    return tuple(_rule(each, f"{where}: mask {number}") for number, each in enumerate(rules, 1))


def texts_of(row: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of texts. Raises OttlaError."""
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise OttlaError(f"{where}: {name} must be a list of texts")
    return tuple(value)


def flag_of(row: Mapping[str, Any], name: str, where: str) -> bool:
    """Raises OttlaError."""
    value = row.get(name, False)
    if not isinstance(value, bool):
        raise OttlaError(f"{where}: {name} must be true or false")
    return value


def refuse_unknown(row: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises OttlaError."""
    names = tuple(known)
    for name in row:
        if name not in names:
            raise OttlaError(f"{where}: unknown entry {name!r}; known: {', '.join(names)}")


def _rule(row: Mapping[str, Any], where: str) -> Rule:
    refuse_unknown(row, (*_LISTS, *_FLAGS, *_TEXTS), where)
    lists = {name: texts_of(row, name, where) for name in _LISTS}
    flags = {name: flag_of(row, name, where) for name in _FLAGS}
    kind, instead = row.get("how", REPLACE), row.get("instead", HIDDEN)
    if kind not in HOWS:
        raise OttlaError(f"{where}: how must be one of {', '.join(HOWS)}")
    if not isinstance(instead, str) or len(instead) > INSTEAD_MAX or (kind != REPLACE and "instead" in row):
        raise OttlaError(f"{where}: instead is a text of at most {INSTEAD_MAX} characters, with how = {REPLACE!r}")
    if not lists["topics"]:
        raise OttlaError(f'{where}: topics is missing; topics = ["*"] means all')
    if not (lists["fields"] or lists["headers"] or flags["key"] or flags["value"]):
        raise OttlaError(f"{where}: it hides nothing: name fields or headers, or set key or value to true")
    return Rule(
        lists["topics"],
        lists["fields"],
        lists["headers"],
        flags["key"],
        flags["value"],
        lists["except"],
        How(kind, instead),
    )
