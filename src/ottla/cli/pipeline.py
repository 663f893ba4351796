"""`ottla pipeline ...`: run pipelines on Spark, see how they do, stop them, and begin one of your own."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from ottla.cli import interrupts
from ottla.cli.client import probe
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag, parse_settings
from ottla.cli.output import bold, dim, plural, print_json, print_json_line, print_table, visible
from ottla.cli.schemas import RegistryUrls
from ottla.cli.values import Addresses, Count, FilePath, PartitionCount, Seconds, SettingName, Text

if TYPE_CHECKING:
    from ottla.pipelines.runner import Pipeline
    from ottla.pipelines.runner.state import Status

app = App(name="pipeline", help="Run data pipelines on Spark: activity, metrics, ledgers and more.", sort_key=7)

STOP_S: Final = 60.0
"""For a batch that is under way, Spark's own end, and the last words."""
WAIT_S: Final = 0.1
SAY_S: Final = 1.0
AGAIN_S: Final = 5.0
"""Before the first word about what is waited for, and between two."""

Directory = Annotated[
    FilePath | None,
    Parameter(
        env_var="OTTLA_PIPELINES",
        help="Where pipelines keep status and checkpoints; ~/.local/state/ottla/pipelines unless given.",
    ),
]
Chosen = Annotated[
    list[Text] | None,
    Parameter(
        name="--set",
        alias="-s",
        negative="",
        consume_multiple=False,
        help="A setting of the pipeline, name=value; may be repeated. `ottla pipeline describe NAME` lists them.",
    ),
]
OfSpark = Annotated[
    list[Text] | None,
    Parameter(negative="", consume_multiple=False, help="A setting of Spark, name=value; may be repeated."),
]
Bootstrap = Annotated[
    Addresses | None,
    Parameter(name=["--bootstrap", "-b"], env_var="OTTLA_BOOTSTRAP", help="Brokers to ask first: HOST:PORT,..."),
]


@app.command(name="list")
def list_(*, json: AsJson = False, directory: Directory = None) -> int:
    """List pipelines that come with Ottla, and how those do that have run."""
    from ottla.pipelines.runner import state
    from ottla.pipelines.runner.pipeline import about, names

    ran = {status.name: status for status in state.all_statuses(_root(directory))}
    known = {name: about(name) for name in names()}
    rows = [
        (name, ran[name].state if name in ran else "-", known.get(name, "")) for name in sorted({*known, *ran})
    ]  # fmt: skip
    if json:
        print_json([{"name": name, "state": None if what == "-" else what, "about": text} for name, what, text in rows])
    else:
        print_table(("NAME", "STATE", "WHAT IT DOES"), rows)
    return OK


@app.command
def describe(name: SettingName, /, *, json: AsJson = False) -> int:
    """Show what a pipeline does, and what can be set.

    Parameters
    ----------
    name
        One that `ottla pipeline list` has, or a file: ./NAME.py.
    """
    pipeline = _load(name)
    if json:
        settings = [asdict(setting) for setting in pipeline.settings]
        print_json({"name": pipeline.name, "about": pipeline.about, "file": str(pipeline.file), "settings": settings})
        return OK
    print(f"{bold(visible(pipeline.name))}: {pipeline.about}\n")
    print(f"{pipeline.text}\n")
    print_table(
        ("SETTING", "DEFAULT", "WHAT IT IS"),
        [(setting.name, str(setting.default), setting.about) for setting in pipeline.settings],
    )
    return OK


