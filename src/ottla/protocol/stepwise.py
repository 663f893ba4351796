"""Long requests and responses, decoded and encoded in steps: kio does all of one in one piece.

Both are generators that yield the cost of what they have just done (`drivers/cooperative.py`). They follow kio's schema
down to the arrays and leave to kio what is in them: rows without arrays of their own, one by one, and scalars.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID
from ottla.protocol import limits, messages
from ottla.protocol.limits import OverLimit
from ottla.protocol.messages import (
    MalformedRequest,
    array_length,
    build,
    builder,
    is_about_bytes,
    request_class,
    response_class,
    response_header,
    writer,
)
from ottla.protocol.varint import read_length, read_uvarint

ROW_COST: Final = 5
"""Decoding or encoding a row takes some microseconds, and encoding one with more fields a microsecond for each."""
NESTED_ROW_COST: Final = 20
"""One with arrays of its own, whatever is in them."""
ROWS_AT_ONCE: Final = 50
SCALARS_AT_ONCE: Final = 250
"""Numbers and strings cost a tenth of a row."""
LONG_BYTES: Final = 4096
"""What is longer is decoded in steps: it may have a thousand rows, each of which costs far more than its bytes."""
LONG_ROWS: Final = 250
"""What has more is encoded in steps: it costs a millisecond."""

_INT32 = struct.Struct(">i")
Steps = Generator[int, None, Any]
Read = Callable[[Any, int], tuple[Any, int]]
"""(frame, position) -> value and the size of it."""


class _Field(NamedTuple):
    name: str
    read: Read
    """kio's reader of the whole field, or of one item of an array."""
    walk: limits.Walk
    """Over the same."""
    look: Callable[[Any], None] | None
    """Refuses null where it is not allowed in the field."""
    item: Any
    """The class of an array's rows."""
    is_array: bool
    is_nullable: bool
    inner: Any = None
    """The class of a single entity that has arrays, which is decoded in steps too."""


class _Schema(NamedTuple):
    flexible: bool
    plain: list[_Field]
    tagged: dict[int, _Field]
    defaults: dict[str, Any]
    """Defaults of the tagged fields."""
    is_leaf: bool
    """Whether there is no array in it."""


@cache
def _schema(cls: Any) -> _Schema:
    from kio.serial._implicit_defaults import get_tagged_field_default

    plain = []
    tagged = {}
    defaults = {}
    for field in fields(cls):
        found = _field(cls, field)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = found
            defaults[field.name] = field.default if field.default is not MISSING else get_tagged_field_default(field)
        else:
            plain.append(found)
    is_leaf = not any(each.is_array or each.inner is not None for each in [*plain, *tagged.values()])
    return _Schema(cls.__flexible__, plain, tagged, defaults, is_leaf)


def _field(cls: Any, field: Any) -> _Field:
    from kio.serial import entity_reader
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
    from kio.serial._parse import get_field_reader, get_reader

    flexible = cls.__flexible__
    kind = classify_field(field)
    is_tagged = "tag" in field.metadata
    item = None
    look = None
    inner = None
    if kind.is_array and not is_tagged:
        if isinstance(kind, EntityTupleField):
            item = kind.type_
            read, walk = entity_reader(item), limits.entity_walk(item)
        else:
            read = get_reader(field.metadata["kafka_type"], flexible, False)
            walk = limits.scalar_walk(field, flexible)
    else:
        read = get_field_reader(cls, field, False, is_tagged)
        walk, _ = limits.field_walk(field, flexible)
        if isinstance(kind, EntityField | EntityTupleField):
            look = limits.refuses_null(kind.type_)
        if isinstance(kind, EntityField) and not is_tagged and not _schema(kind.type_).is_leaf:
            inner = kind.type_
    return _Field(field.name, read, walk, look, item, kind.is_array, is_optional(field), inner)


def decode_request(api_key: int, version: int, frame: memoryview, position: int) -> Steps:
    """The request entity in `frame`, as `messages.decode_request` gives it. Raises MalformedRequest."""
    cls = request_class(api_key, version)
    try:
        entity, _ = yield from _decode(cls, frame.toreadonly(), position, limits.Walked(None))
    except Exception as error:
        if not is_about_bytes(error):
            raise
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error
    return entity


