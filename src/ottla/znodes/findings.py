"""What an import says of a cluster before it begins: what is in the way, what is lost, what is worth knowing."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from ottla.znodes.tree import BadZnode


class Severity(enum.Enum):
    """The order is that in which they are printed."""

    IN_THE_WAY = "must be finished first"
    LOST = "cannot be carried over"
    NOTE = "note"


class Finding(NamedTuple):
    severity: Severity
    path: str
    """The znode."""
    text: str


class Findings(list[Finding]):
    """Findings in the order in which they were made."""

    def refuse(self, path: str, text: str) -> None:
        self.append(Finding(Severity.IN_THE_WAY, path, text))

    def lose(self, path: str, text: str) -> None:
        self.append(Finding(Severity.LOST, path, text))

    def note(self, path: str, text: str) -> None:
        self.append(Finding(Severity.NOTE, path, text))

    def bad(self, error: BadZnode) -> None:
        self.refuse(error.path, error.why)

    def refused(self) -> list[Finding]:
        return [each for each in self if each.severity is Severity.IN_THE_WAY]


def numbers(found: Iterable[int], shown_max: int = 10) -> str:
    """Some numbers as text: `1, 2, 3 and 7 more`."""
    ordered = sorted(found)
    text = ", ".join(map(str, ordered[:shown_max]))
    return text if len(ordered) <= shown_max else f"{text} and {len(ordered) - shown_max} more"