@app.command
def run(
    name: SettingName,
    /,
    *,
    set_: Chosen = None,
    config: FilePath | None = None,
    once: Flag = False,
    directory: Directory = None,
    checkpoints: Text | None = None,
    master: Text | None = None,
    every: Text | None = None,
    partitions: PartitionCount | None = None,
    batch_records: Count | None = None,
    registry: RegistryUrls = None,
    format: Text | None = None,
    metrics: Addresses | None = None,
    archive: FilePath | None = None,
    spark: OfSpark = None,
    json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> int:
    """Run a pipeline until Ctrl-C, `ottla pipeline stop`, or with --once until all that was there is done.

    It goes on where its last run was. A terminal shows its queries as they run; a pipe gets a line for each batch.
    Topics that are missing are created, records that cannot be read go to the topic NAME-dead-letters. A query that
    fails is started again from its checkpoint. Needs the extra `pipelines`.

    Parameters
    ----------
    name
        One that `ottla pipeline list` has, or a file: ./NAME.py.
    config
        A TOML file with these options by name (once, master, batch_records, ...) and tables [settings] and [spark];
        what is given here goes first.
    once
        Stop when all records that were there at the start are processed.
    checkpoints
        Where Spark keeps checkpoints: on a cluster a URL that executors reach, such as hdfs://... .
    master
        Spark's master: local[*] unless given, spark://HOST:PORT, yarn, k8s://... . Under spark-submit, its own.
    every
        Time from one batch to the next, as '10 seconds'; without, the next begins when the last is done.
    partitions
        Of topics that are created; 3 unless given.
    batch_records
        Records that a batch takes of each topic at most.
    registry
        URL of a schema registry, by which values are read that have a schema there, and schemas of results registered.
    format
        Of results: json unless given, or with a registry avro or protobuf.
    metrics
        Serve figures for Prometheus here, at /metrics.
    archive
        What `ottla spark archive` wrote, for executors without Ottla.
    json
        One JSON object a line: the status at each look.
    """
    given = {
        "once": once or None, "directory": directory, "checkpoints": checkpoints,
        "master": master, "every": every, "partitions": partitions, "batch_records": batch_records,
        "registry": registry, "format": format, "metrics": metrics, "archive": archive, "bootstrap": bootstrap,
    }  # fmt: skip
    settings, of_spark = parse_settings(set_ or (), "--set"), parse_settings(spark or (), "--spark")
    return _run(_load(name), config, given, settings, of_spark, as_json=json)


def _run(
    pipeline: Pipeline, config: Path | None, given: dict[str, Any], settings: dict[str, str], spark: dict[str, str],
    *, as_json: bool,
) -> int:  # fmt: skip
    from ottla.cli.pipeline_options import options_of
    from ottla.cli.pipeline_view import screen
    from ottla.pipelines.runner import PipelineError, Run

    try:
        options, chosen = options_of(config, given, settings, spark)
        runs = Run(pipeline, options, chosen)
    except PipelineError as error:
        raise CommandFailed(str(error), MISUSED) from None
    probe(options.bootstrap)
    with screen(pipeline.name, as_json) as show:
        status = _watched(runs, show)
    if status.state == "failed":
        raise CommandFailed(f"{pipeline.name}: {status.error}", FAILED)
    return interrupts.code_of_end() if interrupts.ending() else OK


def _watched(runs: Any, show: Any) -> Status:
    """The run in a thread of its own: Spark blocks, and signals are heard here. The first one ends it gracefully."""
    from ottla.pipelines.runner import PipelineError

    result: list[Any] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(runs.run(show))
        except BaseException as error:
            result.append(error)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    try:
        done.wait()
    except KeyboardInterrupt:
        interrupts.allow(STOP_S)
        runs.stop()
        if not done.wait(STOP_S):
            raise
    (found,) = result
    if isinstance(found, PipelineError):
        raise CommandFailed(str(found), FAILED) from None
    if isinstance(found, BaseException):
        raise found
    status: Status = found
    return status


@app.command
def status(
    *names: SettingName,
    watch: Flag = False,
    interval: Annotated[Seconds, Parameter(alias="-i")] = 2.0,
    json: AsJson = False,
    directory: Directory = None,
) -> int:
    """Show how pipelines do that run or ran on this machine.

    Parameters
    ----------
    names
        Which; all of them unless given.
    watch
        Look again and again, until Ctrl-C.
    interval
        Seconds between two looks.
    """
    from ottla.cli.pipeline_view import print_statuses

    try:
        while True:
            found = _statuses(directory, names)
            if json:
                print_json_line([asdict(each) for each in found])
                sys.stdout.flush()
            else:
                print_statuses(found)
            if not watch:
                return OK
            time.sleep(interval)
    except KeyboardInterrupt:
        return OK


@app.command
def stop(name: SettingName, /, *, json: AsJson = False, directory: Directory = None) -> int:
    """Stop a pipeline that runs: it finishes the batch that is under way. Returns when it has ended.

    Meanwhile it says on stderr what it waits for.

    Parameters
    ----------
    name
        Which, as `ottla pipeline status` names it.
    """
    from ottla.cli.pipeline_view import waiting
    from ottla.pipelines.runner.state import Directory as State

    (found,) = _statuses(directory, (name,))
    state = State(_root(directory), found.name)
    if not state.is_locked():
        raise CommandFailed(f"{found.name} does not run: it is {found.state}", FAILED)
    state.ask_to_stop()
    deadline = time.monotonic() + STOP_S
    say_at = time.monotonic() + SAY_S
    while state.is_locked():
        now = state.status() or found
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"{found.name} (process {found.pid}) has not stopped within {STOP_S:.0f} s: it {waiting(now)}", FAILED
            )
        if time.monotonic() >= say_at and not json:
            say_at = time.monotonic() + AGAIN_S
            print(f"{visible(found.name)} {visible(waiting(now))}", file=sys.stderr, flush=True)
        time.sleep(WAIT_S)
    last = state.status() or found
    if json:
        print_json(asdict(last))
    else:
        print(f"{found.name}: {last.state}")
    return OK


