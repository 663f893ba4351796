"""The two text formats of Prometheus: its own (0.0.4) and OpenMetrics (1.0.0).

Samples are kept as finished lines by family, since lines of a family must stand together; `Exposition` is filled in
whatever order suits the caller, who may pause between any two additions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metrics.instruments import Histogram
from ottla.metrics.table import COUNTER, METRICS, Metric

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NO_ESCAPES = frozenset('\\"\n')


def labels(**values: str | int) -> str:
    """`{a="b",c="d"}`. A lone surrogate, which UTF-8 has no bytes for, becomes a question mark."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items()) + "}"


def escape(value: str) -> str:
    if not _NO_ESCAPES.isdisjoint(value):
        value = value.translate(_ESCAPES)
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


class Exposition:
    """All samples of one answer."""

    __slots__ = ("_families", "_more")

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}
        self._more: dict[str, Metric] = {}
        """Families that are not in the table."""

    def add_family(self, metric: Metric) -> None:
        """Add a family that is not in the table of metrics. Raises ValueError for one that is."""
        if metric.name in METRICS:
            raise ValueError(f"{metric.name} is in the table of metrics")
        self._more[metric.name] = metric

    def lines(self, name: str) -> list[str]:
        """Where the finished lines of a family go. Raises KeyError for a metric that is not in the table."""
        found = self._families.get(name)
        if found is None:
            if name not in self._more:
                METRICS[name]
            found = self._families[name] = []
        return found

    def add(self, name: str, value: float, where: str = "") -> None:
        """One sample; `where` is what `labels` gives."""
        self.lines(name).append(f"{name}{where} {value if value == value else 'NaN'}\n")

    def add_histogram(self, name: str, histogram: Histogram, **where: str | int) -> None:
        lines = self.lines(name)
        inner = labels(**where)[1:-1]
        comma = "," if inner else ""
        total = 0
        for bound, count in zip([*histogram.bounds, "+Inf"], [*histogram.counts], strict=True):
            total += count
            lines.append(f'{name}_bucket{{{inner}{comma}le="{bound}"}} {total}\n')
        outer = f"{{{inner}}}" if inner else ""
        lines.append(f"{name}_count{outer} {total}\n")
        lines.append(f"{name}_sum{outer} {histogram.sum}\n")

    def write(self, *, openmetrics: bool) -> Iterator[bytes]:
        """The answer, a family at a time, in the order of the table; others by name."""
        for name, metric in [*METRICS.items(), *sorted(self._more.items())]:
            lines = self._families.get(name)
            if lines:
                yield (_head(metric, openmetrics) + "".join(lines)).encode()
        if openmetrics:
            yield b"# EOF\n"


def _head(metric: Metric, openmetrics: bool) -> str:
    name = metric.name
    if openmetrics and metric.type == COUNTER:
        name = name.removesuffix("_total")
    doc = metric.doc.translate(_ESCAPES) if openmetrics else metric.doc
    return f"# HELP {name} {doc}\n# TYPE {name} {metric.type}\n"
