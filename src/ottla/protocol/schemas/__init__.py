"""Kafka's messages and records as classes and layouts, made of `table.py` and `records.py` when first asked for.

A line of a table is a message: its name, kind, API key (- for none), versions, flexible versions, and fields. A field
is its name, type and versions, then in any order `?` nullable versions, `#` tag `@` the versions with it, `=` default,
`~` where it is ignorable, `*` where it is secret and `!` where its length is never a varint; the fields of a struct are
in braces. `records.py` has the records that brokers write for themselves; a node may start without `table.py`.

The table is that of Kafka 4.4. A name with a release behind it (`FetchRequest@3.9`) has versions that Kafka 4.0 removed
(KIP-896); `server/legacy` serves them where a setting asks for it. `layout` knows it by that name only.

A message has one class for all versions; a field that a version lacks has its default. Attributes are Kafka's names
in snake case; those of Kafka's requests and responses have no `_ms` at the end, but are milliseconds all the same.
Objects are compared and hashed by their values: nobody changes one that somebody else has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ottla.model import ZERO_UUID
from ottla.protocol.layout import MISSING, Field, Layout, leave_to_counts
from ottla.protocol.schemas import records

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
OF_APIS: Final = ("request", "response")
"""Kinds of messages in `table.py`; the others are those of records."""
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
    is_secret: bool
    """Whether it is shown nowhere."""
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
    _flexible: Versions | None = None
    """Flexible versions of a record, and of the structs in it; None in requests and responses."""
    _values: Callable[[Any], Any] = staticmethod(lambda _: ())
    """Values of all fields."""

    def __init__(self, *args: Any, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _initializer(cls)  # type: ignore[method-assign]
        cls.__init__(self, *args, **values)

    @classmethod
    def nested(cls) -> tuple[str, ...]:
        """Names of the fields that are arrays or structs."""
        return tuple([each.name for each in cls._schema if each.is_array or each.fields or each.struct])

    def replaced(self, **changes: Any) -> Any:
        """A copy with other values in some fields."""
        return type(self)(**{each.name: getattr(self, each.name) for each in self._schema} | changes)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and bool(self._values(self) == self._values(other))

    def __hash__(self) -> int:
        return hash(self._values(self))

    def __repr__(self) -> str:
        shown = [each for each in self._schema if not each.is_secret]
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in shown)
        return f"{type(self).__name__}({fields})"


def _initializer(cls: type[Any]) -> Any:
    """A class's own `__init__`, compiled with the first object: a loop over the schema takes ten times as long."""
    names = [field.name for field in cls._schema]
    defaults = {f"_{field.name}": _zero(cls, field) for field in cls._schema}
    head = ", ".join(f"{name}=_{name}" for name in names)
    body = "".join(f"    self.{name} = {name}\n" for name in names)
    exec(f"def __init__(self, {head}):\n{body}    return\n", defaults)
    return defaults["__init__"]


def _shown_setting(self: Any) -> str:
    """The repr of a setting, whose name says whether its value may be shown."""
    from ottla.config.definitions import may_be_secret

    value = self.value
    if value is not None and may_be_secret(self.resource_type, self.name):
        value = "[hidden]"
    return (
        f"ConfigRecord(resource_type={self.resource_type!r}, resource_name={self.resource_name!r}, "
        f"name={self.name!r}, value={value!r})"
    )


def _zero(cls: type, field: FieldSchema) -> Any:
    return _struct_class(cls, field)() if field.default is MISSING else field.default


def _by_name(table: str) -> Mapping[str, str]:
    return {line[: line.index(" ")]: line for line in table.splitlines()}


@cache
def _message_lines() -> Mapping[str, str]:
    from ottla.protocol.schemas.table import TABLE

    return _by_name(TABLE)


@cache
def _record_lines() -> Mapping[str, str]:
    return _by_name(records.TABLE)


@cache
def _api_messages() -> Mapping[tuple[str, str], str]:
    """(kind, API key) -> name, of requests and responses."""
    heads = [line.split(" ", 3)[:3] for line in _message_lines().values()]
    return {(kind, key): name for name, kind, key in heads if "@" not in name}


def api_message(kind: str, api_key: int) -> str:
    """The name of the request or response of an API. Raises KeyError."""
    return _api_messages()[kind, str(api_key)]


def names(release: str = "") -> list[str]:
    """The names of the messages that are served, or of those that another release has beside them."""
    return [name for name in [*_message_lines(), *_record_lines()] if name.partition("@")[2] == release]