@app.command
def logs(
    name: SettingName,
    /,
    *,
    lines: Annotated[Count, Parameter(alias="-n")] = 100,
    follow: Annotated[Flag, Parameter(alias="-f")] = False,
    json: AsJson = False,
    directory: Directory = None,
) -> int:
    """Show what Spark and the runner have written while a pipeline ran: the end of its spark.log.

    Parameters
    ----------
    name
        Which, as `ottla pipeline status` names it.
    lines
        As many from the end.
    follow
        Go on with what is written from now on, until Ctrl-C.
    json
        One JSON object a line of the log.
    """
    from ottla.cli.pipeline_log import show
    from ottla.pipelines.runner.state import Directory as State

    log = State(_root(directory), name).log
    try:
        show(log, lines, follow=follow, as_json=json)
    except FileNotFoundError:
        raise CommandFailed(f"{visible(name)} has no log: there is no {log}", FAILED) from None
    except KeyboardInterrupt:
        if not follow:
            raise
    return OK


@app.command
def feed(
    name: SettingName,
    /,
    *,
    like: SettingName | None = None,
    set_: Chosen = None,
    config: FilePath | None = None,
    records: Annotated[Count, Parameter(alias="-n")] = 1000,
    seed: Count = 0,
    partitions: PartitionCount = 3,
    json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> int:
    """Write sample data into the topics that a pipeline reads, to see it work: of the last three hours, up to now.

    Values are JSON, those of `logs` lines. Topics that are missing are created. May be repeated: times and ids are new.
    For `mirror` they go to the cluster that its setting `from` names, topic `orders`.

    Parameters
    ----------
    name
        One that `ottla pipeline list` has, or a file: ./NAME.py.
    like
        Take the sample data of this pipeline: for one of your own that began as it.
    config
        The file that the run gets: its bootstrap and the topics of its [settings].
    records
        How many in all.
    seed
        Other data for another number.
    partitions
        Of topics that are created.
    """
    from ottla.cli.pipeline_feed import feed as produce
    from ottla.cli.pipeline_options import options_of
    from ottla.cli.pipeline_samples import HINTS
    from ottla.pipelines.runner import PipelineError

    pipeline = _load(name)
    try:
        options, chosen = options_of(config, {"bootstrap": bootstrap}, parse_settings(set_ or (), "--set"), {})
        settings = pipeline.values(chosen)
    except PipelineError as error:
        raise CommandFailed(str(error), MISUSED) from None
    kind = like or pipeline.name
    # A mirror reads from the other cluster.
    into = str(settings["from"]) if kind == "mirror" and "from" in settings else options.bootstrap
    probe(into)
    done = produce(kind, settings, into, records, seed, partitions)
    if json:
        print_json({"bootstrap": into, "topics": done})
        return OK
    for topic, count in done.items():
        print(f"{plural(count, 'record')} to {topic}")
    print(dim(f"\nrun it: ottla pipeline run {visible(name)} {HINTS.get(kind, '')}".rstrip()))
    return OK


@app.command
def new(
    name: SettingName,
    /,
    *,
    from_: Annotated[SettingName, Parameter(name="--from")],
    overwrite: Flag = False,
    json: AsJson = False,
) -> int:
    """Begin a pipeline of your own: a directory with a copy of one that comes with Ottla, its settings and a test.

    Parameters
    ----------
    name
        The directory to make, which is the pipeline's name.
    from_
        The pipeline to begin with.
    overwrite
        Write over the files where the directory is there already.
    """
    from ottla.cli.pipeline_new import create

    pipeline = _load(from_)
    files = create(Path(name), pipeline, overwrite=overwrite)
    if json:
        print_json({"directory": name, "from": pipeline.name, "files": [str(file) for file in files]})
        return OK
    for file in files:
        print(visible(str(file)))
    print(dim(f"\nrun it: ottla pipeline run {visible(str(files[0]))}"))
    return OK


def _root(directory: Path | None) -> Path:
    from ottla.pipelines.runner.state import default_directory

    return directory or default_directory()


def _load(name: str) -> Pipeline:
    from ottla.pipelines.runner import PipelineError, load

    try:
        return load(name)
    except PipelineError as error:
        raise CommandFailed(str(error), MISUSED) from None


def _statuses(directory: Path | None, names: tuple[str, ...]) -> list[Status]:
    from ottla.pipelines.runner import PipelineError
    from ottla.pipelines.runner.state import all_statuses

    try:
        found = {status.name: status for status in all_statuses(_root(directory))}
    except PipelineError as error:
        raise CommandFailed(str(error), FAILED) from None
    if missing := [name for name in names if name not in found]:
        raise CommandFailed(f"{visible(missing[0])} has not run with its directory in {_root(directory)}", FAILED)
    return [found[name] for name in names or sorted(found)]
