"""The pipeline that docs/spark/pipelines.md writes is run as it stands, and what the page names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ottla.pipelines.runner import Options, Run, load, names
from ottla.pipelines.runner.exposition import text
from ottla.pipelines.runner.state import QueryStatus, Status
from tests.spark.pipelines.pipelines import feed, rows
from tests.spark.pipelines.pipelines import names as topics

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "spark" / "pipelines.md").read_text(encoding="utf-8")
_PIPELINE = re.compile(r"<!-- pipeline: (\w+) -->\n```python\n(.*?)```", re.DOTALL)


def test_the_pipeline_of_the_page(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    ((name, code),) = _PIPELINE.findall(PAGE)
    (tmp_path / f"{name}.py").write_text(code)
    settings = topics("input", "totals", "large")
    orders = [("ada", 500), ("ben", 1000), ("ada", 1500)]
    feed(bootstrap, settings["input"], [{"customer": who, "amount": much} for who, much in orders])
    options = Options(bootstrap, directory=tmp_path / "state", once=True, restarts_max=0)
    for _ in range(2):
        status = Run(load(str(tmp_path / f"{name}.py")), options, settings, spark).run()
        assert status.state == "done", status.error
    assert rows(bootstrap, settings["large"]) == [{"customer": "ada", "amount": 1500.0}]
    found = {row["customer"]: row["spent"] for row in rows(bootstrap, settings["totals"])}
    assert found == {"ada": 2000.0, "ben": 1000.0}


def test_the_page_has_every_pipeline_and_metric() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(names())
    figures = text(Status("p", queries=[QueryStatus("q", lag_records=0, lag_s=0.0)]))
    for name in re.findall(r"^# TYPE (\w+)", figures, re.MULTILINE):
        assert name in PAGE or name.replace("ottla_pipeline", "...") in PAGE or name == "ottla_pipeline_batch", name
