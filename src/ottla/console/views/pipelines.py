"""Pipelines that have run on the console's machine, as `ottla pipeline status` knows them, and mirrors, by what their
control topics say."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.console import hung
from ottla.console.asking import Asking, NotFound, Problem
from ottla.console.brokers import ensure_none
from ottla.console.views.paging import Paging, paged
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey

if TYPE_CHECKING:
    from ottla.pipelines.runner.state import Status

MIRROR_FRESH_S: Final = 30.0
STATUSES_FRESH_S: Final = 1.0
MIRROR_PREFIX: Final = "mirror-offsets."
CARRIED_MAX: Final = 200
_TIMEOUT_MS: Final = 10_000
_ENDED: Final = ("failed", "died")


@dataclass(frozen=True)
class QueryRow:
    """One query of a pipeline."""

    name: str
    rows: str
    """Records that were read since the run began."""
    rows_per_s: float
    """In the last batch."""
    lag: str | None
    """Records that are not processed yet; None until it is known."""
    behind_s: float | None
    """Age of the oldest of them."""
    batch: int | None
    """The last checkpoint: the batch that was done last."""
    batch_s: float
    running_s: float
    """For how long the batch under way has been so."""
    state_rows: str
    late_rows: str
    restarts: int
    error: str


@dataclass(frozen=True)
class PipelineRow:
    name: str
    state: str
    is_bad: bool
    started_at: str | None
    updated_at: str | None
    bootstrap: str
    checkpoints: str
    """The directory where the next run begins from."""
    dead_letters: str
    waits_for: list[str]
    error: str
    queries: list[QueryRow]


@dataclass(frozen=True)
class PipelinesPage:
    directory: str
    rows: list[PipelineRow]


def pipelines(asking: Asking) -> PipelinesPage:
    """A pipeline is not of the cluster: where users log in it is shown to those who may see the cluster itself."""
    none: list[PipelineRow] = []
    directory, rows = asking.attempt("pipelines", lambda: _allowed(asking), ("", none))
    return PipelinesPage(directory, rows)


def _allowed(asking: Asking) -> tuple[str, list[PipelineRow]]:
    """Raises KafkaError, OSError."""
    _ensure_may_see(asking)
    try:
        from ottla.pipelines.runner.errors import PipelineError
        from ottla.pipelines.runner.state import Directory, all_statuses, default_directory
    except ImportError as error:
        sentence = f"Pipelines need {error.name}, which is not installed here: pip install 'ottla[pipelines]'."
        asking.problems.setdefault("pipelines", Problem(sentence, None))
        return "", []
    root = asking.site.pipelines or default_directory()
    read = functools.partial(all_statuses, root)
    try:
        found = asking.soon(root, STATUSES_FRESH_S, read, wait_s=hung.ANSWER_S, of=asking.site.files)
        problem = "" if found is not None else f"{root} does not answer: the disk may hang."
    except PipelineError as error:
        found, problem = None, f"{error}."
    if found is None:
        asking.problems.setdefault("pipelines", Problem(problem, None))
        return str(root), []
    return str(root), [_row(each, str(Directory(root, each.name).checkpoints)) for each in found]


def _ensure_may_see(asking: Asking) -> None:
    """Raises Refused where the user has not Describe on the cluster, which this request needs."""
    values: dict[str, Any] = {"timeout": _TIMEOUT_MS, "topics": []}
    ensure_none(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, asking.brokers.ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, values)
    )


def _row(status: Status, checkpoints: str) -> PipelineRow:
    # Not its settings: they may hold passwords.
    return PipelineRow(
        status.name,
        status.state,
        status.state in _ENDED,
        status.started_at or None,
        status.updated_at or None,
        status.bootstrap,
        checkpoints,
        str(status.dead_letters),
        list(status.waits_for),
        status.error,
        [
            QueryRow(
                each.name,
                str(each.rows),
                each.rows_per_s,
                None if each.lag_records is None else str(each.lag_records),
                each.lag_s,
                each.batch if each.batch >= 0 else None,
                each.batch_s,
                each.running_s,
                str(each.state_rows),
                str(each.late_rows),
                each.restarts,
                each.error,
            )
            for each in status.queries
        ],
    )


@dataclass(frozen=True)
class MirroredTopic:
    topic: str
    """Its name at the source."""
    mirror: str
    """Its name here."""
    role: str
    """mirror: it follows the source; owned: it was handed over to this cluster."""
    partitions: int
    copied_to: list[str]
    """By partition: the offset at the source up to which it was copied."""


@dataclass(frozen=True)
class MirrorPage:
    sources: list[str]
    """Clusters that this one has mirrors of."""
    source: str
    rows: list[MirroredTopic]
    paging: Paging
    owned: int
    """Topics that were handed over."""
    groups: list[str]
    """Groups that a failover has moved."""
    carried: list[str]
    """ACLs, quotas and settings that the mirror has made here."""
    carried_count: int
    runs: list[PipelineRow]
    """Runs of the pipeline `mirror` on the console's machine: their lag and rate."""


