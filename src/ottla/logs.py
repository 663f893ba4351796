"""What a node logs: events with fields, as text for people or as JSON for machines, on Python's `logging`.

    _LOG = logging.getLogger("ottla.controller")
    _LOG.info("topic created", extra=fields(topic=name, partitions=3))

An event is a sentence that stays the same; what varies are its fields. Unless `configure` was called Python's own
defaults hold: warnings go to standard error, without fields.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

LEVELS: Mapping[str, int] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}
"""Kafka's names of levels; Python has none below DEBUG."""

_NAMES = {number: name for name, number in LEVELS.items() if name != "TRACE"}
_is_plain = re.compile(r"[a-zA-Z0-9_\-.:/@+,*]+").fullmatch
_quoted = json.JSONEncoder().encode


def fields(**values: Any) -> dict[str, Any]:
    """The fields of an event, for `extra`. None says nothing and is left out."""
    return {"ottla_fields": {name: value for name, value in values.items() if value is not None}}


@contextlib.contextmanager
def errors_logged(logger: logging.Logger, what: str) -> Iterator[None]:
    """Log an exception in `what` and go on."""
    try:
        yield
    except Exception as error:
        logger.error("%s failed", what, exc_info=error)


def level_name(level: int) -> str:
    """Kafka's name of a level."""
    return _NAMES.get(level) or logging.getLevelName(level)


class _Record(logging.LogRecord):
    """What was logged and when. No line shows which code, thread and process logged it; Python's own record finds that
    out, which is half of its cost."""

    def __init__(
        self,
        name: str,
        level: int,
        pathname: str,
        lineno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        sinfo: str | None = None,
        **_: Any,
    ) -> None:
        self.name = name
        self.levelno = level
        self.levelname = logging.getLevelName(level)
        self.msg = msg
        is_by_name = args and len(args) == 1 and isinstance(args[0], dict) and args[0]
        self.args = args[0] if is_by_name else args
        self.exc_info = exc_info
        self.exc_text = None
        self.stack_info = sinfo
        self.created = time.time()
        self.msecs = self.created * 1000 % 1000
        self.relativeCreated = 0.0
        self.pathname = self.filename = self.module = pathname
        self.lineno = lineno
        self.funcName = func or ""
        self.thread = threading.get_ident()
        self.threadName = self.processName = self.taskName = None
        self.process = None


_second: tuple[int, str] = (-1, "")
"""The second of the newest line, since 1970, and its text."""


def _time(record: logging.LogRecord) -> str:
    """RFC 3339 in UTC."""
    global _second
    second = int(record.created)
    known, text = _second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _second = second, text
    return f"{text}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`2026-01-05T10:00:00.123Z INFO ottla.controller: topic created topic=orders partitions=3`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {level_name(record.levelno)} {record.name}: {record.getMessage()}"
        found: Mapping[str, Any] = getattr(record, "ottla_fields", {})
        for name, value in found.items():
            text = str(value)
            line += f" {name}={text if _is_plain(text) else _quoted(text)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object in a line."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "timestamp": _time(record),
            "level": level_name(record.levelno),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in getattr(record, "ottla_fields", {}).items():
            found.setdefault(name, str(value) if isinstance(value, str) else value)  # a `Secret` hides itself so
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


class StderrHandler(logging.Handler):
    """Whole lines to whatever standard error is now. A reader that went away is no reason to fail."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass
        except Exception:
            self.handleError(record)


def configure(form: str, level: str) -> None:
    """Log to standard error in `form` (text or json), from `level` on. A second call replaces the first."""
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(LEVELS[level])
    logging.setLogRecordFactory(_Record)
    logging._srcfile = None  # Python's "Optimization" of logging: nobody looks for the caller
