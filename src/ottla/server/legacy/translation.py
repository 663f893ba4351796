"""Requests of removed versions as requests of the oldest version that is left, and the answers the other way.

A field that an old version lacks has its default, and one that a new version lacks is dropped. While a request is
handled, its context says the newer version; the answer is written in the client's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from ottla.config.describe import Source
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer
from ottla.protocol import messages, schemas
from ottla.protocol.layout import STEP_COST
from ottla.protocol.messages import ApiKey
from ottla.server.api import LONG_REQUEST_BYTES, Api, Deferred, EncodedResponse, Handling, RequestContext, Response
from ottla.server.legacy.any_broker import anywhere, awaited
from ottla.steps import at_once

NO_OFFSET: Final = -1

Decoding = Generator[int, None, Any]
Adjusting = Generator[int, None, Mapping[str, Any]]


class Legacy(NamedTuple):
    """How the removed versions of an API are served."""

    decode: Callable[[int, Buffer, int], Decoding]
    handle: Callable[[RequestContext, Any], Any]
    on_error: Callable[[RequestContext, Any, KafkaError], Any]
    long_bytes: int = LONG_REQUEST_BYTES
    """A longer request is decoded in steps."""


def translated(modern: Api, version: int) -> Legacy:
    """The removed versions of an API, handled as `version`."""
    key = modern.key
    cls = schemas.message_class(schemas.api_message("request", key))
    adjust = ADJUSTED.get(key)

    def decode(own: int, frame: Buffer, offset: int) -> Decoding:
        old = yield from messages.decode_request_in_steps(key, own, memoryview(frame), offset)
        return (yield from upgraded(cls, old))

    def answered(context: RequestContext, own: int, response: Response) -> Generator[int, None, Response]:
        context.api_version = own
        if isinstance(response, EncodedResponse):
            frame = memoryview(b"".join(bytes(part) for part in response.parts))
            decoded = yield from messages.decode_response_in_steps(key, version, frame)
            response = yield from messages.plain_in_steps(decoded)
        return response

    def adjusted(response: Response) -> Generator[int, None, Response]:
        if adjust is not None and isinstance(response, Mapping):
            return (yield from adjust(response))
        return response

    def run(context: RequestContext, begin: Callable[[], Any]) -> Handling[Any]:
        own, context.api_version = context.api_version, version
        try:
            found = begin()
            if isinstance(found, Generator):
                found = yield from found
            if isinstance(found, Awaitable):
                found = yield found
        except Exception:
            context.api_version = own
            raise
        if isinstance(found, Deferred):
            if key not in AT_ANY_BROKER:
                return later(found, lambda response: at_once(answered(context, own, response)), context, own)
            found = yield awaited(found)
        return (yield from answered(context, own, found))

    def handle(context: RequestContext, request: Any) -> Handling[Any]:
        def locally() -> Handling[Any]:
            return run(context, lambda: modern.handle(context, request))

        if context.api_version == 0 and key in AT_ANY_BROKER:
            response = yield from anywhere(context, request, version, locally)
        else:
            response = yield from locally()
        return (yield from adjusted(response))

    def on_error(context: RequestContext, request: Any, error: KafkaError) -> Handling[Any]:
        response = yield from run(context, lambda: modern.on_error(context, request, error))
        return (yield from adjusted(response))

    return Legacy(decode, handle, on_error)


def later(
    found: Deferred, answered: Callable[[Response], Response], context: RequestContext, version: int
) -> Deferred | Response:
    """What `answered` makes of a response, when that is there. `version` is the request's own."""
    if found.done and not isinstance(found.result, BaseException):
        return answered(found.result)
    outer = Deferred(found.cancel)

    def complete(result: Response | BaseException) -> None:
        context.api_version = version
        if not isinstance(result, BaseException):
            try:
                result = answered(result)
            except Exception as error:
                result = error
        outer.complete(result)

    if found.done:
        complete(found.result)
    else:
        found.on_complete = complete
    return outer


def upgraded(cls: Any, old: Any) -> Decoding:
    """`old` as a message of a newer class with the same names."""
    values: dict[str, Any] = {}
    cost = 1
    schema: tuple[schemas.FieldSchema, ...] = cls._schema
    for field in schema:
        if not hasattr(old, field.name):
            continue
        value = getattr(old, field.name)
        if field.struct and field.is_array and value is not None:
            below = schemas.struct_class(cls, field.name)
            rows = []
            for each in value:
                rows.append((yield from upgraded(below, each)))
                cost += 3
                if cost > STEP_COST:
                    yield cost
                    cost = 0
            value = tuple(rows)
        values[field.name] = value
    yield cost
    return cls(**values)


AT_ANY_BROKER: Final = frozenset({ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH})
"""APIs whose version 0 is sent to any broker."""


def _with_defaults_marked(response: Mapping[str, Any]) -> Adjusting:
    """Version 0 of DescribeConfigs says whether a value is the default, and not where it comes from."""
    results = []
    for result in response["results"]:
        configs = []
        for entry in result["configs"]:
            source = entry.get("config_source", -1)
            configs.append({**entry, "is_default": source == Source.DEFAULT})
            yield 1
        results.append({**result, "configs": configs})
    return {**response, "results": results}


def _with_missing_offsets_refused(response: Mapping[str, Any]) -> Adjusting:
    """Version 0 of OffsetFetch, which knew ZooKeeper, says of a partition without an offset that it is unknown."""
    topics = []
    for topic in response["topics"]:
        rows = []
        for row in topic["partitions"]:
            if row["committed_offset"] == NO_OFFSET and not row["error_code"]:
                row = {**row, "error_code": ErrorCode.unknown_topic_or_partition}
            rows.append(row)
            yield 1
        topics.append({**topic, "partitions": rows})
    return {**response, "topics": topics}


ADJUSTED: Final[Mapping[int, Callable[[Mapping[str, Any]], Adjusting]]] = {
    ApiKey.DESCRIBE_CONFIGS: _with_defaults_marked,
    ApiKey.OFFSET_FETCH: _with_missing_offsets_refused,
}
"""Answers whose old versions say something else, not only less."""
