"""Produce, versions 0-2: message sets of format 0 and 1, which become one batch each before they are appended (KIP-32).

What can be converted at once is; more, and anything that could decompress to much, is converted in a thread, one at a
time, as all long work on records is. Then the request is handled as one of version 3. A partition whose messages are
refused is handled without records, so that permissions and unknown partitions come first; its error takes the place of
the one that it gets.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Buffer
from ottla.protocol import messages, schemas
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, TooLong
from ottla.protocol.records.old_formats import is_new, up_convert
from ottla.replication.partition import ACKS_NONE
from ottla.server.api import (
    LONG_RECORDS_BYTES,
    CloseConnection,
    Deferred,
    Handling,
    RequestContext,
    Response,
    load,
)
from ottla.server.legacy.translation import Legacy, later, upgraded
from ottla.server.produce.produce_answers import copy_records

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceRequest
    from ottla.protocol.schemas.sent import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

HANDLED_AS: Final = 3
INLINE_BYTES_MAX: Final = 8192
"""Bytes of messages, decompressed, that are converted on the event loop: some hundreds, which take a millisecond."""
MESSAGE_COST_SHIFT: Final = 3
"""Eight bytes of messages cost a microsecond: most are some thirty, and take four."""

Refused = dict[tuple[str, int], KafkaError]
"""Errors of messages, by topic and partition."""


def decode(version: int, frame: Buffer, position: int) -> Generator[int, None, Any]:
    old = yield from messages.decode_request_in_steps(ApiKey.PRODUCE, version, memoryview(frame), position)
    return (yield from upgraded(schemas.message_class("ProduceRequest"), old))


def handle(context: RequestContext, request: ProduceRequest) -> Handling[Any]:
    refused: Refused = {}
    empty: dict[tuple[str, int], None] = {}
    _keep(context, request)
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or is_new(records):
                continue
            try:
                data.records = yield from _converted(context, records)
                if data.records is None:
                    empty[topic.name, data.index] = None
            except KafkaError as error:
                refused[topic.name, data.index] = error
                data.records = None
    own, context.api_version = context.api_version, HANDLED_AS
    context.in_steps = True  # nothing lies in the receive buffer any more
    if request.acks == ACKS_NONE:  # nobody hears that there was nothing
        for topic in request.topic_data:
            kept = [data for data in topic.partition_data if (topic.name, data.index) not in empty]
            topic.partition_data = tuple(kept)
    answered = partial(_answered, refused, empty)
    outcome: Any
    try:
        outcome = load(ApiKey.PRODUCE).handle(context, request)
        if isinstance(outcome, Generator):
            outcome = yield from outcome
    except Exception:
        context.api_version = own
        raise
    if isinstance(outcome, Deferred):
        return later(outcome, answered, context, own)
    context.api_version = own
    return answered(outcome)


def _keep(context: RequestContext, request: ProduceRequest) -> None:
    """Others may be served before this request is done: its messages leave the buffer that they were received in."""
    if context.in_steps or (context.session is not None and context.session.give_received()):
        return
    copy_records(request)


def _converted(context: RequestContext, records: Buffer) -> Handling[bytearray | None]:
    """Raises KafkaError."""
    if len(records) <= INLINE_BYTES_MAX:
        try:
            batch = up_convert(records, INLINE_BYTES_MAX)
        except TooLong:
            pass
        else:
            yield len(records) >> MESSAGE_COST_SHIFT
            return batch
    found: bytearray | None = yield context.node.long_work(lambda: up_convert(records, DECOMPRESSED_BYTES_MAX))
    return found


def _answered(refused: Refused, empty: dict[tuple[str, int], None], response: Response) -> Response:
    """What the removed versions have of an answer, with the errors of messages."""
    if not isinstance(response, Mapping):
        return response
    topics: list[TopicProduceResponse] = []
    for topic in response["responses"]:
        rows: list[PartitionProduceResponse] = []
        for row in topic["partition_responses"]:
            at = topic["name"], row["index"]
            code = _code(row["error_code"], refused.get(at), at in empty)
            rows.append(
                {
                    "index": row["index"],
                    "error_code": code,
                    "base_offset": row["base_offset"],
                    "log_append_time": row.get("log_append_time", -1),
                }
            )
        topics.append({"name": topic["name"], "partition_responses": rows})
    return {"responses": topics}


def _code(code: int, error: KafkaError | None, is_empty: bool) -> int:
    if code == ErrorCode.invalid_record and error is not None:
        return error.code
    if code == ErrorCode.invalid_record and is_empty:
        return ErrorCode.none
    if code == ErrorCode.kafka_storage_error:  # of which these versions do not know
        return ErrorCode.not_leader_or_follower
    return code


def on_error(context: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """The same error for every partition."""
    if request.acks == ACKS_NONE:
        raise CloseConnection
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        rows: list[PartitionProduceResponse] = [
            {"index": data.index, "error_code": error.code, "base_offset": -1} for data in topic.partition_data
        ]
        topics.append({"name": topic.name, "partition_responses": rows})
    return {"responses": topics}


LEGACY: Final = Legacy(decode, handle, on_error, LONG_RECORDS_BYTES)
