"""`ottla pipeline ...`: run pipelines on Spark, show their state, stop them, and create new ones."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from ottla.cli import client_security, interrupts
from ottla.cli.client import probe
from ottla.cli.client_security import OnlyCommandConfig, SourceFile
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag, parse_settings
from ottla.cli.output import bold, dim, plural, print_json, print_json_line, print_table, visible
from ottla.cli.schema.access import RegistryUrls
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
        help="Where pipelines keep status and checkpoints. Default: ~/.local/state/ottla/pipelines.",
    ),
]
Chosen = Annotated[
    list[Text] | None,
    Parameter(
        name="--set",
        alias="-s",
        negative="",
        consume_multiple=False,
        help="A setting of the pipeline as name=value; may be repeated. `ottla pipeline describe NAME` lists them.",
    ),
]
OfSpark = Annotated[
    list[Text] | None,
    Parameter(negative="", consume_multiple=False, help="A Spark setting as name=value; may be repeated."),
]
Bootstrap = Annotated[
    Addresses | None,
    Parameter(name=["--bootstrap", "-b"], env_var="OTTLA_BOOTSTRAP", help="Brokers to ask first: HOST:PORT,..."),
]


@app.command(name="list")
def list_(*, json: AsJson = False, directory: Directory = None) -> int:
    """List the pipelines that come with Ottla, and the state of those that have run."""
    from ottla.pipelines.runner import state
    from ottla.pipelines.runner.pipeline import about, names

    ran = {status.name: status for status in state.all_statuses(_root(directory))}
    known = {name: about(name) for name in names()}
    rows = [(name, ran[name].state if name in ran else "-", known.get(name, "")) for name in sorted({*known, *ran})]
    if json:
        print_json([{"name": name, "state": None if what == "-" else what, "about": text} for name, what, text in rows])
    else:
        print_table(("NAME", "STATE", "WHAT IT DOES"), rows)
    return OK


@app.command
def describe(name: SettingName, /, *, json: AsJson = False) -> int:
    """Show what a pipeline does, and its settings.

    Parameters
    ----------
    name
        A name from `ottla pipeline list`, or a file: ./NAME.py.
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
    client_config: OnlyCommandConfig = None,
    from_config: SourceFile = None,
) -> int:
    """Run a pipeline until Ctrl-C or `ottla pipeline stop`; with --once, until all records present at the start are
    processed.

    It resumes where its last run ended. A terminal shows its queries as they run; a pipe gets a line per batch. Missing
    topics are created; records that cannot be decoded go to the topic NAME-dead-letters. A query that fails is
    restarted from its checkpoint. Needs the extra `pipelines`.

    Parameters
    ----------
    name
        A name from `ottla pipeline list`, or a file: ./NAME.py.
    config
        A TOML file with these options by name (once, master, batch_records, ...) and tables [settings] and [spark]. The
        command line overrides it.
    once
        Stop when all records present at the start are processed.
    checkpoints
        Where Spark keeps checkpoints: on a cluster, a URL that executors can reach, such as hdfs://... .
    master
        Spark's master: spark://HOST:PORT, yarn, k8s://... . Default: local[*]; under spark-submit, its master.
    every
        Interval between batches, such as '10 seconds'. Default: the next batch starts when the last is done.
    partitions
        Partitions of topics that are created. Default: 3.
    batch_records
        Maximum records of each topic per batch.
    registry
        URL of a schema registry: values with a schema in it are decoded with that schema, and schemas of results are
        registered.
    format
        Format of results: json (the default), or with a registry avro or protobuf.
    metrics
        HOST:PORT to serve /metrics for Prometheus at.
    archive
        An archive written by `ottla spark archive`, for executors without Ottla.
    json
        One JSON object a line: the status at each look.
    """
    given = {
        "once": once or None,
        "directory": directory,
        "checkpoints": checkpoints,
        "master": master,
        "every": every,
        "partitions": partitions,
        "batch_records": batch_records,
        "registry": registry,
        "format": format,
        "metrics": metrics,
        "archive": archive,
        "bootstrap": bootstrap,
        "client_config": client_config,
        "source_config": from_config,
    }
    settings, of_spark = parse_settings(set_ or (), "--set"), parse_settings(spark or (), "--spark")
    return _run(_load(name), config, given, settings, of_spark, as_json=json)


