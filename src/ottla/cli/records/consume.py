"""`ottla consume`: read a topic from any offset or time, once or for as long as records come."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ottla.cli import client
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, UNREACHABLE, CommandFailed
from ottla.cli.interrupts import call, in_thread
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.progress import output_leaves_the_terminal, shown
from ottla.cli.records.emit import Emit, emitter
from ottla.cli.records.positions import START_WORDS, GroupEnd, chosen, stretch
from ottla.cli.records.reader import Reader
from ottla.cli.records.record import record_of
from ottla.cli.schema.access import DEFAULT_URL, TYPES, RegistryUrl, decoded
from ottla.cli.values import Count, MemberGroupId, Partition, Text, TopicName

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

POLL_S = 0.2
LEAVE_S = 5.0


def consume(
    topic: TopicName,
    /,
    *,
    from_: Annotated[Text | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    to: Annotated[Text | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[Flag, Parameter(alias="-f")] = False,
    count: Annotated[Count | None, Parameter(alias="-n")] = None,
    partition: Annotated[list[Partition] | None, Parameter(alias="-p", negative="", consume_multiple=False)] = None,
    group: Annotated[MemberGroupId | None, Parameter(alias="-g")] = None,
    format: Annotated[Text | None, Parameter(alias="-o")] = None,
    values_only: Flag = False,
    key_format: Literal["avro", "json-schema", "protobuf"] | None = None,
    value_format: Literal["avro", "json-schema", "protobuf"] | None = None,
    registry: RegistryUrl = DEFAULT_URL,
    uncommitted: Flag = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Read a topic, by default from its beginning to its current end.

    A terminal shows partition, offset, time and key beside each value; a pipe gets only the values, one per line.

    Parameters
    ----------
    topic
        What to read.
    from_
        Where to begin: beginning, end, an offset, -N for the last N records of each partition, a time such as
        2026-05-01T12:00, or an age such as 90s, 10m, 2h, 7d.
    to
        Where to stop (exclusive), in the same forms.
    follow
        Keep reading new records until Ctrl-C.
    count
        Stop after this many records.
    partition
        Read only this partition; may be repeated.
    group
        Join this consumer group and commit the offsets read. Starts at the group's committed offsets; --from (beginning
        or end) applies to partitions without one.
    format
        text, values, json, hex, or a template such as '{partition}:{offset} {time} {key} {value:json}', with topic,
        timestamp, headers and header.NAME too, and text, hex, base64 or json after a colon. avro, json-schema and
        protobuf are short for --value-format with the default format.
    values_only
        Short for --format values.
    key_format
        Decode keys as Avro, JSON or Protobuf with schemas from a registry; shown as JSON.
    value_format
        The same for values; --format still selects how records are shown.
    uncommitted
        Include records of open and aborted transactions.
    json
        As --format json: one object a line, for programs and for `ottla produce --from-json`.
    """
    _ensure_sense(to, follow, group, from_, partition)
    if format in TYPES:
        if value_format is not None:
            raise CommandFailed(f"--format {format} and --value-format cannot be used together", MISUSED)
        format, value_format = None, format
    emit = emitter(_form(format, json, values_only))
    with decoded(emit, registry, key_format, value_format) as emit:
        _consume(bootstrap, topic, from_, to, follow, count, partition, group, uncommitted, emit)
    return OK


def _consume(
    bootstrap: str,
    topic: str,
    from_: str | None,
    to: str | None,
    follow: bool,
    count: int | None,
    partition: list[int] | None,
    group: str | None,
    uncommitted: bool,
    emit: Emit,
) -> None:
    try:
        if group is not None:
            _read_as_member(bootstrap, topic, group, from_, uncommitted, follow, count, emit)
        else:
            reader = Reader(bootstrap, topic, uncommitted=uncommitted, patient=follow)
            numbers = chosen(topic, reader.partitions, partition)
            starts, stops = stretch(reader, numbers, from_ or "beginning", to, follow)
            _read(reader, starts, stops, count, emit)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        _flush()


