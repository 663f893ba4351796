"""The audit log of a console: a line of its log for each login, reading of records and act, and the newest in memory.

What the page of the audit log shows is in memory alone: it begins with the console and has a limit. The lines of the
log are what is kept.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ottla.console.access.roles import Identity
from ottla.logs import fields

_AUDIT: Final = logging.getLogger("ottla.console").getChild("audit")

ENTRIES_MAX: Final = 5_000
TEXT_MAX: Final = 1_000
"""Characters of a value: with eight values an entry has a few kilobytes at most."""
KINDS: Final = ("login", "logout", "records read", "records queried", "download", "act", "rules", "refused")


@dataclass(frozen=True)
class Entry:
    """Something that a user did."""

    number: int
    time: str
    kind: str
    user: str | None
    subject: str
    outcome: str
    what: str
    """The rest, as NAME=VALUE."""


class Trail:
    """The entries of all users; from any thread."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self._count = 0

    def note(self, kind: str, who: Identity, outcome: str, /, **values: Any) -> None:
        """Log a line and keep it. A value may be anything that a user typed."""
        told = {name: _short(value) for name, value in values.items() if value not in ("", None)}
        subject = {"subject": _short(who.subject)} if who.subject else {}
        name = _short(who.name) if who.name is not None else "ANONYMOUS"
        _AUDIT.info(kind, extra=fields(user=name, **subject, outcome=outcome, **told))
        what = " ".join(f"{each}={value}" for each, value in told.items())
        moment = self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._lock:
            self._count += 1
            self._entries.append(Entry(self._count, moment, kind, _short(who.name), _short(who.subject), outcome, what))

    def entries(self) -> list[Entry]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._entries))


def _short(value: Any) -> Any:
    return value[:TEXT_MAX] if isinstance(value, str) else value