def by_key(kind: str, pattern: str) -> dict[int, str]:
    """API key -> name, of the records of a kind whose names begin with `pattern`."""
    heads = [line.split(" ", 3)[:3] for line in _record_lines().values()]
    return {int(key): name for name, each, key in heads if each == kind and re.match(pattern, name)}


@cache
def schema(name: str) -> MessageSchema:
    """The schema of a message. Raises KeyError."""
    return parsed(_record_lines().get(name) or _message_lines()[name])


def parsed(line: str) -> MessageSchema:
    """The schema in a line of a table."""
    head, _, text = line.partition(":")
    name, kind, key, valid, flexible = head.split(" ")
    tokens = [each for each in re.split(r"([;{}])", text) if each.strip()]
    tokens.reverse()
    fields = _fields(tokens, kind in OF_APIS and int(key) < OWN_API_MIN)
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
        "*" in words,
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
    return class_of(schema(name))


def class_of(found: MessageSchema) -> type[Any]:
    """The class of messages of a schema."""
    flexible = None if found.kind in OF_APIS else found.flexible
    return _class(found.name.partition("@")[0], found.fields, flexible)


def record_class(name: str) -> type[Any]:
    """The class of a record, or of a struct in records. Raises AttributeError."""
    if name.startswith("_"):
        raise AttributeError(name)  # the import of a name asks for `__path__` first
    found = _record_class(name)
    vars(records)[name] = found
    return found


vars(records).update(__getattr__=record_class, Record=Message)


def _record_class(name: str) -> type[Any]:
    lines = _record_lines()
    if name in lines:
        return message_class(name)
    for line in lines.values():
        if f" {name} " in line or f"]{name} " in line:
            found = schema(line[: line.index(" ")])
            for each in structs(found.fields):
                if each.struct == name:
                    return _class(name, each.fields, found.flexible)
    raise AttributeError(name)


def structs(fields: Iterable[FieldSchema]) -> Iterator[FieldSchema]:
    """The fields that are structs or arrays of them, those in structs included."""
    for field in fields:
        if field.struct:
            yield field
            yield from structs(field.fields)


@cache
def _class(name: str, fields: tuple[FieldSchema, ...], flexible: Versions | None) -> type[Any]:
    slots = tuple(field.name for field in fields)
    module = __name__ if flexible is None else f"{__name__}.records"
    members: dict[str, Any] = {"__slots__": slots, "_schema": fields, "_flexible": flexible, "__module__": module}
    if slots:
        members["_values"] = attrgetter(*slots)
    if name == "ConfigRecord":
        members["__repr__"] = _shown_setting
    made = type(name, (Message,), members)
    leave_to_counts(made)
    return made


@cache
def struct_class(cls: type[Any], name: str) -> type[Any]:
    """The class of the structs in a field of a message or struct."""
    (field,) = [each for each in cls._schema if each.name == name]
    return _struct_class(cls, field)


def _struct_class(cls: type[Any], field: FieldSchema) -> type[Any]:
    return _class(field.struct, field.fields, cls._flexible)


@cache
def layout(name: str, version: int) -> Layout:
    """How a message travels in a version. Raises KeyError for a message or version that is not there."""
    found = schema(name)
    if not found.versions[0] <= version <= found.versions[1]:
        raise KeyError((name, version))
    return _layout(message_class(name), version, within(version, found.flexible))


def record_layout(cls: type[Any], version: int) -> Layout:
    """How a record travels in a version, or a struct in it."""
    return _layout(cls, version, cls._flexible is not None and within(version, cls._flexible))


def within(version: int, among: Versions) -> bool:
    return among[0] <= version <= among[1]


def _layout(cls: type[Any], version: int, flexible: bool) -> Layout:
    plain, tagged, absent, refused = [], [], [], []
    is_record = cls._flexible is not None
    for each in cls._schema:
        is_tagged = flexible and within(version, each.tagged)
        field = Field(
            each.name,
            each.type,
            is_array=each.is_array,
            nullable=within(version, each.nullable),
            default=_zero(cls, each) if is_record and within(version, each.nullable) else each.default,
            layout=_layout(_struct_class(cls, each), version, flexible) if each.struct else None,
            flexible=flexible and not each.always_classic,
            tag=each.tag if is_tagged else -1,
        )
        if not within(version, each.versions):
            absent.append(field)
            if not each.ignorable and is_record:
                refused.append(field)
        elif is_tagged:
            tagged.append(field)
        else:
            plain.append(field)
    return Layout(cls, plain, tagged, absent, refused, flexible)
