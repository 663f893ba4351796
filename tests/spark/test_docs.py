"""The examples of docs/spark.md run as they stand, one after the other, but for the broker's address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Registry
from tests.spark.topics import Topics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
_EXAMPLE = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
_ADDRESS = "127.0.0.1:9092"
_REGISTRY = "http://127.0.0.1:8081"


@pytest.fixture
def registry(bootstrap: str) -> Iterator[Registry]:
    with Registry(bootstrap) as started:
        yield started


def test_examples(spark: Any, topics: Topics, registry: Registry, tmp_path: Path) -> None:
    examples = _EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) >= 5
    for name in ("orders", "sevens", "prices", "offers"):
        topics.create(name, 2)
    # The page reads before it writes; here there has to be something to read.
    order = [example for example in examples if ".write.format" in example]
    names: dict[str, Any] = {"spark": spark, "checkpoints": str(tmp_path)}
    for example in [*order, *examples]:
        text = example.replace(_ADDRESS, topics.bootstrap).replace(_REGISTRY, registry.url)
        exec(compile(text, str(PAGE), "exec"), names)
    assert names["orders"].count() == 1000, "a DataFrame keeps the offsets that it had when it was first used"
    assert spark.table("counts").selectExpr("sum(count)").first()[0] == 1000
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": "sevens"}
    sevens = spark.read.format("ottla").options(**options)
    assert sevens.load().count() == 200
    assert names["table"].num_rows == 2000
    assert names["offers"].count() == 200
