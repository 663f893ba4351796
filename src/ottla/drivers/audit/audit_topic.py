"""Ships the lines of a node's audit log from its files to a topic.

The files come first: a line that cannot be shipped waits there, however long, and nobody waits for it. The file
`shipped` has the newest number that is in the topic, so that a restart continues there; what was sent and not yet noted
is sent again, and readers drop a number that they have seen. The key of a record is `node-ID`; the
lines of one node are in one partition, in order.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.drivers.audit.audit_log import FILE_NAME, first_of
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.network import Address
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.security.audit import parse

if TYPE_CHECKING:
    from ottla.drivers.ports import WritingHost

_LOG = logging.getLogger("ottla.audit")

READ_BYTES: Final = 262_144
"""Bytes of a file that are read at once, and so of a batch: below any sensible `max.message.bytes`."""

PAUSE_S: Final = 0.5
PAUSE_S_MAX: Final = 10.0
PATIENCE_S: Final = 5.0
PRODUCE_VERSIONS: Final = (3, 9)


class _Lines(NamedTuple):
    """Complete lines of a file, and where the next one begins."""

    name: str
    end: int
    lines: Sequence[bytes]


class AuditTopic:
    """All methods belong to the event loop's thread."""

    def __init__(
        self, node: WritingHost, directory: str, topic: str, make_topic: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """`directory` has the files of this node. `make_topic` creates the topic; raises nothing."""
        self.shipped = 0
        """Number of the newest line that is in the topic."""
        self._node = node
        self._directory = directory
        self._topic = topic
        self._make_topic = make_topic
        self._mark = posixpath.join(directory, "shipped")
        self._name = ""
        """The file that is read, and how far."""
        self._position = 0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        self._is_logged = False
        self._client = node.broker_clients.new(f"node-{node.node_id}-audit")

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ship())

    async def stop(self) -> None:
        """What is not shipped is at the next start."""
        await cancelled(self._task)
        await self._client.close()

    def written(self, data: bytes) -> None:
        """Lines have been written."""
        self._more.set()

    # Reading.

    def _read_mark(self) -> int:
        try:
            text = self._node.fs.read_bytes(self._mark).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return 0
        return int(text) if text.isdecimal() and len(text) < 20 else 0

    def _read(self) -> _Lines | None:
        """The next lines, in a thread; None where there are none. Raises OSError."""
        fs = self._node.fs
        names = [name for name in fs.listdir(self._directory) if FILE_NAME.fullmatch(name)]
        if self._name not in names:  # the first time, or it was deleted
            later = [name for name in names if first_of(name) > self.shipped + 1]
            earlier = [name for name in names if first_of(name) <= self.shipped + 1]
            if not names:
                return None
            self._name, self._position = earlier[-1] if earlier else later[0], 0
        found = self._lines_of(self._name, self._position)
        while not found.lines and self._name != names[-1]:
            self._name, self._position = names[names.index(self._name) + 1], 0
            found = self._lines_of(self._name, 0)
        return found if found.lines else None

    def _lines_of(self, name: str, position: int) -> _Lines:
        with closing(self._node.fs.open(posixpath.join(self._directory, name), read_only=True)) as file:
            data = file.pread(min(READ_BYTES, max(0, file.size() - position)), position)
        end = data.rfind(b"\n") + 1
        return _Lines(name, position + end, data[:end].splitlines())

    # Sending.

    async def _ship(self) -> None:
        self.shipped = await self._node.fs.run(self._read_mark)
        while True:
            self._more.clear()
            try:
                found = await self._node.fs.run(self._read)
            except OSError as error:
                self._log_failure(error.strerror or "the files cannot be read")
                await asyncio.sleep(PAUSE_S_MAX)
                continue
            if found is None:
                await self._more.wait()
                continue
            numbers = [0 if (line := parse(each)) is None else line.seq for each in found.lines]
            new = [each for each, seq in zip(found.lines, numbers, strict=True) if not seq or seq > self.shipped]
            if new:
                await self._until_sent(new)
            self._position = found.end
            self.shipped = max(self.shipped, *numbers)
            await self._node.fs.run(self._note)

    def _note(self) -> None:
        try:
            self._node.fs.write_atomic(self._mark, f"{self.shipped}\n".encode(), fsync=False)
        except OSError as error:  # on a full disk; these lines are sent once more after a restart
            self._log_failure(error.strerror or "the mark cannot be written")

    async def _until_sent(self, lines: Sequence[bytes]) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                await self._send(lines)
            except KafkaError as error:
                if error.code is ErrorCode.message_too_large and len(lines) > 1:
                    half = len(lines) // 2
                    await self._until_sent(lines[:half])
                    await self._until_sent(lines[half:])
                    return
                self._log_failure(str(error))
            else:
                if self._is_logged:
                    _LOG.info("the audit log is shipped again", extra=fields(topic=self._topic))
                self._failing_since, self._is_logged = None, False
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _log_failure(self, why: str) -> None:
        """A topic that moves, or a node that starts, is no error; what lasts is logged once."""
        now_s = asyncio.get_running_loop().time()
        self._failing_since = now_s if self._failing_since is None else self._failing_since
        if not self._is_logged and now_s - self._failing_since >= PATIENCE_S:
            _LOG.error("the audit log cannot be shipped", extra=fields(topic=self._topic, error=why))
            self._is_logged = True

    async def _send(self, lines: Sequence[bytes]) -> None:
        """Raises KafkaError."""
        node = self._node
        topic = node.image.topic(self._topic)
        if topic is None and any(not each.fenced for each in node.image.brokers.values()):
            await self._make_topic()
            topic = node.image.topic(self._topic)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {self._topic} is not there yet")
        number = node.node_id % len(topic.partitions)
        leader = node.image.brokers.get(topic.partitions[number].leader)
        endpoint = None if leader is None else leader.endpoints.get(node.inter_broker_listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.leader_not_available, f"{self._topic}-{number} has no leader")
        key, now_ms = f"node-{node.node_id}".encode(), node.clock.now_ms()
        batch = build_batch([SimpleRecord(now_ms, key, line) for line in lines])
        partitions = [{"index": number, "records": bytes(batch)}]
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": node.config.request_timeout_ms,
            "topic_data": [{"name": self._topic, "partition_data": partitions}],
        }
        address = Address(endpoint.host, endpoint.port)
        answer = await self._client.ask(address, ApiKey.PRODUCE, values, versions=PRODUCE_VERSIONS)
        code = ErrorCode(answer.response.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.none:
            raise KafkaError(code)
