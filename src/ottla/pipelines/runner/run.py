"""A run: queries are built, watched, started again when they fail, and stopped between two batches."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ottla.client.secret_names import shown
from ottla.errors import KafkaError
from ottla.pipelines.runner import session, state
from ottla.pipelines.runner.errors import PipelineError, Value
from ottla.pipelines.runner.exposition import MetricsServer
from ottla.pipelines.runner.job import Job, Started, Step
from ottla.pipelines.runner.options import Options
from ottla.pipelines.runner.pipeline import Pipeline
from ottla.pipelines.runner.progress import Watch
from ottla.pipelines.runner.registry import FORMATS
from ottla.pipelines.runner.state import Directory, QueryStatus, Status
from ottla.pipelines.runner.topics import LOOK_TIMEOUT_S, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.pipelines")

LOOK_S: Final = 0.5
STOP_S: Final = 30.0
"""How long a batch may take to its end when a run is stopped; then it is cut off, and done again by the next run."""
PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 30.0


class Run:
    """One run of a pipeline in this process. `stop` may be called from any thread."""

    def __init__(
        self, pipeline: Pipeline, options: Options, given: Mapping[str, Value], spark: SparkSession | None = None
    ) -> None:
        """With `spark` the queries run there, and it is left running. Raises PipelineError for wrong settings."""
        self.pipeline = pipeline
        self.options = options
        if options.format not in FORMATS:
            raise PipelineError(f"format: expected {', '.join(FORMATS)}, got {options.format!r}")
        if options.format != "json" and options.registry is None:
            raise PipelineError(f"format={options.format} needs a schema registry")
        self.settings = pipeline.values(given)
        _ = options.security  # wrong settings are an error before Spark starts
        self.directory = Directory(options.directory, pipeline.name)
        self.status = Status(
            pipeline.name,
            pid=os.getpid(),
            started_at=_now(),
            bootstrap=options.bootstrap,
            master=options.master or "",
            settings={name: shown(name, value) for name, value in self.settings.items()},
        )
        self._local = options.checkpoints is None
        self._spark = session.prepare(spark, local_checkpoints=self._local) if spark is not None else None
        self._is_given = spark is not None
        self._stop = threading.Event()
        self._advanced: dict[str, int] = {}

    def stop(self) -> None:
        """Ask for the end: batches that are under way are finished first."""
        self._stop.set()

    def run(self, show: Callable[[Status], None] = lambda status: None) -> Status:
        """Run to the end: of the input with `once`, else until it is stopped or fails. `show` is called with the status
        about twice a second.

        Raises PipelineError for what cannot begin; a run that fails later says so in the status that is returned.
        """
        with self.directory.locked(), self._metrics():
            self.directory.write(self.status)
            self.directory.note(f"run started, process {self.status.pid}")
            job = Job(
                self.pipeline,
                self.options,
                self.settings,
                self._session,
                self.options.checkpoints or str(self.directory.checkpoints),
            )
            try:
                self.pipeline.build(job)
                shown = [started.name for started in job.queries]
                shown += [step.name for step in job.steps if step.query is not None]
                self.status.queries = [QueryStatus(name) for name in shown]
                self.status.state = state.RUNNING
                self._watch(job, show)
            except Exception as error:
                if self.status.state == state.STARTING and not isinstance(error, PipelineError | KafkaError | OSError):
                    logger.debug("the pipeline cannot be built", exc_info=True)
                self.status.state, self.status.error = state.FAILED, _sentence(error)
            finally:
                with contextlib.suppress(Exception):  # of a JVM that is gone
                    for query in (*(started.query for started in job.queries), *_queries_of_steps(job)):
                        query.stop()
                    if self._spark is not None and not self._is_given:
                        self._spark.stop()
                self._write(show)
                self.directory.note(
                    " ".join(filter(None, ("the run has ended:", self.status.state, self.status.error)))
                )
        return self.status

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = session.session(
                self.pipeline.name,
                self.options.master,
                {**self.pipeline.spark(self.settings), **self.options.spark},
                self.options.archive,
                self.directory.log,
                local_checkpoints=self._local,
            )
        elif self._is_given:
            session.activate(self._spark)
        return self._spark

    @contextlib.contextmanager
    def _metrics(self) -> Iterator[None]:
        if self.options.metrics is None:
            yield
            return
        with MetricsServer(*self.options.metrics, lambda: self.status):
            yield

    def _watch(self, job: Job, show: Callable[[Status], None]) -> None:
        topics = Topics(self.options.bootstrap, request_timeout_s=LOOK_TIMEOUT_S, security=self.options.security)
        watch = Watch(topics)
        resume_at = dict.fromkeys((started.name for started in job.queries), 0.0)
        failures = dict.fromkeys(resume_at, 0)
        beside = [_Beside(step) for step in job.steps if step.query is not None]
        try:
            while True:
                stopping = self._stop.is_set() or self.directory.is_asked_to_stop()
                if stopping:
                    self._finish_batches(job, watch, show)
                self._steps(job, last=stopping)
                running = False
                for each, status in zip(beside, self.status.queries[len(job.queries) :], strict=True):
                    each.look(status)
                for started, status in zip(job.queries, self.status.queries, strict=False):
                    watch.look(started, status)
                    if stopping:
                        continue
                    if self._keep_running(started, status, resume_at, failures):
                        running = True
                    elif job.feedback:
                        running |= self._feed_back(started, watch, job.feedback)
                self._count_dead_letters(job, topics)
                if stopping:
                    self._show_progress(job, watch)
                    self.status.state = state.STOPPED
                    return
                if not running and (job.queries or not job.steps or job.is_once):
                    self._steps(job, last=True)
                    for each, status in zip(beside, self.status.queries[len(job.queries) :], strict=True):
                        each.look(status)
                    self.status.state = state.DONE
                    return
                self._write(show)
                self._stop.wait(LOOK_S)
        finally:
            for each in beside:
                each.close()
            topics.close()

    def _keep_running(
        self, started: Started, status: QueryStatus, resume_at: dict[str, float], failures: dict[str, int]
    ) -> bool:
        """Start a query again that failed, after a pause. Returns whether it has more to do; raises its error when
        it failed too often."""
        if started.query.isActive:
            if status.batch > self._advanced.get(started.name, -1):
                self._advanced[started.name] = status.batch
                failures[started.name] = 0
            return True
        error = started.query.exception()
        if error is None:
            return False
        if resume_at[started.name] == 0.0:
            status.error = _sentence(error)
            failures[started.name] += 1
            if failures[started.name] > self.options.restarts_max:
                raise error
            pause_s = min(PAUSE_S * 2 ** (failures[started.name] - 1), PAUSE_S_MAX)
            resume_at[started.name] = time.monotonic() + pause_s
            logger.warning("query %s failed, restarting in %g s: %s", started.name, pause_s, status.error)
            self.directory.note(f"query {started.name} failed, restarting in {pause_s:g} s: {status.error}")
        if time.monotonic() >= resume_at[started.name]:
            resume_at[started.name] = 0.0
            status.restarts += 1
            started.query = started.start()
        return True

    def _feed_back(self, started: Started, watch: Watch, topics: set[str]) -> bool:
        """Start a query again that reads what it writes, if there is more. Returns whether there is, or may be soon.
        Where the cluster does not answer the query looks for itself."""
        try:
            is_open = watch.has_open_transaction(topics)  # before the look at what can be read
            is_behind = watch.is_behind(started.name, topics)
        except (KafkaError, OSError):
            is_open, is_behind = False, True
        if is_behind:
            started.query = started.start()
        return is_behind or is_open

    def _steps(self, job: Job, *, last: bool) -> None:
        for step in job.steps:
            if last or time.monotonic() >= step.due_at:
                step.function()
                step.due_at = time.monotonic() + step.every_s

    def _finish_batches(self, job: Job, watch: Watch, show: Callable[[Status], None]) -> None:
        """Wait for each query to be between two batches, and stop it there. The status says which are waited for."""
        deadline = time.monotonic() + STOP_S
        self.status.state, look_at = state.STOPPING, time.monotonic()
        waiting = {started.name: (started, _batch(started)) for started in job.queries}
        while waiting and time.monotonic() < deadline:
            for name, (started, batch) in list(waiting.items()):
                if (
                    not started.query.isActive
                    or not started.query.status["isTriggerActive"]
                    or _batch(started) != batch
                ):
                    started.query.stop()
                    del waiting[name]
            if waiting and time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                self.status.waits_for = sorted(waiting)
                for started, status in zip(job.queries, self.status.queries, strict=False):
                    watch.look(started, status)
                self._write(show)
            if waiting:
                time.sleep(0.02)
        self.status.waits_for = []

    def _show_progress(self, job: Job, watch: Watch) -> None:
        for started in job.queries:
            try:
                watch.finish(started)
            except (KafkaError, OSError) as error:
                logger.warning("cannot commit progress of %s to its consumer groups: %s", started.name, error)

    def _count_dead_letters(self, job: Job, topics: Topics) -> None:
        with contextlib.suppress(KafkaError, OSError):
            self.status.dead_letters = topics.records(job.dead_letter_topic)

    def _write(self, show: Callable[[Status], None]) -> None:
        self.status.updated_at = _now()
        self.directory.write(self.status)
        show(self.status)


def _queries_of_steps(job: Job) -> list[Any]:
    found = (step.query() for step in job.steps if step.query is not None)
    return [query for query in found if query is not None]


class _Beside:
    """Watches the query of a step, whose topics may be of another cluster."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._topics = Topics(step.bootstrap, request_timeout_s=LOOK_TIMEOUT_S, security=step.security)
        self._watch = Watch(self._topics)

    def look(self, status: QueryStatus) -> None:
        query = self._step.query() if self._step.query is not None else None
        if query is not None:
            self._watch.look(Started(self._step.name, lambda: query, query), status)

    def close(self) -> None:
        self._topics.close()


def _batch(started: Started) -> int:
    progress = started.query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _sentence(error: BaseException) -> str:
    """The error without the stack traces of two languages."""
    cause = str(getattr(error, "desc", None) or getattr(error, "_desc", None) or error)
    _, _, traceback = cause.rpartition("Traceback (most recent call last):")
    if traceback != cause and (raised := _RAISED.findall(traceback)):
        return str(raised[-1])[:600]
    lines = [line.strip() for line in cause.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "File ", "Traceback", "^"))]
    return " ".join(told[:3])[:600] or type(error).__name__


_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Failed|[A-Z]\w*): .*)$", re.MULTILINE)
"""The line with which a traceback of Python ends."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
