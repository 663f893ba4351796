"""The audit log: who logged in, read records and acted; the newest first, from the memory of this console."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.console.access.trail import ENTRIES_MAX, KINDS, Entry
from ottla.console.asking import Asking
from ottla.console.views.paging import Paging, paged


@dataclass(frozen=True)
class AuditPage:
    rows: list[Entry]
    paging: Paging
    is_all: bool
    """Whether the lines of all users are here; else only those of this user."""
    kept_max: int
    kinds: list[str]
    outcomes: list[str]
    """Outcomes to choose from."""


def audit(asking: Asking) -> AuditPage:
    """Filters look at what the page shows, and nothing else."""
    sees_all = asking.rights.sees_audit
    mine = asking.user.identity
    entries = [
        each
        for each in asking.site.trail.entries()
        if sees_all or (each.user == mine.name and each.subject == mine.subject)
    ]
    found = [each for each in entries if _fits(asking, each)]
    rows, paging = paged(found, asking.number("page"), len(entries))
    outcomes = sorted({each.outcome for each in entries})
    return AuditPage(list(rows), paging, sees_all, ENTRIES_MAX, ["", *KINDS], outcomes)


def _fits(asking: Asking, entry: Entry) -> bool:
    text, user, kind, outcome = (asking.text(each) for each in ("q", "user", "kind", "outcome"))
    return (
        (not text or text.lower() in f"{entry.what} {entry.subject}".lower())
        and (not user or entry.user == user)
        and (not kind or entry.kind == kind)
        and (not outcome or entry.outcome == outcome)
    )
