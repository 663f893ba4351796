"""How far each source of a streaming query is behind, out of the query's progress.

Spark 4.2 asks sources in Python for no metrics: `DataSourceStreamReader` has no method for them, and the class of the
JVM that stands for one (`PythonMicroBatchStream`) is no `ReportsSourceMetrics`. A progress has all that they are made
of: where the batch ends, and as `latestOffset` what the source reported as the newest when it planned the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.spark.offsets import Offsets, of_topics


def source_metrics(progress: Mapping[str, Any]) -> list[dict[str, str]]:
    """Give the metrics that Spark's Kafka connector has by these names, for each source in its order; none for sources
    of other kinds. `progress` is `query.lastProgress`, one of `query.recentProgress`, or `event.progress`."""
    return [_metrics(_offsets(source["endOffset"]), _offsets(source["latestOffset"])) for source in progress["sources"]]


def _metrics(consumed: Offsets, latest: Offsets) -> dict[str, str]:
    behind = [end - consumed[at] for at, end in latest.items() if at in consumed]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _offsets(given: Any) -> Offsets:
    """JSON or what it stands for; sources of other kinds have offsets of another shape."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
        return of_topics(found) if isinstance(found, Mapping) else {}
    except ValueError:
        return {}
