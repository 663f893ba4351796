"""All topics: sorted, searched, page by page. Offsets are asked for only for the topics on the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.asking import Asking
from ottla.console.cluster import EARLIEST, LATEST, Topic, places, read_offsets
from ottla.console.groups import Progress
from ottla.console.history import Trend
from ottla.console.views.paging import Paging, paged

SORTS: Final = ("name", "partitions", "copies", "lag", "health")


@dataclass(frozen=True)
class Row:
    name: str
    is_internal: bool
    partitions: int
    copies: int
    """Copies of the partition that has fewest."""
    under_replicated: int
    leaderless: int
    records: str | None
    """Offsets between the ends of all partitions: an upper bound where records were compacted."""
    groups: int | None
    """Groups that have committed offsets in it; None while that is being read."""
    lag: str | None
    """Records that the slowest of them is behind."""
    written: Trend | None
    """Records in a second; None until it is measured."""
    lag_trend: Trend | None


@dataclass(frozen=True)
class Topics:
    rows: list[Row]
    paging: Paging
    internal_hidden: int
    """Internal topics that are not listed."""
    lag_is_known: bool


def topics(asking: Asking) -> Topics:
    cluster = asking.cluster()
    wanted, shows_internal = asking.text("q").lower(), asking.text("internal") == "yes"
    all_topics = list(cluster.topics.values())
    listed = [each for each in all_topics if shows_internal or not each.is_internal]
    found = [each for each in listed if wanted in each.name.lower()] if wanted else listed
    sort = asking.text("sort")
    progress = asking.attempt("lag", lambda: asking.progress(wait=sort == "lag"), None)
    lags = {} if progress is None else lag_by_topic(progress)
    found.sort(key=_order(sort, lags), reverse=asking.text("order") == "desc")
    shown, paging = paged(found, asking.number("page"), len(listed))
    counts = _counts(asking, list(shown))
    trends = asking.trends
    rows = [
        Row(
            each.name,
            each.is_internal,
            len(each.partitions),
            each.copies,
            each.under_replicated,
            each.leaderless,
            counts.get(each.name),
            None if progress is None else lags.get(each.name, (0, None))[0],
            text(lags.get(each.name, (0, None))[1]),
            trends.written(each.name),
            trends.lag_of_topic(each.name),
        )
        for each in shown
    ]
    return Topics(rows, paging, len(all_topics) - len(listed), progress is not None)


def _order(sort: str, lags: dict[str, tuple[int, int | None]]) -> Callable[[Topic], Any]:
    if sort == "partitions":
        return lambda each: (len(each.partitions), each.name)
    if sort == "copies":
        return lambda each: (each.copies, each.name)
    if sort == "lag":
        return lambda each: (lags.get(each.name, (0, -1))[1] or 0, each.name)
    if sort == "health":
        return lambda each: (each.leaderless, each.under_replicated, each.name)
    return lambda each: each.name


def lag_by_topic(progress: Progress) -> dict[str, tuple[int, int | None]]:
    """Topic to the number of groups that read it and the records that the slowest of them is behind."""
    found: dict[str, tuple[int, int | None]] = {}
    for places_of in progress.by_group.values():
        mine: dict[str, int | None] = {}
        for at, place in places_of.items():
            before = mine.get(at.topic)
            mine[at.topic] = before if place.lag is None else (before or 0) + place.lag
        for topic, lag in mine.items():
            count, most = found.get(topic, (0, None))
            found[topic] = (count + 1, most if lag is None else max(most or 0, lag))
    return found


def _counts(asking: Asking, shown: list[Topic]) -> dict[str, str]:
    """Topic to the offsets between its ends."""
    cluster, every = asking.cluster(), places(shown)
    begins = read_offsets(asking.brokers, cluster, dict.fromkeys(every, EARLIEST))
    ends = read_offsets(asking.brokers, cluster, dict.fromkeys(every, LATEST))
    asking.fail_all("records", [*begins.failures.values(), *ends.failures.values()])
    found: dict[str, int] = {}
    for at in every:
        if at in begins.found and at in ends.found:
            found[at.topic] = found.get(at.topic, 0) + ends.found[at] - begins.found[at]
    return {topic: str(count) for topic, count in found.items()}


def text(number: int | None) -> str | None:
    """A number that may be larger than a browser's."""
    return None if number is None else str(number)
