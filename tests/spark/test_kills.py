"""Exactly once under kill -9: a job copies a topic on three nodes while driver, Python workers, executors and nodes are
killed. Many more rounds by hand: `python -m tests.spark.kills --rounds 20`."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from tests.spark.kills import round_on_three_nodes

COUNT = 30_000


@pytest.mark.slow
@pytest.mark.parametrize("victims", [("driver", "worker"), ("executor", "node")], ids="-".join)
def test_every_record_is_copied_once(victims: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("Spark is not set up: no pyspark or no Java here")
    spark = request.getfixturevalue("standalone") if "executor" in victims else None
    seed = int(os.environ.get("OTTLA_TEST_SEED", "1"))
    print("\n".join(round_on_three_nodes(tmp_path, seed, victims, COUNT, spark)))
