"""Queries in processes of their own, with limits: whoever asks gets rows as they come, and can end one at any time.

The process is what keeps memory and time within bounds. DuckDB in it reaches no file and no network; it reads topics
as the user who asks.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.client.security import Security

if TYPE_CHECKING:
    from ottla.sql.masked import Mask

MEMORY_MAX: Final = 256 * 1024 * 1024
"""What DuckDB may use; beyond it a query fails, as nothing is written to a disk."""
PROCESS_BYTES_MAX: Final = 1024 * 1024 * 1024
"""What the whole process may use: batches of records, the interpreter and its libraries too."""
THREADS: Final = 2
RESULT_BYTES_MAX: Final = 8 * 1024 * 1024
CELL_MAX: Final = 4096
"""Characters of a cell that are kept."""
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""More in one line of the process is no answer of it."""
OUT_OF_MEMORY: Final = 3
"""Exit code of the process."""
START_S: Final = 30.0
"""Until the process has loaded its libraries, which is not the query's time."""
_LOOK_S: Final = 0.05
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Query:
    statement: str
    bootstrap: str
    security: Security = field(repr=False)
    client_id: str
    start: str = "begin"
    """Where to begin in every topic: begin, last (with `last`) or time (with `time_ms`)."""
    last: int = 0
    """Records of each partition."""
    time_ms: int = 0
    uncommitted: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Formats of keys and values."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How the registry is asked for the schemas of avro, json-schema and protobuf."""
    allowed: tuple[str, ...] | None = None
    """Topics that this user may read, where masks or roles say so; None is all that the brokers give."""
    masks: Mapping[str, Mask] = field(default_factory=dict)
    """What is hidden of some of them."""
    rows_max: int = 1000
    seconds: float = 10.0


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    kind: str
    """number, time, boolean, json or text."""


@dataclass
class Answer:
    """What came of a query until its end."""

    columns: list[Column] = field(default_factory=list)
    rows: list[list[str | None]] = field(default_factory=list)
    """Texts, as numbers may be larger than those of JavaScript."""
    topics: list[str] = field(default_factory=list)
    """Topics that were read."""
    records_read: int = 0
    stopped: str = ""
    """Why there may be more: rows, bytes, time, memory, stopped; empty where this is all."""
    error: str = ""
    """What is wrong with the statement, or what failed."""
    is_refused: bool = False
    """Whether the user lacks a right."""


def missing() -> str:
    """The library that is not installed; empty where none is missing."""
    return next((name for name in ("duckdb", "pyarrow") if importlib.util.find_spec(name) is None), "")


def run(query: Query, halt: threading.Event, progress: Callable[[int], None] = lambda records: None) -> Answer:
    """The answer; a query that is ended by `halt` or by its time has what came until then."""
    answer = Answer()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ottla.sql"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        process_group=0,  # not a session, in which the niceness of the console would not count
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        sent = pickle.dumps(query)
        try:
            # Its standard input stays open: the process ends with this one.
            process.stdin.write(len(sent).to_bytes(4, "big") + sent)
        except BrokenPipeError:
            pass  # its exit code says why
        ended = _read(process, query, answer, halt, progress)
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        code = process.wait()
    if ended and not answer.error:
        if code == OUT_OF_MEMORY:
            answer.stopped = "memory"
        elif code:
            answer.error = f"the query's process ended with status {code}; the console's log says more"
    return answer


def _read(
    process: subprocess.Popen[bytes],
    query: Query,
    answer: Answer,
    halt: threading.Event,
    progress: Callable[[int], None],
) -> bool:
    """Takes what the process says; whether it ended by itself."""
    assert process.stdout is not None
    deadline, left = time.monotonic() + START_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if halt.is_set() or time.monotonic() >= deadline:
                answer.stopped = "stopped" if halt.is_set() else "time"
                return False
            if not selector.select(_LOOK_S):
                continue
            data = process.stdout.read(_CHUNK)
            if not data:
                process.wait()
                return True
            *lines, left = (left + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                _take(answer, said)
                if "ready" in said:
                    deadline = time.monotonic() + query.seconds
            progress(answer.records_read)
            if len(left) > LINE_BYTES_MAX:
                answer.error = "the query's process gave no answer"
                return False


def _take(answer: Answer, said: Mapping[str, Any]) -> None:
    answer.columns = [Column(*each) for each in said.get("columns", ())] or answer.columns
    answer.rows += said.get("rows", ())
    answer.topics = said.get("topics", answer.topics)
    answer.records_read = said.get("read", answer.records_read)
    answer.stopped = said.get("stopped", answer.stopped)
    answer.error = said.get("error", answer.error)
    answer.is_refused = said.get("refused", answer.is_refused)
