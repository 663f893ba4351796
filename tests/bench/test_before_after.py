"""A node of another commit: taken out of git, built, and what the comparison makes of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench import instructions
from bench.__main__ import arguments_of
from bench.method import before_after, brokers
from bench.method.before_after import COMPARABLE, DEFAULT, prepare, section_of
from bench.method.source_trees import SourceTree, source_tree
from bench.results import ROOT
from bench.tables import Run, Section, all_tables

SETUP = "from setuptools import setup\nsetup(name='ottla')\n"
TREE = SourceTree("73fe036754c8", "2026-11-22", Path("tree"))


def commit(repository: Path, files: dict[str, str]) -> str:
    """A commit of a repository with these files added; its hash."""
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "A"]):
        subprocess.run([*git, *arguments], cwd=repository, check=True, capture_output=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    commit(path, {"setup.py": SETUP, "src/ottla/__init__.py": "WHICH = 1\n"})
    return path


def test_a_revision_is_taken_out_of_git_once(repository: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = source_tree("HEAD", cache, repository)
    later = commit(repository, {"src/ottla/__init__.py": "WHICH = 2\n"})
    assert first.source == cache / first.commit / "src"
    assert (first.source / "ottla" / "__init__.py").read_text() == "WHICH = 1\n"
    (first.path / "mark").touch()
    assert source_tree("HEAD~1", cache, repository) == first
    assert (first.path / "mark").exists()
    second = source_tree(later, cache, repository)
    assert second.commit == later[:12]
    assert (second.source / "ottla" / "__init__.py").read_text() == "WHICH = 2\n"
    assert {path.name for path in cache.iterdir()} == {first.commit, second.commit}


def test_a_revision_that_there_is_not_is_refused(repository: Path, tmp_path: Path) -> None:
    for name in ("nothing", "--all"):
        with pytest.raises(ValueError, match="no revision"):
            source_tree(name, tmp_path / "cache", repository)


def test_what_is_not_compiled_or_not_what_runs_is_not_measured(repository: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    commit(repository, {"src/ottla/fast.py": "", "src/ottla/fast.pxd": ""})
    with pytest.raises(RuntimeError, match=r"not compiled: fast\.py"):
        source_tree("HEAD", cache, repository)
    assert list(cache.iterdir()) == []
    subprocess.run(["git", "rm", "--quiet", "-r", "src"], cwd=repository, check=True)
    commit(repository, {"README": ""})
    with pytest.raises(RuntimeError, match="is not what runs"):  # but the package that is installed here
        source_tree("HEAD", cache, repository)


def test_a_base_is_a_node_of_its_own_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "SIDES", dict(brokers.SIDES))
    monkeypatch.setattr(brokers, "SOURCES", dict(brokers.SOURCES))
    brokers.add_base(ROOT / "src")
    base = brokers.make("base", tmp_path)
    base.start()
    try:
        environment = Path(f"/proc/{base.pid}/environ").read_bytes().split(b"\0")
    finally:
        base.stop_and_delete()
    assert base.name == "base"
    assert f"PYTHONPATH={ROOT / 'src'}".encode() in environment
    assert "PYTHONPATH" not in brokers.Ottla(tmp_path / "here").environment.keys() - set(os.environ)


def test_a_comparison_has_this_tree_and_the_other_and_kafka_if_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "SIDES", dict(brokers.SIDES))
    monkeypatch.setattr(brokers, "SOURCES", dict(brokers.SOURCES))
    monkeypatch.setattr(before_after, "source_tree", lambda revision: TREE)
    with_kafka = replace(run)
    assert prepare(with_kafka, "main", with_kafka=True) == TREE
    assert with_kafka.sides == ["ottla", "base", "kafka"]
    assert with_kafka.rule == run.rule
    prepare(run, "main", with_kafka=False)
    assert run.sides == ["ottla", "base"]
    assert run.rule.seconds_max < with_kafka.rule.seconds_max
    assert not run.with_bare
    assert dict(brokers.SOURCES) == {"ottla": None, "base": TREE.source}


def test_sections_of_a_comparison_have_keys_of_their_own_and_name_the_commit() -> None:
    found = section_of(Section("Title", [{"side": "base"}], "A note.", "produce-16k"), TREE)
    assert found.key == "compare-produce-16k"
    assert found.note == "Base: commit 73fe036754c8 of 2026-11-22 (0 compiled modules). A note."


def test_instructions_of_both_commits_stand_in_a_row() -> None:
    found = {"ottla": {"one": 500.0, "two": 30.0}, "base": {"one": 1000.0, "two": 20.0}}
    assert instructions.beside_base(found) == [
        {"request": "one", "base": "1,000", "ottla": "500", "ottla / base": "0.50 x"},
        {"request": "two", "base": "20", "ottla": "30", "ottla / base": "1.50 x"},
    ]


def test_the_command_compares_if_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    tables = all_tables()
    plain, _ = arguments_of(["small", "--side", "ottla"], tables)
    assert (plain.revision, plain.tables, plain.side) == ("", ["small"], ["ottla"])
    assert list(arguments_of([], tables)[0].tables) == list(tables)
    found, _ = arguments_of(["compare", "main", "groups", "--load", "20 partitions", "--with-kafka"], tables)
    assert (found.revision, found.tables, found.load, found.with_kafka) == ("main", ["groups"], ["20 partitions"], True)
    assert arguments_of(["compare", "main"], tables)[0].tables == DEFAULT
    assert set(COMPARABLE) <= set(tables)
    for wrong in (["compare"], ["compare", "main", "flood"], ["unknown"]):
        with pytest.raises(SystemExit):
            arguments_of(wrong, tables)
    assert "no table 'flood'" in capsys.readouterr().err


def test_loads_can_be_chosen_by_a_part_of_their_name(run: Run) -> None:
    assert run.wants("anything")
    run.parts = ["64 KB", "1 MB"]
    assert [name for name in ("16 KB batches", "64 KB batches", "1 MB batches") if run.wants(name)] == [
        "64 KB batches",
        "1 MB batches",
    ]
