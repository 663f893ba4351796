"""The audit log of a node on its disk: a bounded queue, a task that makes lines, and files written in threads.

    DIRECTORY/node-1/audit-00000000000000000001.jsonl    named after the number of its first event
    DIRECTORY/node-1/head                                 number and hash of the newest event that was fsynced

Nobody waits for the log: an event that finds no room is counted, and a line says how many were lost as soon as lines
can be written again. The chain goes on over files and restarts. A line that a crash left incomplete is cut off at the
next start; if more than that is missing, the next file says so, and `ottla audit verify` finds it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.clock import Clock
from ottla.drivers.cooperative import Cost, run_yielding
from ottla.drivers.tasks import cancelled
from ottla.errors import OttlaError
from ottla.filesystem import File, FileLock, FileSystem
from ottla.logs import fields
from ottla.security.audit import FIRST_HASH, Chain, Check, Head, parse

_LOG = logging.getLogger("ottla.audit")

QUEUE_MAX: Final = 20_000
"""Events that wait for the disk, some 20 MB."""

RESERVED: Final = 5_000
"""Places in the queue for changes alone: failed logins and denials, which anybody can cause, do not push them out."""

BATCH_MAX: Final = 500
READ_BYTES: Final = 1 << 20
"""Bytes of a file that are read at once when a node starts."""
SEAL_COST: Final = 20
"""Microseconds to make a line."""

RETRY_S: Final = 1.0
"""How long after a failed write the same lines are tried again."""

STOP_S_MAX: Final = 5.0
"""How long a node that stops waits for its last events to be written."""

FILE_NAME: Final = re.compile(r"audit-\d{20}\.jsonl")

Event = Mapping[str, Any]
Expand = Callable[[], Iterator[Event | None]]
"""Makes the events of a large request while lines are made; None where others may have their turn."""


class AuditSettings(NamedTuple):
    directory: str
    node_id: int
    file_bytes_max: int
    files_max: int
    """0: all are kept."""
    flush_s: float
    """Seconds within which written lines are fsynced."""


class _Batch(NamedTuple):
    """Lines for the disk; what could not be written is written again as it is."""

    opens: str | None
    """Name of the file that begins with these lines."""
    data: bytes
    head: Head
    deletes: tuple[str, ...] = ()


class Opened(NamedTuple):
    """What was found on the disk."""

    head: Head | None
    torn_bytes: int = 0
    found: Head | None = None
    """The last event in the files, where it is not `head`: they were cut."""
    has_head: bool = True


def first_of(name: str) -> int:
    """Number of the first event of a file."""
    return int(name[6:26])


class AuditFiles:
    """The files of one node. All methods block and belong in a thread, one at a time."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self.directory = directory
        self.names: list[str] = []
        """In order; the last one is written."""
        self.size = 0
        """Size of the last file in bytes."""
        self._file: File | None = None
        self._lock: FileLock | None = None
        self._head = posixpath.join(directory, "head")

    def open(self) -> Opened:
        """Lock the directory and find the end of the chain. Raises OSError."""
        fs = self._fs
        fs.makedirs(self.directory)
        self._lock = fs.lock(posixpath.join(self.directory, ".lock"))
        self.names = [name for name in fs.listdir(self.directory) if FILE_NAME.fullmatch(name)]
        kept = self._kept_head()
        if kept is None and not self.names:
            kept = Head(0, FIRST_HASH)
            fs.write_atomic(self._head, f"{kept}\n".encode())
            for path in (self.directory, posixpath.dirname(self.directory)):
                fs.fsync_dir(posixpath.dirname(path) or ".")
        torn = 0
        found: Head | None = None
        while self.names:
            found, more = self._open_last(kept)
            torn += more
            if self.size:
                break
            self._close_file()
            fs.remove(posixpath.join(self.directory, self.names.pop()))  # a crash came before its first line
            found = None
        if kept is None:
            found = found or Head(first_of(self.names[-1]), FIRST_HASH)
            return Opened(found, torn, has_head=False)
        if found is None or found.seq < kept.seq:
            self._close_file()
            cut = None if kept.seq == 0 and not self.names else found or Head(0, FIRST_HASH)
            return Opened(kept, torn, cut)
        return Opened(found, torn)

    def _kept_head(self) -> Head | None:
        try:
            return Head.read(self._fs.read_bytes(self._head).decode("ascii", "replace"))
        except (FileNotFoundError, ValueError):
            return None

    def _open_last(self, kept: Head | None) -> tuple[Head | None, int]:
        """Open the last file; returns its last event, and how many bytes were cut behind it.

        What was fsynced stays as it is, whatever it is: `ottla audit verify` is to find it. Behind that a crash may
        have left lines in part, or blocks of them; these are cut from the first one that does not fit."""
        file = self._file = self._fs.open(posixpath.join(self.directory, self.names[-1]))
        size = self.size = file.size()
        first = first_of(self.names[-1])
        if kept is None or first <= kept.seq:
            start = self._place_of(first if kept is None else kept.seq, size)
            if start is None:  # the newest event is not there
                return self._last_in_tail(size), 0
        else:
            start = 0
        check = Check()
        position = start
        for line in self._lines(start, size):
            if kept is not None and line.endswith(b"\n") and (check.last is not None or start == 0):
                is_good = check.line(line[:-1]) is None
            else:
                found = parse(line) if line.endswith(b"\n") else None
                is_good = found is not None
                if found is not None:
                    check.last = Head(found.seq, found.hash)
            if not is_good and (kept is not None or not line.endswith(b"\n")):
                file.truncate(position)
                self.size = position
                break
            position += len(line)
        return check.last, size - self.size

    def _place_of(self, seq: int, size: int) -> int | None:
        """Where the line of an event begins in the last file."""
        assert self._file is not None
        wanted = f'{{"seq":{seq},'.encode()
        end = size
        while end > 0:
            start = max(0, end - READ_BYTES)
            found = self._file.pread(min(size, end + len(wanted)) - start, start).rfind(wanted)
            if found >= 0:
                return start + found
            end = start
        return None

    def _last_in_tail(self, size: int) -> Head | None:
        """The last line of the last file that can be read."""
        assert self._file is not None
        start = max(0, size - READ_BYTES)
        for text in reversed(self._file.pread(size - start, start).splitlines()):
            if (line := parse(text)) is not None:
                return Head(line.seq, line.hash)
        return None

    def _lines(self, position: int, size: int) -> Iterator[bytes]:
        assert self._file is not None
        rest = b""
        while position < size:
            data = self._file.pread(min(READ_BYTES, size - position), position)
            position += len(data)
            lines = (rest + data).splitlines(keepends=True)
            rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            yield from lines
        if rest:
            yield rest

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def write(self, batch: _Batch) -> None:
        """Raises OSError; what was written in part is cut off, and the batch may be written again."""
        if batch.opens is not None and self.names[-1:] != [batch.opens]:
            if self._file is not None:
                self._file.fsync()
            self._close_file()
            self._file = self._fs.open(posixpath.join(self.directory, batch.opens), create=True)
            self._fs.fsync_dir(self.directory)
            self.names.append(batch.opens)
        file = self._file
        assert file is not None
        try:
            file.pwrite([batch.data], self.size)
            if batch.deletes:
                file.fsync()  # the line that tells of a deleted file must not be lost where the deletion is kept
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self.size)
            raise
        self.size += len(batch.data)
        for name in batch.deletes:
            self.names.remove(name)
            try:
                self._fs.remove(posixpath.join(self.directory, name))
            except FileNotFoundError:
                pass
            except OSError as error:  # the lines are written: to raise would write them twice
                _LOG.error("a file of the audit log cannot be deleted", extra=fields(file=name, error=error.strerror))

    def fsync(self, head: Head) -> None:
        """Raises OSError."""
        if self._file is not None:
            self._file.fsync()
            self._fs.write_atomic(self._head, f"{head}\n".encode())

    def close(self) -> None:
        self._close_file()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self.size = 0


