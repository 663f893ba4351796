"""The examples of docs/spark/tables.md run as they stand, one after the other, but for the broker's address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Registry
from tests.spark.topics import Topics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark" / "tables.md"
_EXAMPLE = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
_ADDRESS = "127.0.0.1:9092"
_REGISTRY = "http://127.0.0.1:8081"


@pytest.fixture
def registry(bootstrap: str) -> Iterator[Registry]:
    with Registry(bootstrap) as started:
        yield started


def test_examples(spark: Any, topics: Topics, registry: Registry, tmp_path: Path) -> None:
    examples = _EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == PAGE.read_text(encoding="utf-8").count("```python"), "all of them run"
    for name in ("orders", "sevens", "prices", "offers"):
        topics.create(name, 2)
    # The page reads before it writes; here there has to be something to read. Its session is that of the tests.
    order = [examples[0], *(example for example in examples if ".write.format" in example)]
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    names: dict[str, Any] = {}
    for example in [*order, *examples]:
        text = example.replace(_ADDRESS, topics.bootstrap).replace(_REGISTRY, registry.url)
        text = text.replace('"checkpoints"', repr(str(tmp_path)))
        exec(compile(text, str(PAGE), "exec"), names)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4" and names["spark"] is not None
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert names["orders"].count() == 1000, "a DataFrame keeps the offsets that it had when it was first used"
    assert spark.table("counts").selectExpr("sum(count)").first()[0] == 1000
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "sevens"}
    sevens = spark.read.format("ottla").options(**options)
    assert sevens.load().count() == 200
    assert names["table"].num_rows == 2000
    assert names["offers"].count() == 200
