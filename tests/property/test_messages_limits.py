"""Requests beside kio: whole ones decode, torn ones are malformed, and no claim in them costs memory or time
(CVE-2026-111108, CVE-2026-111115 of Kafka)."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import resource
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from ottla.protocol.messages import (
    OWN_API_MIN,
    ApiKey,
    MalformedRequest,
    decode_request,
    decode_response,
    encode_request,
    plain,
    request_header,
)
from tests import kio_oracle
from tests.kio_oracle import request_class

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "timedelta_i32": st.integers(0, 2**31 - 1).map(lambda value: timedelta(milliseconds=value)),
    "timedelta_i64": st.integers(0, 2**40).map(lambda value: timedelta(milliseconds=value)),
    "datetime_i64": st.integers(0, 2**31).map(lambda value: datetime.fromtimestamp(value, UTC)),
    "uuid": st.uuids(),
    "string": st.text(max_size=4) | st.just("s" * 130),
    "bytes": st.binary(max_size=4) | st.just(b"\xff" * 130),
    "records": st.binary(max_size=4),
}
PRODUCE_AND_FETCH = (ApiKey.PRODUCE, ApiKey.FETCH)
"""Have codecs of their own."""


@cache
def versions() -> list[tuple[ApiKey, int]]:
    """The oldest and the newest that kio knows of each API of Kafka; importing them all would take half a minute."""
    found = []
    for api_key in ApiKey:
        if api_key in PRODUCE_AND_FETCH or api_key >= OWN_API_MIN:
            continue
        if importlib.util.find_spec(f"kio.schema.{api_key.name.lower()}") is None:
            continue  # of those that came with Kafka 4.4, kio has none
        package = importlib.import_module(f"kio.schema.{api_key.name.lower()}")
        numbers = [int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)]
        found += [(api_key, version) for version in {min(numbers), max(numbers)}]
    return found


@cache
def entities(cls: type) -> st.SearchStrategy[Any]:
    """Entities of a kio class, by the same introspection that its codec uses."""
    values = {}
    for field in fields(cls):
        kind = classify_field(field)
        if isinstance(kind, EntityField | EntityTupleField):
            item = entities(kind.type_)
        else:
            item = SCALARS[field.metadata["kafka_type"]]
        if kind.is_array:
            item = st.lists(item, max_size=2).map(tuple)
        of_ids = kind.is_array and field.metadata.get("kafka_type") == "uuid"  # there the items are optional
        values[field.name] = st.none() | item if is_optional(field) and not of_ids else item
    return st.builds(cls, **values)


def subset(values: Any, of: Any) -> Any:
    """`values` without what kio's entity of the version does not have."""
    if isinstance(of, dict):
        return {name: subset(values[name], of[name]) for name in of}
    if isinstance(of, list) and values is not None and len(values) == len(of):
        return [subset(*each) for each in zip(values, of, strict=True)]
    return values


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_request_of_every_version_is_walked_to_its_end(data: st.DataObject) -> None:
    api_key, version = data.draw(st.sampled_from(versions()))
    cls: Any = request_class(api_key, version)
    entity = data.draw(entities(cls))
    frame = kio_oracle.encoded(entity)
    decoded = decode_request(api_key, version, b"##" + frame, 2)
    values = kio_oracle.plain(entity)
    assert subset(plain(decoded), values) == values
    head = request_header(api_key, version, 1, "c")
    for each in (decoded, values):
        assert encode_request(api_key, version, 1, "c", each) == head + frame
    for end in {len(frame) // 2, max(len(frame) - 1, 0)} - {len(frame)}:
        with pytest.raises(MalformedRequest):
            decode_request(api_key, version, frame[:end], 0)


@settings(max_examples=300)
@given(st.data())
def test_any_bytes_are_a_request_or_malformed(data: st.DataObject) -> None:
    api_key, version = data.draw(st.sampled_from(versions()))
    frame = data.draw(st.binary(max_size=60) | st.binary(max_size=20).map(lambda item: item + b"\xff\xff\xff\xff\x0f"))
    try:
        decode_request(api_key, version, frame, 0)
    except MalformedRequest:
        pass


HUGE = b"\xff\xff\xff\xff\x0f"
HOSTILE = {
    "compact array": (ApiKey.METADATA, 12, HUGE),
    "nested array": (ApiKey.CREATE_TOPICS, 7, b"\x02\x02a" + bytes(6) + HUGE),
    "varint without end": (ApiKey.METADATA, 12, b"\xff" * 10),
    "number of tags": (ApiKey.LIST_GROUPS, 3, HUGE),
    "more tags than any client sends": (ApiKey.LIST_GROUPS, 3, b"\xff\xff\x3f" + bytes(2_200_000)),
    "array in a tag": (ApiKey.UPDATE_FEATURES, 1, bytes(4) + HUGE),
    "legacy array": (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
    "legacy array of numbers": (ApiKey.OFFSET_FETCH, 1, b"\0\1g\0\0\0\1\0\1t\x7f\xff\xff\xff" + bytes(100)),
    "millions of empty names": (ApiKey.DESCRIBE_GROUPS, 0, b"\x00\xff\xff\xff" + bytes(40_000_000)),
    "negative compact array": (ApiKey.LIST_OFFSETS, 6, bytes(5) + b"\xf0\xff\xff\xff\x0f"),
    "negative array": (ApiKey.LIST_OFFSETS, 1, bytes(4) + b"\xff\xff\xff\xfe"),
    "string": (ApiKey.FIND_COORDINATOR, 0, b"\x7f\xffx"),
    "negative string": (ApiKey.FIND_COORDINATOR, 0, b"\xff\xfbxxxxxxxx"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_claims_cost_nothing(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedRequest):
        decode_request(*HOSTILE[name], 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "KiB"


ANSWERS = {
    "compact array": (ApiKey.METADATA, 12, bytes(5) + HUGE),
    "legacy array": (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
    "bytes of a login": (ApiKey.SASL_AUTHENTICATE, 2, b"\0\0\0" + HUGE),
    "mechanisms": (ApiKey.SASL_HANDSHAKE, 1, b"\0\0\x7f\xff\xff\xff"),
    "number of tags": (ApiKey.API_VERSIONS, 3, b"\0\0\1\0\0\0\0" + HUGE),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_claims_of_answers_cost_nothing(name: str) -> None:
    """What Ottla's own clients are told by whoever listens at a port, before either knows the other."""
    key, version, body = ANSWERS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedRequest):
        decode_response(key, version, bytes(4) + body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "KiB"