def _read(reader: Reader, starts: dict[int, int], stops: dict[int, int] | None, count: int | None, emit: Emit) -> None:
    total = None if stops is None else sum(max(0, stop - starts[number]) for number, stop in stops.items())
    if count is not None:
        total = count if total is None else min(count, total)
    if total == 0:
        return
    with closing(reader.read(starts, stops)) as batches:
        for records in shown(batches, "consuming", total, len) if output_leaves_the_terminal() else batches:
            if not records:
                _flush()  # nothing at hand: let the reader see what there is
            part = records if count is None else records[:count]
            for record in part:
                emit(record)
            if count is not None:
                count -= len(part)
                if not count:
                    return


def _form(form: str | None, as_json: bool, values_only: bool) -> str | None:
    """`--json` and `--values-only` are short for two words of `--format`."""
    if (form is not None) + as_json + values_only > 1:
        raise CommandFailed("--format, --json and --values-only cannot be used together", MISUSED)
    return "json" if as_json else "values" if values_only else form


def _ensure_sense(
    to: str | None, follow: bool, group: str | None, from_: str | None, partition: list[int] | None
) -> None:
    if to is not None and follow:
        raise CommandFailed("--to and --follow cannot be used together", MISUSED)
    if group is not None and (partition or to or (from_ is not None and from_ not in START_WORDS)):
        raise CommandFailed("--group allows only --from beginning or end, not --to or --partition", MISUSED)


def _consumer_settings(group: str, from_: str | None, uncommitted: bool) -> dict[str, Any]:
    return {
        "group.id": group,
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "auto.offset.reset": START_WORDS[from_ or "beginning"],
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 500,
        # Enough for a full pipe; librdkafka's default would buffer 64 MB.
        "queued.max.messages.kbytes": 8192,
        # Look soon whether there is room again; the default of a second leaves the pipe idle most of the time.
        "fetch.queue.backoff.ms": 10,
    }


class _Link:
    """Whether the brokers are there. With --follow they are waited for; a command that wants an end fails at once."""

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient
        self._lost: KafkaError | None = None
        self._reported = False

    def report(self, error: KafkaError) -> None:
        """librdkafka's error callback; it runs inside `poll`."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._lost = error

    def works(self) -> None:
        self._lost, self._reported = None, False

    def check(self) -> None:
        """Raises KafkaException where nobody can be reached and waiting was not asked for."""
        if self._lost is None:
            return
        if not self._patient:
            from confluent_kafka import KafkaException

            raise KafkaException(self._lost)
        if not self._reported:
            print("ottla: no broker answers; waiting for one (Ctrl-C to stop)", file=sys.stderr)
            self._reported = True


def _read_as_member(
    bootstrap: str,
    topic: str,
    group: str,
    from_: str | None,
    uncommitted: bool,
    follow: bool,
    count: int | None,
    emit: Emit,
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    Reader(bootstrap, topic)  # the topic is there
    link = _Link(patient=follow)
    settings = {**_consumer_settings(group, from_, uncommitted), "error_cb": link.report}
    consumer = client.consumer(bootstrap, settings)
    try:
        end = GroupEnd(consumer, topic)
        left = count
        while left != 0 and (follow or not end.reached()):
            message = call(consumer.poll, 0)
            if message is None:
                _flush()  # nothing at hand: let the reader see what there is
                message = call(consumer.poll, POLL_S)
            if message is None:
                link.check()
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            link.works()
            if error is not None:
                end.at_end(message)
                continue
            emit(record_of(message))
            consumer.store_offsets(message)
            if left is not None:
                left -= 1
    finally:
        try:
            _flush()
        finally:
            _leave(consumer)


def _leave(consumer: Consumer) -> None:
    """Commit and leave the group; a broker that does not answer is not waited for as long as librdkafka would."""
    try:
        in_thread(consumer.close, limit_s=LEAVE_S)
    except TimeoutError:
        raise CommandFailed("the broker does not answer: the last offsets may not be committed", UNREACHABLE) from None


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