def decode_response(api_key: int, version: int, frame: memoryview) -> Steps:
    """The response entity in `frame`, which stays as it is, as `messages.decode_response` gives it. Raises
    MalformedRequest."""
    cls = response_class(api_key, version)
    position = len(response_header(api_key, version, 0))
    try:
        entity, _ = yield from _decode(cls, frame.toreadonly(), position, limits.Walked(None))
    except Exception as error:
        if not is_about_bytes(error):
            raise
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error
    return entity


def _read(field: _Field, frame: memoryview, position: int, walked: limits.Walked) -> tuple[Any, int]:
    """A value and the position after it; see `limits` for what kio reads only when it is written again."""
    try:
        end = field.walk(frame, position, walked)
        value, _ = field.read(frame, position)
    except Exception as error:
        if not is_about_bytes(error):
            raise
        data, end = limits.value_rewritten(field.walk, frame, position)
        value, _ = field.read(data, 0)
    if field.look is not None and value is not None:
        if field.is_array:
            for row in value:
                field.look(row)
        else:
            field.look(value)
    return value, end


def _decode(cls: Any, frame: memoryview, position: int, walked: limits.Walked) -> Steps:
    schema = _schema(cls)
    values = dict(schema.defaults)
    for field in schema.plain:
        if field.is_array:
            values[field.name], position = yield from _decode_array(schema.flexible, field, frame, position, walked)
        elif field.inner is not None:
            values[field.name], position = yield from _decode_inner(field, frame, position, walked)
        else:
            values[field.name], position = _read(field, frame, position, walked)
    if schema.flexible:
        position = _decode_tags(schema, values, frame, position, walked)
    return cls(**values), position


def _decode_inner(field: _Field, frame: memoryview, position: int, walked: limits.Walked) -> Steps:
    """An entity that may be null has a byte before it, negative for null."""
    if field.is_nullable:
        is_null = frame[position] > 0x7F
        position += 1
        if is_null:
            return None, position
    return (yield from _decode(field.inner, frame, position, walked))


def _decode_array(flexible: bool, field: _Field, frame: memoryview, position: int, walked: limits.Walked) -> Steps:
    if flexible:
        count, position = read_length(frame, position)
    else:
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
    if count < 0:
        if field.is_nullable:
            return None, position
        raise OverLimit(f"{field.name} is null")
    if count > len(frame) - position:
        raise OverLimit(f"an array of {count} items in {len(frame) - position} bytes")
    walked.count(count)
    found = []
    if field.item is not None and not _schema(field.item).is_leaf:
        for _ in range(count):
            item, position = yield from _decode(field.item, frame, position, walked)
            found.append(item)
            yield NESTED_ROW_COST
        return tuple(found), position
    at_once, cost = (ROWS_AT_ONCE, ROWS_AT_ONCE * ROW_COST) if field.item else (SCALARS_AT_ONCE, SCALARS_AT_ONCE)
    for number in range(1, count + 1):
        item, position = _read(field, frame, position, walked)
        found.append(item)
        if number % at_once == 0:
            yield cost
    return tuple(found), position


def _decode_tags(
    schema: _Schema, values: dict[str, Any], frame: memoryview, position: int, walked: limits.Walked
) -> int:
    count, position = read_uvarint(frame, position)
    if count > limits.TAGS_MAX:
        raise OverLimit(f"{count} tagged fields")
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        length, position = read_uvarint(frame, position)
        end = position + length
        if end > len(frame):
            raise OverLimit(f"tagged field {tag} ends past the end")
        known = schema.tagged.get(tag)
        if known is not None:
            values[known.name], stop = _read(known, frame, position, walked)
            if stop != end:
                raise OverLimit(f"tagged field {tag} is not as long as it says")
        position = end
    return position


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> Steps:
    """Like `messages.encode_response`, in steps."""
    out = io.BytesIO()
    out.write(response_header(api_key, version, correlation_id))
    yield from _encode(response_class(api_key, version), values, out)
    return out.getvalue()


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, values: Mapping[str, Any]
) -> Steps:
    """Like `messages.encode_request`, in steps."""
    out = io.BytesIO()
    out.write(messages.request_header(api_key, version, correlation_id, client_id))
    yield from _encode(request_class(api_key, version), values, out)
    return out.getvalue()


