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
import sys
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
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+,*")


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


def _time(record: logging.LogRecord) -> str:
    """RFC 3339 in UTC."""
    import time

    moment = time.gmtime(record.created)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', moment)}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`2026-01-05T10:00:00.123Z INFO ottla.controller: topic created topic=orders partitions=3`."""

    def format(self, record: logging.LogRecord) -> str:
        found: Mapping[str, Any] = getattr(record, "ottla_fields", {})
        rest = "".join(f" {name}={_word(value)}" for name, value in found.items())
        line = f"{_time(record)} {level_name(record.levelno)} {record.name}: {record.getMessage()}{rest}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _word(value: Any) -> str:
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)


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
