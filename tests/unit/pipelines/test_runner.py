"""What a pipeline's module says, its directory, its options and figures; runs whose queries are played."""

from __future__ import annotations

import ast
import json
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.main import main
from ottla.cli.pipeline.new import create
from ottla.cli.pipeline.options import options_of
from ottla.cli.pipeline.view import Lines, print_statuses, waiting
from ottla.model import TopicPartition
from ottla.pipelines.runner import Job, Options, PipelineError, Run, Setting, load, names
from ottla.pipelines.runner import run as runner
from ottla.pipelines.runner.exposition import MetricsServer, text
from ottla.pipelines.runner.job import Started
from ottla.pipelines.runner.pipeline import Pipeline, about
from ottla.pipelines.runner.progress import Watch, _offsets
from ottla.pipelines.runner.state import Directory, QueryStatus, Status, all_statuses
from ottla.pipelines.runner.topics import Topics
from ottla.testing import Broker

SETTINGS = (Setting("gap", "1 minute", ""), Setting("limit", 5, ""), Setting("share", 0.5, ""), Setting("on", True, ""))


def pipeline(build: Any = lambda job: None, settings: tuple[Setting, ...] = SETTINGS) -> Pipeline:
    return Pipeline("played", "", settings, build, Path(__file__))


def test_settings_have_the_types_of_their_defaults() -> None:
    given: dict[str, Any] = {"gap": "5 minutes", "limit": "7", "share": 1, "on": "false"}
    assert pipeline().values(given) == {"gap": "5 minutes", "limit": 7, "share": 1.0, "on": False}
    assert pipeline().values({}) == {"gap": "1 minute", "limit": 5, "share": 0.5, "on": True}
    assert pipeline().values({"gap": 3})["gap"] == "3"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"gpa": "1"}, "no setting gpa; it has gap, limit, share, on"),
        ({"limit": "many"}, "limit: expected a whole number, got 'many'"),
        ({"limit": 1.5}, "limit: expected a whole number, got 1.5"),
        ({"limit": True}, "limit: expected a whole number, got True"),
        ({"on": "perhaps"}, "on: expected true or false, got 'perhaps'"),
        ({"share": "x"}, "share: expected a number, got 'x'"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        pipeline().values(given)


def test_what_comes_with_ottla_says_what_it_does() -> None:
    assert "activity" in names()
    for name in names():
        found = load(name)
        assert found.about == about(name) and found.about.endswith(".") and found.text
        assert found.settings and all(setting.about for setting in found.settings)


def test_a_file_is_a_pipeline_too(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text('"""Mine.\n\nAll of it.\n"""\nimport beside\n\ndef build(job):\n    beside.done.append(job)\n')
    (tmp_path / "beside.py").write_text("done = []\n")
    found = load(str(file))
    assert (found.name, found.about, found.text, found.settings) == ("mine", "Mine.", "All of it.", ())
    for name, complaint in (("nothing", "no pipeline nothing; there are .*activity"), ("no.py", "no file no.py")):
        with pytest.raises(PipelineError, match=complaint):
            load(name)
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(PipelineError, match=r"has no function build\(job\)"):
        load(str(tmp_path / "empty.py"))


def test_a_new_one_is_a_copy_that_can_be_loaded(tmp_path: Path) -> None:
    files = create(tmp_path / "mine", load("activity"))
    found = load(str(files[0]))
    assert (found.name, found.settings) == ("mine", load("activity").settings)
    options, settings = options_of(tmp_path / "mine" / "settings.toml", {}, {"gap": "1 hour"}, {})
    assert options.bootstrap == "127.0.0.1:9092"
    assert found.values(settings) == {**load("activity").values({}), "gap": "1 hour"}
    for file in files:
        if file.suffix == ".py":
            compile(file.read_text(), str(file), "exec")
    for place in (tmp_path / "mine", tmp_path / "not-a-name"):
        with pytest.raises(CommandFailed):
            create(place, load("activity"))
    assert create(tmp_path / "mine", load("activity"), overwrite=True) == files


def test_options_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'bootstrap = "a:1"\nonce = true\nbatch_records = 10\nmetrics = "[::1]:9000"\ndirectory = "d"\n'
        '[settings]\ngap = "x"\nlimit = 3\n[spark]\n"spark.a" = 1\n'
    )
    options, settings = options_of(file, {"bootstrap": "b:2", "every": None}, {"gap": "y"}, {"spark.b": "2"})
    assert options == Options(
        "b:2",
        once=True,
        batch_records=10,
        metrics=("::1", 9000),
        directory=Path("d"),
        spark={"spark.a": "1", "spark.b": "2"},
    )
    assert settings == {"gap": "y", "limit": 3}


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("gap = 1", "no option gap; settings of the pipeline go under"),
        ("once = 1", "once is bool, not 1"),
        ("settings = 1", r"\[settings\] is a table"),
        ("once = ", "is not valid TOML"),
        ('metrics = "9404"', "metrics: expected HOST:PORT"),
        ("batch_records = 0", "batch_records must be at least 1"),
    ],
)
def test_wrong_files_are_refused(written: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(written)
    with pytest.raises(PipelineError, match=complaint):
        options_of(tmp_path / "s.toml", {}, {}, {})
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        options_of(tmp_path / "none.toml", {}, {}, {})


def test_one_run_at_a_time_and_what_is_left_of_one_that_died(tmp_path: Path) -> None:
    one, other = Directory(tmp_path, "p"), Directory(tmp_path, "p")
    assert one.status() is None and not one.is_locked() and all_statuses(tmp_path / "none") == []
    with one.locked():
        one.write(Status("p", "running", queries=[QueryStatus("q", rows=3)]))
        assert other.is_locked()
        with pytest.raises(PipelineError, match="p is running already"), other.locked():
            pass
        other.ask_to_stop()
        assert one.is_asked_to_stop()
        (found,) = all_statuses(tmp_path)
        assert (found.state, found.queries) == ("running", [QueryStatus("q", rows=3)])
    (found,) = all_statuses(tmp_path)
    assert found.state == "died"
    with other.locked():
        assert not other.is_asked_to_stop()  # it was meant for the run before
    (one.path / "status.json").write_text("{")
    with pytest.raises(PipelineError, match="cannot be read"):
        one.status()


def test_prometheus_reads_the_figures() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    status = Status("p", "running", dead_letters=2, queries=[QueryStatus("q", rows=5, lag_s=1.5), QueryStatus("r")])
    samples = {
        (sample.name, sample.labels.get("query")): sample.value
        for family in text_string_to_metric_families(text(status))
        for sample in family.samples
    }
    assert samples["ottla_pipeline_rows_total", "q"] == 5 and samples["ottla_pipeline_lag_seconds", "q"] == 1.5
    assert samples["ottla_pipeline_dead_letters", None] == 2 and samples["ottla_pipeline_up", None] == 1
    with MetricsServer("127.0.0.1", 0, lambda: status) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert answer.read().decode() == text(status)
        with pytest.raises(PipelineError, match=r"metrics cannot be served at 127\.0\.0\.1"):
            MetricsServer("127.0.0.1", server.port, lambda: status)
    with pytest.raises(PipelineError, match="OTTLA_ALLOW_OPEN_LISTENERS"):
        MetricsServer("0.0.0.0", 0, lambda: status)


@pytest.mark.parametrize(("given", "found"), [('{"t":{"0":3}}', {("t", 0): 3}), ("7", {}), (None, {}), ("{", {})])
def test_offsets_of_other_sources_are_left_alone(given: Any, found: dict[Any, int]) -> None:
    assert _offsets(given) == found


class Query:
    """A query of Spark as the runner knows it: fails as often as it is told, then is done."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts = 0
        self.recentProgress: list[Any] = []
        self.lastProgress: Any = None
        self.stopped = False
        self.isActive = False
        self.status = {"isTriggerActive": False}

    def start(self) -> Query:
        self.starts += 1
        return self

    def exception(self) -> Exception | None:
        return RuntimeError("broken\n  at java.lang") if self.starts <= self.failures else None

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(scope="module")
def bootstrap() -> Any:
    with Broker() as broker:
        yield broker.bootstrap


def played(query: Query) -> Pipeline:
    def build(job: Job) -> None:
        job.queries.append(Started("q", query.start, query.start()))

    return pipeline(build, ())


def test_a_query_that_fails_is_started_again(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "PAUSE_S", 0.0)
    monkeypatch.setattr(runner, "LOOK_S", 0.0)
    query = Query(3)
    status = Run(played(query), Options(bootstrap, directory=tmp_path), {}).run(Lines())
    assert (status.state, query.starts, query.stopped) == ("done", 4, True)
    assert [(each.restarts, each.error) for each in status.queries] == [(3, "broken")]
    assert "restarts=3" in capsys.readouterr().out
    log = Directory(tmp_path, "played").log.read_text()
    assert log.count("query q failed, restarting in 0 s: broken") == 3 and "has ended: done" in log
    query = Query(3)
    status = Run(played(query), Options(bootstrap, directory=tmp_path, restarts_max=2), {}).run()
    assert (status.state, status.error, query.starts) == ("failed", "broken", 3)


def test_steps_run_to_the_end_and_once_more(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOOK_S", 0.0)
    done: list[int] = []

    def build(job: Job) -> None:
        job.step("count", lambda: done.append(1), every_s=1000)

    assert Run(pipeline(build), Options(bootstrap, directory=tmp_path, once=True), {}).run().state == "done"
    assert len(done) == 2
    held = Run(pipeline(build), Options(bootstrap, directory=tmp_path), {})
    held.stop()
    assert held.run().state == "stopped"
    assert json.loads((tmp_path / "played" / "status.json").read_text())["state"] == "stopped"


def test_what_a_query_feeds_back_is_waited_for_until_its_transaction_has_ended(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch's EndTxn is answered, but its markers are not there yet: the records cannot be read, and come."""
    monkeypatch.setattr(runner, "LOOK_S", 0.0)
    query = Query(0)
    query.recentProgress = [progress(1, 5, "1")]  # up to 10
    at, looks = TopicPartition("t", 0), []

    def ends(_topics: object, topics: set[str], *, read_committed: bool = True) -> dict[TopicPartition, int]:
        looks.append(read_committed)
        return {at: 10 if read_committed and len(looks) < 9 else 12}

    def start() -> Query:
        query.recentProgress.append({**progress(2, 2, "2"), "sources": [{"endOffset": '{"t":{"0":12}}'}]})
        return query.start()

    def build(job: Job) -> None:
        job.feedback.add("t")
        job.queries.append(Started("q", start, query.start()))

    monkeypatch.setattr(Topics, "ends", ends)
    assert Run(pipeline(build, ()), Options(bootstrap, directory=tmp_path, once=True), {}).run().state == "done"
    assert query.starts == 2 and len(looks) > 9


def test_mistakes_of_a_pipeline_are_reported(bootstrap: str, tmp_path: Path) -> None:
    def asks(job: Job) -> None:
        job["nothing"]

    status = Run(pipeline(asks), Options(bootstrap, directory=tmp_path), {}).run()
    assert (status.state, status.error) == ("failed", "played asks for a setting nothing, which is not in SETTINGS")


def progress(batch: int, rows: int, at: str, late: int = 0) -> dict[str, Any]:
    operator = {"numRowsTotal": 7, "memoryUsedBytes": 70, "numRowsDroppedByWatermark": late}
    return {
        "runId": "r",
        "batchId": batch,
        "numInputRows": rows,
        "batchDuration": 500,
        "timestamp": at,
        "stateOperators": [operator],
        "sources": [{"endOffset": json.dumps({"t": {"0": batch * 10}})}],
    }


class Ends:
    """A topic `t` that ends at 12, whose record there is of the year 2001."""

    def ends(self, topics: set[str]) -> dict[TopicPartition, int]:
        return {TopicPartition("t", 0): 12}

    def timestamp(self, at: TopicPartition, offset: int) -> int:
        return 1_000_000_000_000

    def committed(self, group: str) -> dict[TopicPartition, int]:
        return {TopicPartition("t", 0): 2, TopicPartition("other", 0): 1} if group == "g" else {}

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.groups = {group: offsets}


def test_each_batch_counts_once_and_triggers_that_find_nothing_hide_none() -> None:
    query = Query(0)
    query.recentProgress = [progress(0, 5, "1", late=1), progress(1, 0, "2")]
    watch, status = Watch(Ends()), QueryStatus("q")  # type: ignore[arg-type]
    started = Started("q", query.start, query)
    watch.look(started, status)
    assert (status.rows, status.late_rows, status.rows_per_s, status.lag_records) == (5, 1, 10.0, 2)
    query.recentProgress.append(progress(1, 4, "3", late=1))
    for _ in range(2):
        watch.look(started, status)
    assert (status.rows, status.late_rows, status.rows_per_s, status.state_rows) == (9, 2, 8.0, 7)
    assert status.lag_records == 2 and status.lag_s is not None and status.lag_s > 1e8
    assert watch.is_behind("q", {"t"}) and not watch.is_behind("q", {"other"})


def test_a_first_batch_that_takes_long_is_spoken_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark says nothing of a batch before it is over: rows, lag and duration stay at nought."""
    clock = iter((100.0, 101.0, 105.0, 111.0, 140.0, 141.0, 153.0))
    now = [0.0]
    monkeypatch.setattr(
        "ottla.pipelines.runner.progress.time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 2e9)
    )
    query = Query(0)
    query.isActive, query.status = True, {"isTriggerActive": True}
    status, started = QueryStatus("q"), Started("q", query.start, query, (("t", "g"),))
    watch, lines = Watch(Ends()), Lines()  # type: ignore[arg-type]

    def look() -> None:
        now[0] = next(clock)
        watch.look(started, status)
        lines(Status("p", "running", queries=[status]))

    for _ in range(5):
        look()
    assert (status.batch, status.lag_records, status.running_s) == (-1, 10, 40.0)
    said = [line for line in capsys.readouterr().out.splitlines() if "first batch" in line]
    assert [line.split(" ", 1)[1] for line in said] == [
        f"p.q: first batch since {seconds} s, 10 behind" for seconds in (1, 11, 40)
    ]
    print_statuses([Status("p", "running", queries=[status])])
    assert "  q: first batch since 40 s, 10 behind\n" in capsys.readouterr().out
    query.recentProgress.append(progress(0, 5, "1"))
    watch.look(started, status)
    assert (status.running_s, status.batch, status.lag_records) == (0.0, 0, 12)
    look()
    look()
    assert "p.q: batch 1 since 12 s, 12 behind" in capsys.readouterr().out


def test_a_query_that_is_stopped_leaves_its_groups_at_what_it_has_done() -> None:
    query, ends = Query(0), Ends()
    watch, started = Watch(ends), Started("q", query.start, query, (("t", "g"), ("u", "h")))  # type: ignore[arg-type]
    query.recentProgress = [progress(1, 5, "1")]
    watch.look(started, QueryStatus("q"))
    watch.finish(started)
    assert ends.groups == {"g": {TopicPartition("t", 0): 10}}


def test_what_a_run_waits_for_is_said(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Query(0)
    query.isActive, query.status = True, {"isTriggerActive": True}
    held = Run(played(query), Options(bootstrap, directory=tmp_path), {})
    held.stop()
    told: list[tuple[str, list[str]]] = []

    def show(status: Status) -> None:
        told.append((status.state, list(status.waits_for)))
        if status.state == "stopping":
            monkeypatch.setattr("ottla.cli.pipeline.command.SAY_S", 0.0)
            monkeypatch.setattr("ottla.cli.pipeline.command.STOP_S", 0.0)
            assert main(["pipeline", "stop", "played", "--directory", str(tmp_path)]) == 1
            query.isActive = False

    assert held.run(show).state == "stopped"
    assert told == [("stopping", ["q"]), ("stopped", [])]
    assert "it waits for the batch of q to finish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status("p", "starting"), "waits for Spark to start"),
        (Status("p", "running"), "waits for the pipeline to notice the request"),
        (Status("p", "stopping"), "waits for Spark to stop"),
        (
            Status("p", "stopping", waits_for=["q", "r"], queries=[QueryStatus("q", running_s=12.3)]),
            "waits for the batch of q (for 12 s now), r to finish",
        ),
    ],
)
def test_words_for_what_is_waited_for(status: Status, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert waiting(status) == text
    capsys.readouterr()
    Lines()(status)
    assert (text in capsys.readouterr().out) is (status.state == "stopping"), "Ctrl-C says it too"


def test_a_slow_worker_is_as_little_fatal_to_the_test_of_a_new_pipeline_as_to_a_run(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The written `run` itself, with a query whose first start fails as it does on a busy machine."""
    monkeypatch.setattr(runner, "PAUSE_S", 0.0)
    monkeypatch.setattr(runner, "LOOK_S", 0.0)
    for name in names():
        (tmp_path / name).mkdir()
        files = create(tmp_path / name / "mine", load(name))
        test = next(file for file in files if file.name.startswith("test_"))
        written = {node.name: node for node in ast.parse(test.read_text()).body if isinstance(node, ast.FunctionDef)}
        query = Query(1)
        names_there: dict[str, Any] = {
            "Options": Options,
            "Run": Run,
            "load": lambda file, query=query: played(query),
            "PIPELINE": "",
            "Broker": Broker,
            "Path": Path,
        }
        exec(compile(ast.Module([written["run"]], []), str(test), "exec"), names_there)
        broker = SimpleNamespace(bootstrap=bootstrap)
        names_there["run"](broker, tmp_path / name, {})
        assert query.starts == 2


def test_errors_are_reported_without_stack_traces() -> None:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\nTypeError: can\'t subtract: naive\n\tat org.apache.Spark\n'
    )
    assert runner._sentence(RuntimeError(text)) == "TypeError: can't subtract: naive"
    assert runner._sentence(RuntimeError("[T] no topic\n\tat org.apache.spark.A\nsecond")) == "[T] no topic second"
    assert runner._sentence(RuntimeError()) == "RuntimeError"
