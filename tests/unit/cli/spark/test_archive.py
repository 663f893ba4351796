"""The archive for executors: unpacked, it is all that a Python with pyspark and pyarrow lacks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.cli.spark import archive as spark_archive

OF_SPARK = ("pyarrow", "numpy", "pandas", "pyspark", "py4j", "dateutil", "six", "pytz")

IMPORTS = """
import importlib, pkgutil, sys, zlib
sys.path[:0] = sys.argv[1:]
import ottla.client, ottla.formats, ottla.protocol, ottla.spark
for package in (ottla.client, ottla.formats, ottla.spark):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(each.name)
import ottla.arrow
from ottla.formats.typed import Typed
from ottla.protocol import crc32c
from ottla.protocol.records.compression import Codec, compress, decompress
for codec in Codec:
    assert bytes(decompress(codec, compress(codec, b"data" * 100))) == b"data" * 100
Typed.of_options({"value.format": "json", "value.schema": "a INT"})
Typed.of_options({"value.format": "avro", "value.schema": '"string"'})
files = [getattr(each, "__file__", None) for name, each in sys.modules.items() if name.startswith("ottla.")]
print("\\n".join(sorted(filter(None, files))))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("archive") / "ottla.tar.gz"
    spark_archive.write(place)
    return place


def test_executors_need_nothing_else(archive: Path, tmp_path: Path) -> None:
    for name in ("pyarrow", "pyspark"):
        pytest.importorskip(name)
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        packed.extractall(tmp_path / "ottla")
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in OF_SPARK:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            path = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
            (beside / path.name).symlink_to(path)
    for each in Path(importlib.util.find_spec("numpy").origin).parents[1].glob("*.libs"):  # type: ignore[union-attr, arg-type]
        (beside / each.name).symlink_to(each)
    # Neither site-packages nor PYTHONPATH.
    command = [sys.executable, "-I", "-S", "-c", IMPORTS, str(tmp_path / "ottla"), str(beside)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stderr
    files = run.stdout.split()
    assert files
    assert all(each.startswith(str(tmp_path / "ottla")) for each in files)
    spec = importlib.util.find_spec("ottla.protocol.records._records")
    if spec is not None and str(spec.origin).endswith(".so"):
        assert any(each.endswith(".so") for each in files)


def test_its_contents(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    names = {each.name for each in members}
    assert {"ottla/arrow.py", "ottla/spark/__init__.py"} <= names
    assert not [
        name for name in names if name.startswith(("/", "..")) or "__pycache__" in name or name.endswith(".pth")
    ]
    tops = {name.partition("/")[0] for name in names}
    assert not tops & {"pyspark", "pyarrow", "numpy", "confluent_kafka", "rich", "uvloop", "bin"}
    assert {each.uid for each in members} == {0}


def test_the_same_files_give_the_same_archive(archive: Path, tmp_path: Path) -> None:
    spark_archive.write(tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == archive.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ["again.tar.gz"]


def test_it_says_how_to_submit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("ottla.cli.spark.archive._pack", lambda place, files: place.write_bytes(b"x"))
    out = tmp_path / "ottla.tar.gz"
    assert main(["spark", "archive", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"--archives {out}#ottla \\\n    --conf spark.executorEnv.PYTHONPATH=./ottla" in said
    assert "--conf spark.yarn.appMasterEnv.PYTHONPATH=./ottla" in said
    assert main(["spark", "archive", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arguments"][:2] == ["--archives", f"{out}#ottla"]
    assert "crc32c" in found["packages"]


@pytest.mark.parametrize(
    ("out", "code", "sentence"),
    [("ottla.zip", 2, "the archive's name must end in .tar.gz"), ("none/ottla.tar.gz", 1, "No such file or directory")],
)
def test_where_it_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, code: int, sentence: str
) -> None:
    assert main(["spark", "archive", str(tmp_path / out)]) == code
    assert sentence in capsys.readouterr().err
