"""The loop: find files, read lines, hand batches to the sink; files are closed when they are read and committed."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ottla.tail.files import LogFile, Position, now_ms, position_at_end
from ottla.tail.finder import FileId, Finder, changed_ns, known_position, may_be_copy, siblings
from ottla.tail.lines import Line, Splitter
from ottla.tail.sinks import Batch, Message, Sink

BATCH_BYTES = 4 << 20
BATCH_RECORDS = 20_000
"""A batch is at most this and one read more: a quarter of what may be unacknowledged."""
SCAN_S = 1.0
"""Between two looks for new files."""
IDLE_MIN_S, IDLE_MAX_S = 0.02, 0.5
"""Pause when nothing was read: doubles up to the greater."""
CLOSED_S = 300.0
"""A file that was renamed is closed when nothing was added for so long; one that was deleted after the flush time."""
STDIN = "-"


@dataclass(frozen=True)
class Options:
    patterns: Sequence[str]
    host: str
    key: str = "host"
    as_json: bool = False
    from_end: bool = False
    once: bool = False
    line_bytes_max: int = 900_000
    start: re.Pattern[bytes] | None = None
    flush_s: float = 5.0
    """After which a record that may go on, or the unfinished line of a rotated file, is sent as it is."""


@dataclass
class Agent:
    options: Options
    sink: Sink
    warn: Callable[[str], None]
    show: Callable[[str], None] = lambda text: None
    records: int = 0
    bytes_read: int = 0
    truncations: int = 0
    files_seen: int = 0
    _files: dict[FileId, LogFile] = field(default_factory=dict)
    _stored: dict[str, Position] = field(default_factory=dict)
    """Positions as of the last batch, of files that are not open too."""
    _changed: dict[str, Position] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _stdin: Splitter | None = None
    _stdin_quiet_since_s: float = 0.0

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until `stopping`, with `once` to the ends of the files, with standard input alone to its end.

        Raises TailError.
        """
        options = self.options
        finder = Finder([each for each in options.patterns if each != STDIN], self.warn)
        self._finder = finder
        self._stored = self.sink.load()
        if STDIN in options.patterns:
            self._stdin = Splitter(options.line_bytes_max, options.start)
        self._scan(first=True)
        scanned_s, idle_s, shown_s = time.monotonic(), IDLE_MIN_S, 0.0
        while not stopping():
            batch = self._read()
            if batch.messages or batch.changed or batch.gone:
                self.sink.write(batch, stopping)
            self.sink.poll()
            now_s = time.monotonic()
            if now_s - shown_s > 0.5:
                shown_s = now_s
                self.show(f"{self.records:,} lines of {len(self._files)} files, {self.sink.committed:,} stored")
            if now_s - scanned_s >= SCAN_S:
                self._scan()
                scanned_s = time.monotonic()
            if batch.messages:
                idle_s = IDLE_MIN_S
                continue
            if self._is_done():
                break
            self._wait(idle_s)
            idle_s = min(IDLE_MAX_S, idle_s * 2)

    def _is_done(self) -> bool:
        if self._stdin is not None:
            return False
        if not self._finder.patterns:
            return True
        return self.options.once and all(
            file.quiet_s() >= min(1.0, self.options.flush_s) and not file.splitter.held_bytes
            for file in self._files.values()
        )

    def _wait(self, seconds: float) -> None:
        if self._stdin is not None:
            select.select([0], [], [], seconds)
        else:
            time.sleep(seconds)

    def _scan(self, first: bool = False) -> None:
        found = self._finder.matches()
        for file in list(self._files.values()):
            self._look_where(file, found)
        known = [file.position for file in self._files.values()]
        for at, path in found.items():
            if at not in self._files:
                self._open(path, from_end=first and self.options.from_end, known=known)
        if first:
            for path in {*self._finder.patterns, *found.values()}:
                self._finder.new_siblings(path)
            open_keys = {file.position.key for file in self._files.values()}
            for position in list(self._stored.values()):
                if position.key not in open_keys and position.path != STDIN:
                    self._open_moved(position)
            self._open_rotated_meanwhile()

    def _open_rotated_meanwhile(self) -> None:
        """Files made and rotated while no agent ran: unknown, and newer than the last position of their path."""
        last_ms: dict[str, int] = {}
        for position in self._stored.values():
            last_ms[position.path] = max(position.time_ms, last_ms.get(position.path, 0))
        known = [file.position for file in self._files.values()]
        for path, time_ms in last_ms.items():
            for name, at in list(siblings(path)) if path != STDIN else ():
                if f"{at[0]}-{at[1]}" not in self._stored and changed_ns(name) > time_ms * 1_000_000:
                    self._open(name, known=known, rotated=True, name=path)

    def _look_where(self, file: LogFile, found: dict[FileId, str]) -> None:
        """Whether it was renamed, replaced or deleted; what was rotated between two looks is opened too."""
        at = (os.fstat(file.descriptor).st_dev, os.fstat(file.descriptor).st_ino)
        if not file.rotated:
            try:
                now = os.stat(file.current)
                file.rotated = (now.st_dev, now.st_ino) != at
            except OSError:
                file.rotated = True
            if file.rotated:
                for path in self._finder.new_siblings(file.current):
                    self._open(path, rotated=True, name=file.position.path)
        if file.rotated and not file.splitter.held_bytes:
            deleted = file.is_deleted()
            quiet_s = self.options.flush_s if deleted else CLOSED_S
            if file.quiet_s() > quiet_s and at not in found:
                del self._files[at]
                file.close()
                if deleted:
                    self._gone.add(file.position.key)

    def _open(
        self, path: str, from_end: bool = False, known: Sequence[Position] = (), rotated: bool = False, name: str = ""
    ) -> LogFile | None:
        descriptor = self._finder.open(path)
        if descriptor is None:
            return None
        try:
            found = os.fstat(descriptor)
            at = (found.st_dev, found.st_ino)
            position = known_position(descriptor, path, self._stored)
            # An empty file may be a copy that begins; there is nothing to read in it either way.
            if at in self._files or (position is None and (not found.st_size or may_be_copy(descriptor, known))):
                os.close(descriptor)
                return None
            stale = self._stored.get(f"{at[0]}-{at[1]}")
            if position is None and stale is not None:
                self._open_moved(stale)
            if position is None:
                position = position_at_end(descriptor, path) if from_end else Position(name or path, *at)
        except OSError as error:
            os.close(descriptor)
            self.warn(f"{path}: {error.strerror}")
            return None
        return self._follow(descriptor, path, position, rotated)

    def _follow(self, descriptor: int, path: str, position: Position, rotated: bool) -> LogFile:
        found = os.fstat(descriptor)
        file = LogFile.open(descriptor, position, path, self.options.line_bytes_max, self.options.start)
        if position.key != f"{found.st_dev}-{found.st_ino}":
            file.position = Position(
                position.path, found.st_dev, found.st_ino, position.offset, position.head, position.tail, now_ms()
            )
        file.rotated = rotated
        self._files[found.st_dev, found.st_ino] = file
        self.files_seen += 1
        if file.position.offset:
            self._note(file)
        return file

    def _open_moved(self, position: Position) -> bool:
        """The rest of a file that was rotated, under the name it has now. Whether there is one."""
        path = self._finder.moved(position)
        descriptor = None if path is None else self._finder.open(path)
        if path is None or descriptor is None:
            return False
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) in self._files:
            os.close(descriptor)
            return True
        self._follow(descriptor, path, position, rotated=True)
        return True

    def _note(self, file: LogFile) -> None:
        if self._stored.get(file.position.key) != file.position:
            self._stored[file.position.key] = self._changed[file.position.key] = file.position

    def _read(self) -> Batch:
        batch = Batch([], {})
        if self._stdin is not None:
            self._read_stdin(self._stdin, batch)
        for at, file in list(self._files.items()):
            if batch.size > BATCH_BYTES or len(batch.messages) > BATCH_RECORDS:
                break
            try:
                self._read_file(file, batch)
            except OSError as error:
                self.warn(f"{file.current}: {error.strerror}; it is opened again")
                del self._files[at]
                file.close()
        batch.changed, self._changed = self._changed, {}
        batch.gone, self._gone = self._gone, set()
        return batch

    def _read_file(self, file: LogFile, batch: Batch) -> None:
        lines = file.read()
        if lines is None:
            self.truncations += 1
            # A copy goes on with what is held; where there is none, it is sent as it is.
            lines = [] if self._open_moved(file.position) else file.finish(unfinished=True)
            self._add(batch, lines, file.position.path)
            file.restart()
        else:
            self._add(batch, lines, file.position.path)
            if file.splitter.held_bytes and not lines:
                patience_s = min(1.0, self.options.flush_s) if self.options.once else self.options.flush_s
                if file.quiet_s() >= patience_s:
                    whole = file.rotated or self.options.once
                    self._add(batch, file.finish(unfinished=whole), file.position.path)
        self._note(file)

    def _read_stdin(self, splitter: Splitter, batch: Batch) -> None:
        lines: list[Line] = []
        while batch.size < BATCH_BYTES and select.select([0], [], [], 0)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                lines += splitter.finish()
                self._stdin = None
                break
            self._stdin_quiet_since_s = time.monotonic()
            self._add(batch, splitter.feed(data), STDIN)
        if splitter.has_record and time.monotonic() - self._stdin_quiet_since_s >= self.options.flush_s:
            lines += splitter.finish_record()
        self._add(batch, lines, STDIN)
        if batch.messages:
            position = Position(STDIN, 0, 0, splitter.offset, time_ms=now_ms())
            self._changed[position.key] = position

    def _add(self, batch: Batch, lines: list[Line], path: str) -> None:
        options = self.options
        name, host = os.fsencode(path), options.host.encode()
        key = {"host": host, "file": name, "none": None}[options.key]
        for line in lines:
            headers = [("host", host), ("file", name), ("offset", b"%d" % line.offset)]
            if line.partial:
                headers.append(("partial", b"true"))
            value = self._envelope(line, path) if options.as_json else line.data
            batch.messages.append(Message(key, value, headers))
            batch.size += len(value) + 100
            self.bytes_read += len(line.data)
        self.records += len(lines)

    def _envelope(self, line: Line, path: str) -> bytes:
        fields: dict[str, object] = {"host": self.options.host, "file": os.fsencode(path).decode("utf-8", "replace")}
        fields["offset"] = line.offset
        try:
            fields["line"] = line.data.decode()
        except UnicodeDecodeError:
            fields["line_base64"] = base64.b64encode(line.data).decode()
        fields["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if line.partial:
            fields["partial"] = True
        return json.dumps(fields, ensure_ascii=False).encode()
