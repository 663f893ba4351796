"""Kafka's messages as classes and layouts, made of `table.py` when they are first asked for.

A line of the table is a message: its name, kind, API key (- for none), versions, flexible versions, and fields. A field
is its name, type and versions, then in any order `?` nullable versions, `#` tag `@` the versions with it, `=` default,
`~` where it is ignorable and `!` where its length is never a varint; the fields of a struct are in braces.

The table is that of Kafka 4.4. A name with a release behind it (`FetchRequest@3.9`) has versions that Kafka 4.0 removed
(KIP-896); `server/legacy` serves them where a setting asks for it. `layout` knows it by that name only.

A message has one class for all versions; a field that a version lacks has its default. Attributes are Kafka's names
in snake case; those of Kafka's requests and responses have no `_ms` at the end, but are milliseconds all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.model import ZERO_UUID
from ottla.protocol.layout import MISSING, Field, Layout, leave_to_counts

VERSION_MAX: Final = 32767
REMOVED: Final = "@3.9"
"""Behind the name of a message: its versions that Kafka 4.0 removed, as Kafka 3.9 has them."""
OWN_API_MIN: Final = 20_000
"""APIs from here on are Ottla's own (`tools/protocol_schemas.py`). Kafka numbers its APIs one by one."""
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
ZEROS: Final[dict[str, Any]] = {
    "bool": False, "uuid": ZERO_UUID, "string": "", "bytes": b"", "records": None, "float64": 0.0,
}  # fmt: skip
"""Where it is not 0."""
ERROR_FIELDS: Final = frozenset({"ErrorCode", "PartitionErrorCode"})

Versions = tuple[int, int]
"""The first and the last."""


class FieldSchema(NamedTuple):
    name: str
    """Name of the attribute."""
    type: str
    """A primitive's name, "error" for a code of `ErrorCode`, or "struct"."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    """-1 for none."""
    tagged: Versions
    default: Any
    """MISSING for a struct of defaults."""
    ignorable: bool
    always_classic: bool
    """Whether the length is no varint in flexible versions either."""
    fields: tuple[FieldSchema, ...]
    """Fields of a struct; none for other types."""
    struct: str
    """Kafka's name of it."""


class MessageSchema(NamedTuple):
    name: str
    kind: str
    api_key: int
    """Or the type of a record; -1 for none."""
    versions: Versions
    flexible: Versions
    fields: tuple[FieldSchema, ...]


class Message:
    """Base of all structs."""

    __slots__ = ()
    _schema: tuple[FieldSchema, ...] = ()

    def __init__(self, **values: Any) -> None:
        for field in self._schema:
            setattr(self, field.name, values.pop(field.name) if field.name in values else _zero(type(self), field))
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    @classmethod
    def nested(cls) -> tuple[str, ...]:
        """Names of the fields that are arrays or structs."""
        return tuple([each.name for each in cls._schema if each.is_array or each.fields or each.struct])

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, field.name) for field in self._schema])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self._schema)
        return f"{type(self).__name__}({fields})"


def _zero(cls: type, field: FieldSchema) -> Any:
    return struct_class(cls, field.name)() if field.default is MISSING else field.default


@cache
def _lines() -> Mapping[str, str]:
    from ottla.protocol.schemas.table import TABLE  # a node may start without

    return {line[: line.index(" ")]: line for line in TABLE.splitlines()}


@cache
def _api_messages() -> Mapping[tuple[str, str], str]:
    """(kind, API key) -> name, of requests and responses."""
    heads = [line.split(" ", 3)[:3] for line in _lines().values()]
    return {(kind, key): name for name, kind, key in heads if kind in ("request", "response") and "@" not in name}


def api_message(kind: str, api_key: int) -> str:
    """The name of the request or response of an API. Raises KeyError."""
    return _api_messages()[kind, str(api_key)]


def names(release: str = "") -> list[str]:
    """The names of the messages that are served, or of those that another release has beside them."""
    return [name for name in _lines() if name.partition("@")[2] == release]


@cache
def schema(name: str) -> MessageSchema:
    """The schema of a message. Raises KeyError."""
    head, _, text = _lines()[name].partition(":")
    _, kind, key, valid, flexible = head.split(" ")
    tokens = [each for each in re.split(r"([;{}])", text) if each.strip()]
    tokens.reverse()
    fields = _fields(tokens, kind in ("request", "response") and int(key) < OWN_API_MIN)
    return MessageSchema(name, kind, -1 if key == "-" else int(key), versions(valid), versions(flexible), fields)


