"""Schemas as they are worked with: parsed, written in one canonical way, compared with an older one.

One module for each kind of schema; `parse` finds it. A message of `differences` has two `%s`, for which of the two
schemas is the new and which the old one: read the other way round it is about forward compatibility.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from ottla.errors import OttlaError
from ottla.registry.records import AVRO, JSON, PROTOBUF

FRAMES_LEFT_MIN: Final = 60
"""Frames of Python's stack for what a comparison does at one place: the library behind references in JSON Schemas is
written in Rust, and aborts where there are none left."""


class InvalidSchema(ValueError):
    """The text is not a schema of its type; the message says why."""


def check_stack() -> None:
    """A comparison is about to go down one level more. Raises InvalidSchema where the stack has no room for it."""
    try:
        _go_down(FRAMES_LEFT_MIN)
    except RecursionError:
        raise InvalidSchema("it is nested too deeply to be compared") from None


def _go_down(frames: int) -> None:
    if frames:
        _go_down(frames - 1)


class MissingLibrary(OttlaError):
    """The library for this kind of schema is not installed."""


@dataclass(frozen=True)
class Resolved:
    """A schema that another refers to: the name it is known by there, and its text."""

    name: str
    text: str


class ParsedSchema(Protocol):
    """The operations of all kinds of schemas."""

    @property
    def text(self) -> str:
        """Canonical: schemas that differ in white space only have the same."""

    def normalized(self) -> str:
        """The normalized text: parts without a meaningful order are sorted."""

    def formatted(self, name: str) -> str:
        """Another form, by its name; the canonical text for an unknown name."""

    def resolved(self) -> str:
        """Without references: schemas of the same one are the same."""

    def differences(self, older: Any) -> list[str]:
        """Why this one cannot read what was written with `older`, another of the same kind; nothing if it can."""


_MODULES: Final = {
    AVRO: "ottla.registry.schema_types.avro_schema",
    JSON: "ottla.registry.schema_types.json_schema",
    PROTOBUF: "ottla.registry.schema_types.protobuf_schema",
}
KINDS: Final = frozenset(_MODULES)


def json_of(text: str) -> Any:
    """A schema's JSON. Python's parser takes more than there is in JSON: what no other one reads is refused.

    Raises InvalidSchema.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_number)
    except ValueError as error:
        raise InvalidSchema(f"it is not JSON: {error}") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def parse(kind: str, text: str, references: Sequence[Resolved] = ()) -> ParsedSchema:
    """References come with those that they refer to before them. Raises InvalidSchema, MissingLibrary."""
    if kind not in _MODULES:
        raise InvalidSchema(f"Invalid schema type {kind}")
    try:
        module = import_module(_MODULES[kind])
    except ImportError as error:
        raise MissingLibrary(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    try:
        found: ParsedSchema = module.parse(text, references)
        found.text.encode()
    except RecursionError as error:
        raise InvalidSchema("it is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise InvalidSchema("half of a surrogate pair is no text") from error
    return found
