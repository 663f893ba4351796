"""The page of a live tail: the newest records, and where the stream of further ones begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ottla.console.asking import Asking
from ottla.console.views.messages import Message, messages

SECONDS = 2
"""How long the first records are searched for, where there is a filter."""


@dataclass(frozen=True)
class TailPage:
    topic: str
    partitions: list[int]
    """All partitions of the topic."""
    rows: list[Message]
    """The newest, newest first."""
    at: str
    """Where to go on: the parameter `at` of the stream."""
    partitions_left_out: int
    is_masked: bool
    may_download: bool


def tail(asking: Asking) -> TailPage:
    given = {"from": "end", "offset": 0, "time": "", "before": "", "seconds": SECONDS, "run": ""}
    # The halt is this request's: it ends with the browser, as other pages do.
    found = messages(replace(asking, parameters={**given, **asking.parameters, "at": ""}))
    at = ",".join(f"{each.partition}:{each.end}" for each in found.progress)
    return TailPage(
        found.topic, found.partitions, found.rows, at, found.partitions_left_out, found.is_masked, found.may_download
    )