def _fields(tokens: list[str], of_api: bool) -> tuple[FieldSchema, ...]:
    found = []
    while tokens and tokens[-1] != "}":
        words = tokens.pop().split()
        below: tuple[FieldSchema, ...] = ()
        if tokens and tokens[-1] == "{":
            tokens.pop()
            below = _fields(tokens, of_api)
            tokens.pop()
        if tokens and tokens[-1] == ";":
            tokens.pop()
        found.append(_field(words, below, of_api))
    return tuple(found)


def _field(words: list[str], below: tuple[FieldSchema, ...], of_api: bool) -> FieldSchema:
    name, kind, since = words[:3]
    nullable, tag, tagged, default = "none", -1, "none", None
    for word in words[3:]:
        if word[0] == "?":
            nullable = word[1:]
        elif word[0] == "#":
            number, _, tagged = word[1:].partition("@")
            tag = int(number)
        elif word[0] == "=":
            default = word[1:]
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    struct = "" if kind[0].islower() else kind
    if struct:
        kind = "struct"
    elif name in ERROR_FIELDS:
        kind = "error"
    return FieldSchema(
        attribute(name, of_api),
        kind,
        is_array,
        versions(since),
        versions(nullable),
        tag,
        versions(tagged),
        _default(kind, is_array, default),
        "~" in words,
        "!" in words,
        below,
        struct,
    )


def _default(kind: str, is_array: bool, text: str | None) -> Any:
    if text == "null":
        return None
    if is_array:
        return ()
    if kind == "struct":
        return MISSING
    if kind == "bool":
        return text == "true"
    if text is None or kind == "uuid":
        return ZEROS.get(kind, 0)
    return text if kind == "string" else float(text) if kind == "float64" else int(text)


def attribute(name: str, of_api: bool = True) -> str:
    """Kafka's name of a field as an attribute."""
    name = _WORD.sub("_", name).lower()
    return name.removesuffix("_ms") if of_api else name


def versions(text: str) -> Versions:
    """Versions as Kafka writes them: 3, 0-4, 2+, none."""
    if text == "none":
        return 0, -1
    low, dash, high = text.rstrip("+").partition("-")
    return int(low), VERSION_MAX if text.endswith("+") else int(high) if dash else int(low)


@cache
def message_class(name: str) -> type[Any]:
    """The class of a message. Raises KeyError."""
    return _class(name.partition("@")[0], schema(name).fields)


@cache
def _class(name: str, fields: tuple[FieldSchema, ...]) -> type[Any]:
    slots = tuple(field.name for field in fields)
    made = type(name, (Message,), {"__slots__": slots, "_schema": fields, "__module__": __name__})
    leave_to_counts(made)
    return made


@cache
def struct_class(cls: type[Any], name: str) -> type[Any]:
    """The class of the structs in a field of a message or struct."""
    (field,) = [each for each in cls._schema if each.name == name]
    return _class(field.struct, field.fields)


@cache
def layout(name: str, version: int) -> Layout:
    """How a message travels in a version. Raises KeyError for a message or version that is not there."""
    found = schema(name)
    if not found.versions[0] <= version <= found.versions[1]:
        raise KeyError((name, version))
    return _layout(message_class(name), found.fields, version, within(version, found.flexible))


def within(version: int, among: Versions) -> bool:
    return among[0] <= version <= among[1]


def _layout(cls: type[Any], fields: tuple[FieldSchema, ...], version: int, flexible: bool) -> Layout:
    plain, tagged, absent = [], [], []
    for each in fields:
        below = None
        if each.fields or each.struct:
            below = _layout(_class(each.struct, each.fields), each.fields, version, flexible)
        is_tagged = flexible and within(version, each.tagged)
        field = Field(
            each.name,
            each.type,
            is_array=each.is_array,
            nullable=within(version, each.nullable),
            default=each.default,
            layout=below,
            flexible=flexible and not each.always_classic,
            tag=each.tag if is_tagged else -1,
        )
        if not within(version, each.versions):
            absent.append(field)
        elif is_tagged:
            tagged.append(field)
        else:
            plain.append(field)
    return Layout(cls, plain, tagged, absent, (), flexible)
