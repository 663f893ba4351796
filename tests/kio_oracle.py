"""kio's generated entities beside ours: an oracle that shares no code with `ottla.protocol`.

`build` makes an entity from the plain values that handlers speak in, `plain` the values that our decoder gives of one.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, ClassVar
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.protocol import schemas
from ottla.protocol.messages import OWN_API_MIN, ApiKey
from ottla.protocol.writer import ERROR_MESSAGE_LENGTH_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _without_hypothesis() -> None:
    """Import kio without hypothesis: kio registers test strategies whenever it finds it, which costs half a second."""
    if "hypothesis" in sys.modules:
        import kio.serial
    else:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
        try:
            import kio.serial  # noqa: F401
        finally:
            del sys.modules["hypothesis"]


_without_hypothesis()

from kio.schema.errors import ErrorCode as KioErrorCode  # noqa: E402
from kio.serial import entity_writer  # noqa: E402
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional  # noqa: E402


@cache
def request_class(api_key: int, version: int) -> Any:
    """Raises KeyError for an API or version that kio does not know."""
    return _load(api_key, version, "request")


@cache
def response_class(api_key: int, version: int) -> Any:
    """Raises KeyError for an API or version that kio does not know."""
    return _load(api_key, version, "response")


def _load(api_key: int, version: int, kind: str) -> Any:
    if api_key >= OWN_API_MIN:
        return _own(schemas.schema(schemas.api_message(kind, api_key)).fields, kind, api_key)
    try:
        module = importlib.import_module(f"kio.schema.{ApiKey(api_key).name.lower()}.v{version}.{kind}")
    except ModuleNotFoundError as error:
        schema = schemas.schema(schemas.api_message(kind, api_key))
        if not schema.versions[0] <= version <= schema.versions[1]:
            raise KeyError((api_key, version)) from error
        return _newer(schema.fields, kind, api_key, version)
    for value in vars(module).values():
        if isinstance(value, type) and getattr(getattr(value, "__type__", None), "name", None) == kind:
            return value
    raise KeyError((api_key, version))


def _own(found: Sequence[schemas.FieldSchema], kind: str, api_key: int) -> Any:
    """An entity in kio's form of a message that Kafka does not have."""
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.schema.response_header.v1.header import ResponseHeader
    from kio.static.constants import EntityType
    from kio.static.primitive import i8, i16, i32, i64

    types: dict[str, Any] = {
        "string": str,
        "int8": i8,
        "int32": i32,
        "int64": i64,
        "error": KioErrorCode,
        "uuid": UUID | None,
        "bytes": bytes,
        "bool": bool,
    }
    names = {"error": "error_code"}
    members: list[Any] = []
    for each in found:
        if each.fields:
            row = _own(each.fields, "nested", api_key)
            members.append((each.name, tuple[row, ...], field(kw_only=True)))  # type: ignore[valid-type]
            continue
        type_ = str | None if each.nullable[1] >= 0 else types[each.type]
        members.append((each.name, type_, field(metadata={"kafka_type": names.get(each.type, each.type)})))
    header = RequestHeader if kind == "request" else ResponseHeader
    namespace = {
        "__type__": EntityType[kind],
        "__version__": i16(0),
        "__flexible__": True,
        "__api_key__": i16(api_key),
        "__header_schema__": header,
    }
    made = make_dataclass("Own", members, namespace=namespace, frozen=True, slots=True, kw_only=True)
    made.__annotations__.update(dict.fromkeys(namespace, ClassVar))
    return made


def _newer(found: Sequence[schemas.FieldSchema], kind: str, api_key: int, version: int) -> Any:
    """An entity in kio's form of a version that kio does not have yet, by the table of messages, which the walk beside
    Kafka's own classes holds to be right. Such versions are flexible."""
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.schema.response_header.v0.header import ResponseHeader as OldHeader
    from kio.schema.response_header.v1.header import ResponseHeader
    from kio.static.constants import EntityType
    from kio.static.primitive import f64, i8, i16, i32, i64, u16

    types: dict[str, Any] = {
        "float64": f64,
        "string": str,
        "uint16": u16,
        "int8": i8,
        "int16": i16,
        "int32": i32,
        "int64": i64,
        "bool": bool,
        "bytes": bytes,
        "error": KioErrorCode,
        "uuid": UUID | None,
    }
    members: list[Any] = []
    for each in found:
        if not each.versions[0] <= version <= each.versions[1]:
            continue
        metadata: dict[str, Any] = (
            {} if each.fields else {"kafka_type": {"error": "error_code"}.get(each.type, each.type)}
        )
        if each.tag >= 0:
            metadata["tag"] = each.tag
        one = _newer(each.fields, "nested", api_key, version) if each.fields else types[each.type]
        type_ = tuple[one, ...] if each.is_array else one
        if each.nullable[0] <= version <= each.nullable[1]:
            type_ = type_ | None
        default = {} if each.tag < 0 else {"default": each.default}
        members.append((each.name, type_, field(metadata=metadata, **default)))
    header: Any = (
        RequestHeader if kind == "request" else OldHeader if api_key == ApiKey.API_VERSIONS else ResponseHeader
    )
    namespace = {
        "__type__": EntityType[kind],
        "__version__": i16(version),
        "__flexible__": True,
        "__api_key__": i16(api_key),
        "__header_schema__": header,
    }
    made = make_dataclass("Newer", members, namespace=namespace, frozen=True, slots=True, kw_only=True)
    made.__annotations__.update(dict.fromkeys(namespace, ClassVar))
    return made


