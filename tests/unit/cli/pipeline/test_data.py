"""`ottla pipeline feed` and `logs`: sample data that pipelines take, and what a run has left in its log."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from ottla import arrow
from ottla.cli.exits import FAILED, MISUSED, OK
from ottla.cli.main import main
from ottla.cli.pipeline import log as pipeline_log
from ottla.cli.pipeline import samples
from ottla.pipelines.runner import load
from ottla.pipelines.runner.pipeline import SHIPPED
from ottla.pipelines.runner.state import Directory
from ottla.testing import Broker

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
SCHEMAS = {
    ("activity", "input"): "VIEW", ("metrics", "input"): "METRIC", ("ledger", "input"): "TRANSACTION",
    ("ticks", "input"): "TICK", ("join", "orders"): "ORDER", ("join", "payments"): "PAYMENT",
}  # fmt: skip
"""Where a pipeline says what it reads: the name of the DDL in its module."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("name", SHIPPED)
def test_each_pipeline_has_sample_data_in_the_form_that_it_reads(name: str) -> None:
    made = list(samples.samples(name, 500, NOW, Random(1)))
    assert made == list(samples.samples(name, 500, NOW, Random(1))), "a seed says all"
    assert 450 <= len(made) <= 500 and not list(samples.samples(name, 0, NOW, Random(1)))
    settings = {setting.name for setting in load(name).settings}
    module = importlib.import_module(f"ottla.pipelines.{name}")
    times = []
    for record in made:
        assert record.setting in settings
        if name == "logs":
            found = re.match(module.LOGGER, record.value)
            assert found is not None, record.value
            times.append(datetime.fromisoformat(found[1]))
            continue
        value = json.loads(record.value)
        if (name, record.setting) in SCHEMAS:
            schema = getattr(module, SCHEMAS[name, record.setting])
            assert list(value) == re.findall(r"(?:^|, )(\w+) [A-Z]+", schema)
            times.append(datetime.fromisoformat(value["at"]))
    assert times == sorted(times) and all(NOW - 2 * samples.SPAN < at <= NOW for at in times)
    assert not times or times[-1] - times[0] > timedelta(hours=2), "windows and sessions are over"


def test_sample_data_is_written_to_the_topics_of_the_settings(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(f'bootstrap = "{bootstrap}"\n[settings]\npayments = "mine"\n')
    arguments = ["pipeline", "feed", "join", "-n", "100", "--config", str(tmp_path / "s.toml"), "-s", "orders=ours"]
    assert main([*arguments, "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["bootstrap"] == bootstrap and sum(told["topics"].values()) >= 95
    assert {
        topic: arrow.read(topic, bootstrap, columns=["value"]).read_all().num_rows for topic in ("ours", "mine")
    } == told["topics"]
    assert main(arguments) == OK
    assert "records to ours" in capsys.readouterr().out
    ids = Counter(
        json.loads(value)["order"]
        for value in arrow.read("ours", bootstrap, columns=["value"]).read_all().column("value").to_pylist()
    )
    assert set(ids.values()) == {1}, "feeding again is no repetition"


def test_a_pipeline_of_ones_own_is_fed_like_the_one_that_it_began_as(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "new", str(tmp_path / "mine"), "--from", "ticks"]) == OK
    arguments = ["pipeline", "feed", str(tmp_path / "mine" / "mine.py"), "-n", "10", "-b", bootstrap]
    assert main(arguments) == MISUSED
    assert "use --like NAME with one of activity" in capsys.readouterr().err
    assert main([*arguments, "--like", "ticks"]) == OK
    assert "10 records to ticks" in capsys.readouterr().out
    assert main([*arguments, "--like", "join"]) == MISUSED
    assert "lacks the setting orders" in capsys.readouterr().err


def test_a_mirror_is_fed_where_it_reads(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "feed", "mirror", "-n", "10", "-s", f"from={bootstrap}", "-b", "127.0.0.1:1"]) == OK
    assert "10 records to orders" in capsys.readouterr().out


def test_the_end_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pipeline", "logs", "p", "--directory", str(tmp_path)]
    assert main(arguments) == FAILED
    assert "p has no log: there is no" in capsys.readouterr().err
    directory = Directory(tmp_path, "p")
    directory.path.mkdir()
    directory.log.write_bytes(b"\n".join([*(b"%d" % number for number in range(200)), b"\tat Java \x1b[1m\xff"]))
    assert main(arguments) == OK
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 100 and shown[0] == "101" and shown[-1].startswith("    at Java \\x1b[1m")
    assert main([*arguments, "-n", "1", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["line"].startswith("\tat Java")


def test_a_log_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "spark.log"
    log.write_text("first\n")
    written = iter(["sec", "ond\n", "third\n"])

    def wait(_: float) -> None:
        text = next(written, None)
        if text is None:
            raise KeyboardInterrupt
        with log.open("a") as file:
            file.write(text)

    monkeypatch.setattr("ottla.cli.pipeline.log.time", SimpleNamespace(sleep=wait))
    with pytest.raises(KeyboardInterrupt):
        pipeline_log.show(log, 10, follow=True, as_json=False)
    assert capsys.readouterr().out == "first\nsecond\nthird\n"
