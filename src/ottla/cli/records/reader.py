"""Reads a topic without a group: no coordinator is looked for, so that looking at a topic creates nothing.

(librdkafka's consumer cannot do without a group, and looking for its coordinator makes brokers create
`__consumer_offsets`.) A fetch to each leader is always on its way while the records before it are shown.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.cli import wire
from ottla.cli.client import CLIENT_ID, REQUEST_TIMEOUT_S, addresses, probe
from ottla.cli.exits import UNREACHABLE, CommandFailed
from ottla.cli.records.record import Record
from ottla.errors import ErrorCode
from ottla.protocol import fetch, fetch_responses
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import ABORT_KEY, BatchHeader, crc_is_valid, iterate_batches, iterate_records

EARLIEST, LATEST = -2, -1
"""Times of ListOffsets that stand for the first offset and the end."""
FETCH_VERSION = 12
"""The last that names topics; since Kafka 2.7."""
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 << 20
PARTITION_BYTES_MAX = 1 << 20
"""Batches that are larger come whole all the same (KIP-74)."""
RETRY_PAUSE_S = 0.2
RECONNECT_PAUSE_S = 1.0
EMPTY_ANSWERS_MAX = 2
"""Answers in a row without a record below the end, after which there is none: the last offsets are gone."""

_MOVED = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
    }
)
"""Errors that a change of leader explains."""


@dataclass
class _Leader:
    link: wire.Link
    waits: bool = False
    """Whether a fetch is on its way."""


class Reader:
    """Partitions of one topic. Raises CommandFailed."""

    def __init__(self, bootstrap: str, topic: str, *, uncommitted: bool = False, patient: bool = False) -> None:
        probe(bootstrap)
        self.topic = topic
        self._bootstrap = bootstrap
        self._isolation = 0 if uncommitted else 1
        self._patient = patient
        """Whether to wait for brokers to come back; a command that wants an end fails at once."""
        self._leaders: dict[int, int] = {}
        self._addresses: dict[int, str] = {}
        self._links: dict[int, _Leader] = {}
        self._positions: dict[int, int] = {}
        self._stops: dict[int, int] | None = None
        self._empty: dict[int, int] = {}
        self._stuck_since: float | None = None
        self.partitions = self._look_up()

    def _look_up(self) -> list[int]:
        """Where the leaders are. Asks brokers that are known beside those of --bootstrap."""
        known = ",".join(dict.fromkeys([*addresses(self._bootstrap), *self._addresses.values()]))
        values = {
            "topics": [{"topic_id": None, "name": self.topic}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = wire.ask(known, ApiKey.METADATA, values)
        (found,) = answer["topics"]
        wire.ensure_none(found, f"topic {self.topic!r}")
        self._addresses = wire.broker_addresses(answer)
        self._leaders = {each["partition_index"]: each["leader_id"] for each in found["partitions"]}
        return sorted(self._leaders)

    def offsets(self, numbers: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """The first record of a time or later, EARLIEST or LATEST, in each partition; -1 where there is none."""
        found: dict[int, int] = {}
        left = set(numbers)
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            code = self._ask_offsets(left, timestamp_ms, found)
            left -= found.keys()
            if not left:
                return found
            if code not in _MOVED or time.monotonic() > deadline:
                raise wire.failure_of(
                    code or ErrorCode.leader_not_available, f"topic {self.topic!r} partition {min(left)}: "
                )
            time.sleep(RETRY_PAUSE_S)
            self._look_up()

    def _ask_offsets(self, numbers: set[int], timestamp_ms: int, found: dict[int, int]) -> int:
        """Add the answers to `found`; the last error is returned."""
        code = 0
        for leader in sorted({self._leaders[number] for number in numbers}):
            asked = [
                {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp_ms}
                for number in sorted(numbers)
                if self._leaders[number] == leader
            ]
            if leader not in self._addresses:
                code = ErrorCode.leader_not_available
                continue
            values = {
                "replica_id": -1,
                "isolation_level": self._isolation,
                "topics": [{"name": self.topic, "partitions": asked}],
            }
            answer = wire.ask(self._addresses[leader], ApiKey.LIST_OFFSETS, values)
            for each in (part for topic in answer["topics"] for part in topic["partitions"]):
                error = int(each["error_code"] or 0)
                if error:
                    code = error
                else:
                    found[each["partition_index"]] = each["offset"]
        return code

    def read(self, starts: Mapping[int, int], stops: Mapping[int, int] | None) -> Generator[list[Record], None, None]:
        """Records from `starts` to before `stops`, batch by batch; without stops for ever.

        Yields an empty list whenever nothing is at hand.
        """
        self._stops = None if stops is None else dict(stops)
        self._positions = dict(starts)
        self._drop_finished()
        try:
            while self._positions:
                try:
                    ready = self._send_and_wait()
                    for number in ready:
                        answer = self._links[number].link.receive_frame()
                        self._links[number].waits = False
                        yield from self._take(answer)
                except OSError as error:
                    yield []
                    self._recover(error)
        finally:
            self.close()

    def close(self) -> None:
        for each in self._links.values():
            each.link.close()
        self._links.clear()

    def _send_and_wait(self) -> list[int]:
        """Brokers that have answered."""
        self._send()
        waiting = {each.link.fileno(): number for number, each in self._links.items() if each.waits}
        if not waiting:
            self._wait_for_leaders(ErrorCode.leader_not_available)
            return []
        ready, _, _ = select.select(list(waiting), [], [], 2 * REQUEST_TIMEOUT_S)
        if not ready:
            raise OSError("the broker does not answer")
        return [waiting[each] for each in ready]

    def _send(self) -> None:
        """A fetch to every leader that has none to answer."""
        mine: dict[int, list[fetch.FetchPartition]] = {}
        for number, offset in self._positions.items():
            asked = fetch.FetchPartition(number, offset, PARTITION_BYTES_MAX)
            mine.setdefault(self._leaders.get(number, -1), []).append(asked)
        for number, partitions in mine.items():
            if number not in self._addresses:
                continue  # no leader at the moment
            if number not in self._links:
                self._links[number] = _Leader(wire.Link(self._addresses[number]))
            leader = self._links[number]
            if leader.waits:
                continue
            request = fetch.FetchRequest(
                FETCH_WAIT_MS, 1, FETCH_BYTES_MAX, [fetch.FetchTopic(self.topic, None, partitions)], self._isolation
            )
            leader.link.send_frame(fetch.encode_request(FETCH_VERSION, leader.link.following_id, CLIENT_ID, request))
            leader.waits = True

    def _take(self, frame: memoryview) -> Iterator[list[Record]]:
        _, response = fetch_responses.decode_response(FETCH_VERSION, frame)
        if response.error_code:
            raise wire.failure_of(response.error_code, f"topic {self.topic!r}: ")
        found: list[Callable[[], Iterator[list[Record]]]] = []
        trouble = 0
        answered = [each for topic in response.topics for each in topic.partitions]
        for partition in sorted(answered, key=lambda each: each.partition_index):
            number, code = partition.partition_index, partition.error_code
            if number not in self._positions:
                continue
            if code == ErrorCode.offset_out_of_range:
                self._jump(number)
            elif code in _MOVED:
                trouble = code
            elif code:
                raise wire.failure_of(code, f"topic {self.topic!r} partition {number}: ")
            else:
                found.append(self._advance(partition))
        self._drop_finished()
        if not trouble:
            self._stuck_since = None
            self._send_ahead()
        shown = False
        for records in found:
            for batch in records():
                shown = True
                yield batch
        if not shown:
            yield []
        if trouble:
            self._wait_for_leaders(trouble)

    def _send_ahead(self) -> None:
        """The next fetches, before what came is shown; a failure is found out when they are waited for."""
        try:
            self._send()
        except OSError:
            self.close()

    def _advance(self, partition: fetch.FetchedPartition) -> Callable[[], Iterator[list[Record]]]:
        """Move on past what came; what is returned decodes it, later."""
        number = partition.partition_index
        start = self._positions[number]
        stop = None if self._stops is None else self._stops[number]
        data: Any = partition.records or b""
        batches = list(iterate_batches(data))
        end = partition.last_stable_offset if self._isolation else partition.high_watermark
        if batches:
            self._positions[number] = max(start, batches[-1][1].next_offset)
            self._empty.pop(number, None)
            # Rotate, so that no partition waits for the others to be read to their end.
            self._positions[number] = self._positions.pop(number)
        elif start < end:
            self._empty[number] = self._empty.get(number, 0) + 1
            if self._empty[number] >= EMPTY_ANSWERS_MAX:
                self._positions[number] = end
        aborted = list(partition.aborted_transactions or ())
        return lambda: self._records(number, data, batches, aborted, start, stop)

    def _records(
        self,
        number: int,
        data: Any,
        batches: list[tuple[int, BatchHeader]],
        aborted: list[tuple[int, int]],
        start: int,
        stop: int | None,
    ) -> Iterator[list[Record]]:
        aborted.sort(key=lambda each: each[1])
        dropped: set[int] = set()
        for position, header in batches:
            if not crc_is_valid(data, position, header):
                where = f"topic {self.topic!r} partition {number} offset {header.base_offset}"
                raise CommandFailed(f"{where}: the checksum of a batch does not match its bytes")
            while aborted and aborted[0][1] <= header.last_offset:
                dropped.add(aborted.pop(0)[0])
            if header.is_control:
                if any(each.key == ABORT_KEY for each in iterate_records(data, position)):
                    dropped.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in dropped:
                continue
            topic = self.topic
            yield [
                Record(topic, number, offset, timestamp, key, value, headers)
                for offset, timestamp, key, value, headers, _ in iterate_records(data, position)
                if offset >= start and (stop is None or offset < stop)
            ]

    def _drop_finished(self) -> None:
        if self._stops is not None:
            self._positions = {n: offset for n, offset in self._positions.items() if offset < self._stops[n]}

    def _jump(self, number: int) -> None:
        """Records were deleted, or a log was cut, while it was read."""
        position = self._positions[number]
        low, high = (self.offsets([number], each)[number] for each in (EARLIEST, LATEST))
        self._positions[number] = low if position < low else high
        what = f"offsets {position} to {low - 1} are no longer there" if position < low else f"it ends at {high} now"
        print(
            f"ottla: {self.topic} partition {number}: {what}; continuing at {self._positions[number]}", file=sys.stderr
        )

    def _wait_for_leaders(self, code: int) -> None:
        """Raises CommandFailed once there was no leader for as long as a request may take."""
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        if now - self._stuck_since > REQUEST_TIMEOUT_S and not self._patient:
            raise wire.failure_of(code, f"topic {self.topic!r}: ")
        time.sleep(RETRY_PAUSE_S)
        self._look_up()

    def _recover(self, error: OSError) -> None:
        """Connect again. Raises CommandFailed where nobody answers and waiting was not asked for."""
        self.close()
        reported = False
        self._stuck_since = self._stuck_since or time.monotonic()
        while True:
            time.sleep(RETRY_PAUSE_S)  # another broker may not know yet that the leader is gone
            try:
                if not self._patient and time.monotonic() - self._stuck_since > REQUEST_TIMEOUT_S:
                    raise CommandFailed("", UNREACHABLE)
                self._look_up()
                return
            except CommandFailed as failure:
                if failure.exit_code != UNREACHABLE:
                    raise
                if not self._patient:
                    raise CommandFailed(f"the broker is gone ({error})", UNREACHABLE) from error
            if not reported:
                print("ottla: no broker answers; waiting for one (Ctrl-C to stop)", file=sys.stderr)
                reported = True
            time.sleep(RECONNECT_PAUSE_S)