def is_long(values: Mapping[str, Any]) -> bool:
    """Whether a message has so many rows, those in rows included, that it is to be encoded in steps."""
    left = LONG_ROWS
    arrays = [each for each in values.values() if _is_array(each)]
    while arrays:
        array = arrays.pop()
        left -= len(array)
        if left < 0:
            return True
        for row in array:
            if isinstance(row, Mapping):
                arrays += [each for each in row.values() if _is_array(each)]
    return False


_NO_ARRAYS: Final = frozenset({int, str, bytes, bytearray, memoryview, bool, float, dict, type(None), UUID})
"""Types looked up: `isinstance` of an abstract class is slow."""


def _is_array(value: Any) -> bool:
    return type(value) not in _NO_ARRAYS and isinstance(value, Sequence) and not isinstance(value, str | bytes)


class _Part(NamedTuple):
    name: str
    item: Any
    """The class of the rows, of an array of them."""
    inner: Any
    """The class of a single entity that has arrays. Without both kio writes the field."""
    is_nullable: bool


@cache
def _parts(cls: Any) -> tuple[list[_Part], Any]:
    """The fields of `cls` in order, tagged ones left out, and how kio writes each that is no array of rows."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
    from kio.serial._serialize import get_field_writer

    parts = []
    write = {}
    for field in fields(cls):
        if "tag" in field.metadata:
            continue
        kind = classify_field(field)
        item = kind.type_ if isinstance(kind, EntityTupleField) else None
        inner = kind.type_ if isinstance(kind, EntityField) and not _schema(kind.type_).is_leaf else None
        parts.append(_Part(field.name, item, inner, is_optional(field)))
        if item is None:
            write[field.name] = get_field_writer(
                field, flexible=cls.__flexible__, is_request_header=False, is_tag=False
            )
    return parts, write


@cache
def _is_nested(cls: Any) -> bool:
    """Whether rows of `cls` have rows of their own, and no tagged fields, which kio writes."""
    parts, _ = _parts(cls)
    return len(parts) == len(fields(cls)) and any(part.item is not None or part.inner is not None for part in parts)


def _encode(cls: Any, values: Mapping[str, Any], out: io.BytesIO) -> Steps:
    parts, write = _parts(cls)
    arrays = {part.name: values.get(part.name) for part in parts if part.item is not None}
    inners: dict[str, Mapping[str, Any]] = {}
    for part in parts:
        if part.inner is not None and isinstance(value := values.get(part.name), Mapping):
            inners[part.name] = value
    rest = {name: values[name] for name in values if name not in inners} if inners else values
    around = build(cls, {**rest, **{name: () for name in arrays if arrays[name] is not None}})
    for name, item, inner, is_nullable in parts:
        if name in inners:
            if is_nullable:
                out.write(b"\x01")
            yield from _encode(inner, inners[name], out)
            continue
        if item is None:
            value = getattr(around, name)
            if isinstance(value, tuple) and len(value) > SCALARS_AT_ONCE:
                yield from _encode_scalars(cls.__flexible__, write[name], value, out)
            else:
                write[name](out, value)
            continue
        rows = arrays[name]
        if rows is None:
            rows = getattr(around, name)  # left out: the schema's default, which may be null
        yield from _encode_rows(cls.__flexible__, item, rows, out)
    if cls.__flexible__:
        out.write(_tags(cls, around))


def _encode_scalars(
    flexible: bool, write: Callable[[Any, Any], None], items: tuple[Any, ...], out: io.BytesIO
) -> Steps:
    out.write(array_length(len(items), flexible))
    for start in range(0, len(items), SCALARS_AT_ONCE):
        some = items[start : start + SCALARS_AT_ONCE]
        piece = io.BytesIO()
        write(piece, some)
        out.write(memoryview(piece.getbuffer())[len(array_length(len(some), flexible)) :])
        yield len(some)


def _encode_rows(flexible: bool, cls: Any, rows: Sequence[Any] | None, out: io.BytesIO) -> Steps:
    if rows is None:
        out.write(b"\0" if flexible else b"\xff\xff\xff\xff")
        return
    out.write(array_length(len(rows), flexible))
    if _is_nested(cls):
        for row in rows:
            yield from _encode(cls, row, out)
            yield NESTED_ROW_COST
        return
    convert, write, names = builder(cls), writer(cls), _scalar_arrays(cls)
    row_cost = max(ROW_COST, len(_parts(cls)[0]))
    scalars = 0
    for number, row in enumerate(rows, start=1):
        many = 0
        for name in names if isinstance(row, Mapping) else ():
            many += len(row.get(name) or ())
        if many > SCALARS_AT_ONCE and not _has_tags(cls):
            yield from _encode(cls, row, out)
            continue
        write(out, convert(row))
        scalars += many
        if number % ROWS_AT_ONCE == 0 or scalars > SCALARS_AT_ONCE:
            yield ROWS_AT_ONCE * row_cost + scalars
            scalars = 0


@cache
def _scalar_arrays(cls: Any) -> tuple[str, ...]:
    """The fields of `cls` that are arrays of numbers, strings or ids."""
    from kio.serial._introspect import classify_field

    items = {part.name: part.item for part in _parts(cls)[0]}
    return tuple(
        field.name
        for field in fields(cls)
        if field.name in items and items[field.name] is None and classify_field(field).is_array
    )


@cache
def _has_tags(cls: Any) -> bool:
    return any("tag" in field.metadata for field in fields(cls))


def _tags(cls: Any, entity: Any) -> bytes:
    """The tagged fields of an entity without rows."""
    if not _has_tags(cls):
        return b"\0"
    whole, before = io.BytesIO(), io.BytesIO()
    writer(cls)(whole, entity)
    parts, write = _parts(cls)
    for name, item, *_ in parts:
        if item is None:
            write[name](before, getattr(entity, name))
        else:
            rows = getattr(entity, name)
            before.write(b"\0" if rows is None else array_length(0, cls.__flexible__))
    return whole.getvalue()[len(before.getvalue()) :]


def plain(entity: Any) -> Steps:
    """What `messages.plain` gives for a message, with the zero uuid, which kio reads as None, as the id that it is."""
    if not hasattr(type(entity), "__dataclass_fields__"):
        return messages.plain(entity)
    found = {}
    for field in fields(entity):
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            rows = []
            for number, item in enumerate(value, start=1):
                cls: Any = type(item)
                if not hasattr(cls, "__dataclass_fields__"):
                    rows.append(messages.plain(item))
                elif _schema(cls).is_leaf:
                    rows.append(_with_ids(cls, messages.plain(item)))
                else:
                    rows.append((yield from plain(item)))
                if number % ROWS_AT_ONCE == 0:
                    yield ROWS_AT_ONCE * ROW_COST
            found[field.name] = rows
        elif hasattr(type(value), "__dataclass_fields__"):
            found[field.name] = yield from plain(value)
        else:
            found[field.name] = messages.plain(value)
    return _with_ids(type(entity), found)


@cache
def _ids(cls: type) -> tuple[tuple[str, bool], ...]:
    """The fields of an entity that are uuids, and whether they are arrays of them."""
    from kio.serial._introspect import classify_field

    uuids = [field for field in fields(cls) if field.metadata.get("kafka_type") == "uuid"]
    return tuple((field.name, classify_field(field).is_array) for field in uuids)


def _with_ids(cls: type, row: dict[str, Any]) -> dict[str, Any]:
    """The row with ids instead of None; an array that is null stays null."""
    for name, is_array in _ids(cls):
        value = row[name]
        if not is_array:
            row[name] = ZERO_UUID if value is None else value
        elif value is not None:
            row[name] = [ZERO_UUID if each is None else each for each in value]
    return row