def _run(
    pipeline: Pipeline,
    config: Path | None,
    given: dict[str, Any],
    settings: dict[str, str],
    spark: dict[str, str],
    *,
    as_json: bool,
) -> int:
    from ottla.cli.pipeline.options import options_of
    from ottla.cli.pipeline.view import screen
    from ottla.pipelines.runner import PipelineError, Run

    try:
        options, chosen = options_of(config, given, settings, spark)
        runs = Run(pipeline, options, chosen)
    except PipelineError as error:
        raise CommandFailed(str(error), MISUSED) from None
    client_security.use(options.client_config, options.source_config)
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
    """Show the state of pipelines that are running or have run on this machine.

    Parameters
    ----------
    names
        The pipelines. Default: all.
    watch
        Update until Ctrl-C.
    interval
        Seconds between updates.
    """
    from ottla.cli.pipeline.view import print_statuses

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
    """Stop a running pipeline after its current batch. Returns when the pipeline has ended.

    Meanwhile it prints to stderr what it is waiting for.

    Parameters
    ----------
    name
        A name from `ottla pipeline status`.
    """
    from ottla.cli.pipeline.view import waiting
    from ottla.pipelines.runner.state import Directory as State

    (found,) = _statuses(directory, (name,))
    state = State(_root(directory), found.name)
    if not state.is_locked():
        raise CommandFailed(f"{found.name} is not running: it is {found.state}", FAILED)
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
    """Show the log of Spark and the runner: the end of the pipeline's spark.log.

    Parameters
    ----------
    name
        A name from `ottla pipeline status`.
    lines
        Number of lines from the end.
    follow
        Keep showing new lines until Ctrl-C.
    json
        One JSON object a line of the log.
    """
    from ottla.cli.pipeline.log import show
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
    client_config: OnlyCommandConfig = None,
) -> int:
    """Write sample data for the last three hours into the topics that a pipeline reads, to see it work.

    Values are JSON; for `logs` they are lines of text. Missing topics are created. May be repeated: times and ids are
    new each time. For `mirror`, records go to topic `orders` of the cluster in its setting `from`.

    Parameters
    ----------
    name
        A name from `ottla pipeline list`, or a file: ./NAME.py.
    like
        Use the sample data of this pipeline, for a pipeline of your own made from it.
    config
        The --config file of the run; its bootstrap and the topics in its [settings] are used.
    records
        Total number of records.
    seed
        Seed of the sample data.
    partitions
        Partitions of topics that are created.
    """
    from ottla.cli.pipeline.feed import feed as produce
    from ottla.cli.pipeline.options import options_of
    from ottla.cli.pipeline.samples import HINTS
    from ottla.pipelines.runner import PipelineError

    pipeline = _load(name)
    given = {"bootstrap": bootstrap, "client_config": client_config}
    try:
        options, chosen = options_of(config, given, parse_settings(set_ or (), "--set"), {})
        settings = pipeline.values(chosen)
    except PipelineError as error:
        raise CommandFailed(str(error), MISUSED) from None
    kind = like or pipeline.name
    # A mirror reads from the other cluster.
    into = str(settings["from"]) if kind == "mirror" and "from" in settings else options.bootstrap
    client_security.use(options.client_config, options.source_config)
    if into != options.bootstrap:
        client_security.use_source()
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
    """Create a pipeline of your own: a directory with a copy of a pipeline that comes with Ottla, its settings and a
    test.

    Parameters
    ----------
    name
        The directory to create; also the pipeline's name.
    from_
        The pipeline to copy.
    overwrite
        Overwrite the files if the directory exists already.
    """
    from ottla.cli.pipeline.new import create

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
        raise CommandFailed(f"{visible(missing[0])} has not run with --directory {_root(directory)}", FAILED)
    return [found[name] for name in names or sorted(found)]
