"""The APIs of a broker's listener with the versions that Kafka 4.0 removed (KIP-896).

Such a request is read by its own schema, made a request of the oldest version that is left, and handled as one; the
answer is written by its own schema again. Three APIs have handlers of their own: Produce and Fetch convert records, and
ListOffsets asked for segments. Which versions there are is in the table of schemas.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any

from ottla.errors import KafkaError
from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.messages import ApiKey
from ottla.server.api import OF_BROKERS, Api, ApiSet, LongRequest, RequestContext
from ottla.server.handlers import TABLE, Served
from ottla.server.legacy import fetch, list_offsets, produce
from ottla.server.legacy.translation import Legacy, translated
from ottla.steps import at_once


@cache
def removed_versions() -> Mapping[int, tuple[int, int]]:
    """The first and the last removed version of each API that a broker serves."""
    found = {}
    for name in schemas.names(schemas.REMOVED[1:]):
        schema = schemas.schema(name)
        if schema.kind == "request" and schema.api_key in TABLE:
            found[schema.api_key] = schema.versions
    return found


@cache
def legacy_apis() -> ApiSet:
    """What a listener serves that old clients may use."""

    def older(table: Mapping[int, Served]) -> dict[int, Served]:
        removed = removed_versions()
        return {
            key: served._replace(min_version=removed[key][0]) if key in removed else served
            for key, served in table.items()
        }

    return ApiSet(older(OF_BROKERS.table), _load, advertised=older(OF_BROKERS.advertised), of_clients=True)


@cache
def _load(key: int) -> Api:
    modern = OF_BROKERS.load(key)
    if key not in removed_versions():
        return modern
    return with_versions(modern, _legacy(modern), removed_versions()[key])


def _legacy(modern: Api) -> Legacy:
    if modern.key == ApiKey.PRODUCE:
        return produce.LEGACY
    if modern.key == ApiKey.FETCH:
        return fetch.LEGACY
    if modern.key == ApiKey.LIST_OFFSETS:
        return list_offsets.LEGACY
    return translated(modern, removed_versions()[modern.key][1] + 1)


def with_versions(modern: Api, legacy: Legacy, removed: tuple[int, int]) -> Api:
    """`modern` with the removed versions before its own."""
    first, last = removed

    def decode(version: int, frame: Buffer, offset: int) -> Any:
        if version > last:
            return modern.decode(version, frame, offset)
        if len(frame) - offset > legacy.long_bytes:
            raise LongRequest
        return at_once(legacy.decode(version, frame, offset))

    def decode_in_steps(version: int, frame: Buffer, offset: int) -> Generator[int, None, Any]:
        if version > last:
            assert modern.decode_in_steps is not None
            return modern.decode_in_steps(version, frame, offset)
        return legacy.decode(version, frame, offset)

    def handle(context: RequestContext, request: Any) -> Any:
        return (modern if context.api_version > last else legacy).handle(context, request)

    def on_error(context: RequestContext, request: Any, error: KafkaError) -> Any:
        return (modern if context.api_version > last else legacy).on_error(context, request, error)

    def learn(context: RequestContext, request: Any, frame: memoryview) -> None:
        if modern.learn is not None and int.from_bytes(frame[2:4], "big") > last:
            modern.learn(context, request, frame)

    return Api(
        modern.key,
        (first, modern.max_version),
        handle,
        decode,
        on_error,
        modern.pipelined,
        learn,
        decode_in_steps=decode_in_steps,
        long_bytes=modern.long_bytes,
        cost_shift=modern.cost_shift,
        needs=modern.needs,
    )