@dataclass(frozen=True)
class _Known:
    rows: list[MirroredTopic]
    groups: list[str]
    carried: list[str]


def mirror(asking: Asking) -> MirrorPage:
    topics = asking.attempt("mirror", lambda: list(asking.cluster().topics), list[str]())
    sources = [each.removeprefix(MIRROR_PREFIX) for each in topics if each.startswith(MIRROR_PREFIX)]
    source = asking.text("source") or (sources[0] if sources else "")
    if asking.text("source") and source not in sources and "mirror" not in asking.problems:
        raise NotFound(f"This cluster has no mirror of {source}, or you may not see its topic {MIRROR_PREFIX}{source}.")
    known = _Known([], [], [])
    runs: list[PipelineRow] = []
    if source in sources:
        known = asking.attempt("mirror", lambda: _shown(asking, source), known)
        _, found = asking.attempt("runs", lambda: _allowed(asking), ("", runs))
        runs = [each for each in found if re.fullmatch(r"mirror\b.*", each.name)]
    wanted = asking.text("q").lower()
    rows = [each for each in known.rows if wanted in each.topic.lower() or wanted in each.mirror.lower()]
    page, paging = paged(rows, asking.number("page"), len(known.rows))
    return MirrorPage(
        sources,
        source,
        list(page),
        paging,
        sum(each.role == "owned" for each in known.rows),
        known.groups,
        known.carried[:CARRIED_MAX],
        len(known.carried),
        runs,
    )


def _shown(asking: Asking, source: str) -> _Known:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        sentence = "A mirror's control topic is read with pyarrow, which is not installed: pip install 'ottla[arrow]'."
        asking.problems.setdefault("mirror", Problem(sentence, None))
        return _Known([], [], [])
    key = "mirror", source
    read = asking.soon(key, MIRROR_FRESH_S, functools.partial(read_mirror, asking, source), wait_s=hung.ANSWER_S)
    if read is None:
        sentence = f"Topic {MIRROR_PREFIX}{source} is still being read, or its broker does not answer: load it again."
        asking.problems.setdefault("mirror", Problem(sentence, None))
    return _Known([], [], []) if read is None else read


def read_mirror(asking: Asking, source: str) -> _Known:
    """The control topic, as this user. Raises KafkaError, OSError."""
    from ottla.mirror.control_topic import ControlTopic

    config = asking.brokers.config
    control = ControlTopic(",".join(config.bootstrap), source, config.security)
    try:
        control.load()
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise KafkaError(
            ErrorCode.corrupt_message, f"topic {control.topic} has records that are not a mirror's: {error}"
        ) from error
    finally:
        control.close()
    names: dict[str, dict[int, int]] = {}
    for (topic, partition), offsets in sorted(control.offsets.items()):
        names.setdefault(topic, {})[partition] = offsets.source_end()
    here = asking.cluster().topics
    prefixed = {topic: f"{source}.{topic}" for topic in names if topic not in here and f"{source}.{topic}" in here}
    rows = [
        MirroredTopic(
            topic,
            prefixed.get(topic, topic),
            control.roles.get(prefixed.get(topic, topic), "none"),
            len(ends),
            [str(ends[number]) for number in sorted(ends)],
        )
        for topic, ends in names.items()
    ]
    return _Known(rows, sorted(control.moved), sorted(map(_carried, control.made)))


def _carried(key: str) -> str:
    """`acl: ...` of the key by which the control topic knows it."""
    try:
        kind, name = json.loads(key)
    except ValueError:
        return key
    return f"{kind}: {name if isinstance(name, str) else json.dumps(name, ensure_ascii=False)}"