def encoded(entity: Any, head: bytes = b"") -> bytes:
    """`head`, then the bytes of an entity."""
    out = io.BytesIO()
    out.write(head)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def _timedelta(value: Any) -> Any:
    return timedelta(milliseconds=value) if isinstance(value, int) else value


def _datetime(value: Any) -> Any:
    if isinstance(value, int):
        return None if value == -1 else _EPOCH + timedelta(milliseconds=value)
    return value


def _moment(value: Any) -> Any:
    return _EPOCH + timedelta(milliseconds=value) if isinstance(value, int) else value


def _uuid(value: UUID | None) -> UUID | None:
    return None if value == ZERO_UUID else value


def _shortened(message: str) -> str:
    return message if len(message) <= ERROR_MESSAGE_LENGTH_MAX else message[:ERROR_MESSAGE_LENGTH_MAX] + "..."


_COERCIONS: dict[str, Callable[[Any], Any]] = {
    "timedelta_i32": _timedelta, "timedelta_i64": _timedelta, "datetime_i64": _datetime, "error_code": KioErrorCode,
    "uuid": _uuid,
}  # fmt: skip
_ZEROS: dict[str, Any] = {
    "timedelta_i32": timedelta(0), "timedelta_i64": timedelta(0), "error_code": KioErrorCode.none, "uuid": None,
    "string": "", "bytes": b"", "records": None, "bool": False, "float64": 0.0, "datetime_i64": _EPOCH,
}  # fmt: skip


@cache
def _plan(cls: Any) -> list[tuple[str, Any, bool, Any]]:
    plans = []
    for each in fields(cls):
        kind = classify_field(each)
        convert: Any
        if isinstance(kind, EntityField | EntityTupleField):
            convert = _builder(kind.type_)
            zero: Any = () if kind.is_array else None if is_optional(each) else build(kind.type_, {})
        else:
            kafka_type = str(each.metadata.get("kafka_type"))
            convert = _COERCIONS.get(kafka_type) if each.name != "error_message" else _shortened
            if kafka_type == "datetime_i64" and "None" not in str(each.type):
                convert = _moment
            zero = () if kind.is_array else _ZEROS.get(kafka_type, 0)
        if each.default is not MISSING:
            zero = each.default
        elif each.default_factory is not MISSING:
            zero = each.default_factory()
        plans.append((each.name, convert, kind.is_array, zero))
    return plans


def _builder(cls: Any) -> Callable[[Any], Any]:
    return lambda value: build(cls, value) if isinstance(value, Mapping) else value


def build(cls: Any, values: Mapping[str, Any]) -> Any:
    """An entity of `cls` from a mapping: unknown names dropped, missing ones defaulted."""
    arguments = {}
    for name, convert, is_array, default in _plan(cls):
        value = values.get(name, default) if name in values else default
        if value is not None and name in values:
            if is_array:
                value = tuple(map(convert, value)) if convert is not None else tuple(value)
            elif convert is not None:
                value = convert(value)
        arguments[name] = value
    return cls(**arguments)


RENAMED = {("TxnOffsetCommitRequest", "generation_id"): "generation_id_or_member_epoch"}
"""Fields that Kafka 4.4 calls otherwise than the release that kio was made of."""


def plain(entity: Any) -> Any:
    """An entity as dictionaries and lists, in the values that our decoder gives."""
    if isinstance(entity, timedelta):
        return entity // timedelta(milliseconds=1)
    if isinstance(entity, datetime):
        return (entity - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(entity, KioErrorCode):
        return ErrorCode(int(entity))
    if isinstance(entity, Sequence) and not isinstance(entity, str | bytes):
        return [plain(item) for item in entity]
    if hasattr(type(entity), "__dataclass_fields__"):
        found = {}
        for each in fields(entity):
            value = getattr(entity, each.name)
            kafka_type = each.metadata.get("kafka_type")
            if value is None and kafka_type == "uuid" and not classify_field(each).is_array:
                value = ZERO_UUID
            elif value is None and kafka_type == "datetime_i64":
                value = -1
            elif value is not None and kafka_type == "uuid" and classify_field(each).is_array:
                value = [ZERO_UUID if item is None else item for item in value]
            name = each.name.rstrip("_")
            found[RENAMED.get((type(entity).__name__, name), name)] = plain(value)
        return found
    return entity