class AuditLog:
    """All methods belong to the event loop's thread."""

    def __init__(self, fs: FileSystem, clock: Clock, settings: AuditSettings) -> None:
        self.lost = 0
        """Events for which there was no room."""
        self.written = 0
        self.failed_writes = 0
        self.on_lines: Callable[[bytes], None] | None = None
        """Hears of lines that were written."""
        self._fs = fs
        self._clock = clock
        self._settings = settings
        self.directory = posixpath.join(settings.directory, f"node-{settings.node_id}")
        self._files = AuditFiles(fs, self.directory)
        self._chain = Chain()
        self._queue: deque[tuple[int, Event | Expand]] = deque()
        self._unsaid = 0
        """Lost events that no line tells of yet."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_seqs: dict[str, int] = {}
        """The last event of each file that this process has filled."""
        self._flush_at: float | None = None
        """When what was written is to be fsynced; None where all is."""
        self._stopping = False

    @property
    def head(self) -> Head:
        return self._chain.head

    async def start(self) -> None:
        """Raises OttlaError where the directory cannot be used."""
        try:
            opened: Opened = await self._fs.run(self._files.open)
        except OSError as error:
            raise OttlaError(
                f"ottla.audit.directory: {self._files.directory} cannot be used: {error.strerror or error}"
            ) from error
        self._chain = Chain(opened.head)
        if opened.found is not None:
            seqs = {"expected_seq": self._chain.seq, "found_seq": opened.found.seq}
            _LOG.error("the audit log was cut", extra=fields(directory=self._files.directory, **seqs))
            self.put({"class": "audit", "event": "LogCut", **seqs})
        if not opened.has_head:
            _LOG.error("the head of the audit log is gone", extra=fields(directory=self._files.directory))
            self.put({"class": "audit", "event": "HeadMissing", "found_seq": self._chain.seq})
        if opened.torn_bytes:
            self.put({"class": "audit", "event": "LineIncomplete", "bytes": opened.torn_bytes})
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def stop(self) -> None:
        """Write what waits, if the disk takes it."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_S_MAX)
            await cancelled(self._task)
        if self._queue:
            _LOG.error("events of the audit log are lost", extra=fields(events=len(self._queue) + self._unsaid))
        await self._fs.run(self._files.close)

    def put(self, event: Event | Expand, *, is_change: bool = False) -> None:
        """Have an event written with the present time. Raises nothing and waits for nothing."""
        if len(self._queue) >= (QUEUE_MAX if is_change else QUEUE_MAX - RESERVED):
            self.lost += 1
            self._unsaid += 1
            return
        self._queue.append((self._clock.now_ms(), event))
        self._wake.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._queue:
                batch = await run_yielding(self._sealing())
                await self._until_written(batch)
            if self._flush_at is not None and (self._stopping or loop.time() >= self._flush_at):
                await self._fsync()
            if self._queue:
                continue
            if self._stopping:
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._flush_at):
                    await self._wake.wait()

    def _sealing(self) -> Generator[Cost, None, _Batch]:
        """Make lines of what waits."""
        chain, files = self._chain, self._files
        lines: list[bytes] = []
        opens: str | None = None
        deletes: tuple[str, ...] = ()
        now_ms = self._clock.now_ms()
        if not files.is_open or files.size >= self._settings.file_bytes_max:
            if files.names and chain.seq:
                self._last_seqs[files.names[-1]] = chain.seq
            opens = f"audit-{chain.seq + 1:020d}.jsonl"
            opened = {"class": "audit", "event": "FileOpened", "node": self._settings.node_id, "previous": chain.hash}
            lines.append(chain.seal(now_ms, opened))
            deletes = self._surplus()
            for name in deletes:
                last = self._last_of(name)
                gone = {"class": "audit", "event": "FileDeleted", "file": name, "last_seq": last}
                lines.append(chain.seal(now_ms, gone))
        if self._unsaid:
            lost, self._unsaid = self._unsaid, 0
            lines.append(chain.seal(now_ms, {"class": "audit", "event": "EventsLost", "times": lost}))
        while self._queue and len(lines) < BATCH_MAX:
            at_ms, event = self._queue.popleft()
            if isinstance(event, Mapping):
                lines.append(chain.seal(at_ms, event))
                yield SEAL_COST
                continue
            try:
                for each in event():
                    if each is not None:
                        lines.append(chain.seal(at_ms, each))
                    yield SEAL_COST
            except Exception as error:  # a bug: the log goes on, and says that something is missing
                _LOG.error("an event of the audit log cannot be made", exc_info=error)
                lines.append(chain.seal(at_ms, {"class": "audit", "event": "EventsLost", "times": 1}))
        return _Batch(opens, b"".join(lines), chain.head, deletes)

    def _surplus(self) -> tuple[str, ...]:
        """Files that are too many once another is opened."""
        most, names = self._settings.files_max, self._files.names
        return tuple(names[: max(0, len(names) + 1 - most)]) if most else ()

    def _last_of(self, name: str) -> int:
        """The last event of a file that others follow."""
        names = self._files.names
        place = names.index(name)
        if place + 1 < len(names):
            return first_of(names[place + 1]) - 1
        return self._last_seqs.pop(name, self._chain.seq - 1)

    async def _until_written(self, batch: _Batch) -> None:
        loop = asyncio.get_running_loop()
        failed = False
        while True:
            try:
                await self._fs.run(lambda: self._files.write(batch))
                break
            except OSError as error:
                self.failed_writes += 1
                if not failed:
                    _LOG.error(
                        "the audit log cannot be written", extra=fields(error=error.strerror, waiting=len(self._queue))
                    )
                failed = True
            await asyncio.sleep(RETRY_S)
        if failed:
            _LOG.warning("the audit log is written again", extra=fields(lost=self._unsaid))
        self.written = batch.head.seq
        if self.on_lines is not None:
            self.on_lines(batch.data)
        if self._flush_at is None:
            self._flush_at = loop.time() + self._settings.flush_s

    async def _fsync(self) -> None:
        head = self._chain.head
        self._flush_at = None
        try:
            await self._fs.run(lambda: self._files.fsync(head))
        except OSError as error:
            self.failed_writes += 1
            _LOG.error("the audit log cannot be fsynced", extra=fields(error=error.strerror))
