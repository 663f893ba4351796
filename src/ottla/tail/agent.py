"""The loop: find files, read lines, hand batches to the sink; files are closed when they are read and committed."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.tail.files import LogFile, Position, now_ms
from ottla.tail.finder import Finder
from ottla.tail.follow import Follower
from ottla.tail.lines import Line, Splitter
from ottla.tail.positions import STDIN, Positions
from ottla.tail.sinks import Batch, Message, Sink

BATCH_BYTES = 4 << 20
BATCH_RECORDS = 20_000
"""A batch is at most this and one read more: a quarter of what may be unacknowledged."""
SCAN_S = 1.0
"""Between two looks for new files."""
IDLE_MIN_S, IDLE_MAX_S = 0.02, 0.5
"""Pause when nothing was read: doubles up to the greater."""


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
    _turn: int = 0
    """Which file is read first: with more to read than a batch takes, each has its turn."""
    _stdin: Splitter | None = None
    _stdin_quiet_since_s: float = 0.0

    def __post_init__(self) -> None:
        options = self.options
        finder = Finder([each for each in options.patterns if each != STDIN], self.warn)
        self._follower = Follower(
            finder, self.warn, options.line_bytes_max, options.start, options.flush_s, Positions({})
        )

    @property
    def truncations(self) -> int:
        return self._follower.truncations

    @property
    def files_seen(self) -> int:
        return self._follower.files_seen

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until `stopping`, with `once` to the ends of the files, with standard input alone to its end.

        Raises TailError.
        """
        options, follower = self.options, self._follower
        follower.positions.stored.update(self.sink.load())
        if STDIN in options.patterns:
            self._stdin = Splitter(options.line_bytes_max, options.start)
        follower.scan(first=True, from_end=options.from_end and not follower.positions.stored)
        scanned_s, idle_s, shown_s = time.monotonic(), IDLE_MIN_S, 0.0
        while not stopping():
            batch = self._read()
            if batch.messages or batch.changed or batch.gone:
                self.sink.write(batch, stopping)
            self.sink.poll()
            now_s = time.monotonic()
            if now_s - shown_s > 0.5:
                shown_s = now_s
                self.show(f"{self.records:,} lines of {len(follower.files)} files, {self.sink.committed:,} stored")
            if now_s - scanned_s >= SCAN_S:
                follower.scan()
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
        if not self._follower.finder.patterns:
            return True
        return self.options.once and all(
            file.quiet_s() >= min(1.0, self.options.flush_s) and not file.splitter.held_bytes
            for file in self._follower.files.values()
        )

    def _wait(self, seconds: float) -> None:
        if self._stdin is not None:
            select.select([0], [], [], seconds)
        else:
            time.sleep(seconds)

    def _read(self) -> Batch:
        batch = Batch([], {})
        follower = self._follower
        if self._stdin is not None:
            self._read_stdin(self._stdin, batch)
        files = list(follower.files.values())
        begin = self._turn % max(1, len(files))
        for number, file in enumerate([*files[begin:], *files[:begin]]):
            if batch.size > BATCH_BYTES or len(batch.messages) > BATCH_RECORDS:
                self._turn = begin + number
                break
            if file.is_closed:
                continue  # closed by what was found about another
            try:
                self._read_file(file, batch)
            except OSError as error:
                self.warn(f"{file.current}: {error.strerror}; reopening it")
                follower.drop(file)
        for path, lines in follower.rest:
            self._add(batch, lines, path)
        follower.rest = []
        batch.changed, batch.gone = follower.positions.take()
        return batch

    def _read_file(self, file: LogFile, batch: Batch) -> None:
        is_read = file.is_copy and (file.is_at_end or not file.read_to)
        had_more = is_read and file.has_more()
        if had_more and self._follower.starts_again(file):
            return
        read_to, since_ms = file.read_to, file.read_ms
        lines = file.read()
        if lines is None:
            self._follower.truncated(file)
            return
        if is_read and not had_more and file.read_to > read_to and self._follower.starts_again(file):
            return  # it was copied over just before it was read
        if not read_to and (file.read_to or file.is_touched):
            self._follower.begun(file, since_ms)
        self._add(batch, lines, file.position.path)
        if file.splitter.held_bytes and not lines:
            patience_s = min(1.0, self.options.flush_s) if self.options.once else self.options.flush_s
            if file.quiet_s() >= patience_s:
                whole = file.is_past or self.options.once
                self._add(batch, file.finish(unfinished=whole), file.position.path)
        self._follower.positions.note(file.position)

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
            self._follower.positions.changed[position.key] = position

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
