"""The tables of clients in `docs/reference/compatibility.md` are what the client tests of this tree found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from typing import Any

import pytest

from tests.conformance.catalogue import CATALOGUE
from tests.conformance.compatibility import (
    PAGE,
    RESULTS,
    ROOT,
    Found,
    commit_here,
    commits_behind,
    made_from,
    page_with,
    read,
    render,
)

AGAIN = "run `make compatibility`"


@pytest.fixture(scope="module")
def found() -> Found:
    return read(RESULTS)


@pytest.fixture(scope="module")
def results(found: Found) -> dict[str, dict[str, Any]]:
    return found.tests


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The client tests that pytest finds now."""
    target = tmp_path_factory.mktemp("declared") / "tests.json"
    pytest_here = [sys.executable, "-m", "pytest", "--collect-only"]
    subprocess.run(
        [*pytest_here, "-m", "client", "--declared", str(target), "tests/conformance"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    found: dict[str, dict[str, Any]] = json.loads(target.read_text())
    return found


def test_the_page_has_the_tables_of_the_results(found: Found) -> None:
    page = PAGE.read_text()
    assert page == page_with(page, render(found.tests, found.commits)), AGAIN


def test_the_tables_say_which_commit_they_are_of(found: Found) -> None:
    """Changes of the package since only cause a warning: else no commit could follow the tables."""
    assert found.commits and all(re.fullmatch(r"[0-9a-f]{40}", each) for each in found.commits), found.commits
    page = PAGE.read_text()
    assert all(f"`{each[:12]}`" in page for each in found.commits)
    behind = commits_behind(found.commits[0])
    if behind:
        warning = f"the compatibility tables are {behind} commits of src behind ({found.commits[0][:12]}): {AGAIN}"
        warnings.warn(warning, stacklevel=1)


def test_a_commit_is_named_with_what_is_not_in_it() -> None:
    assert re.fullmatch(r"([0-9a-f]{40}|unknown)\+?", commit_here())
    assert commits_behind("0" * 40) is None
    assert made_from(["1" * 40]) == "Found at commit `111111111111`."
    assert (
        made_from(["1" * 40, "2" * 40 + "+"]) == "Found at commit `111111111111` and later `222222222222` with changes."
    )


def test_each_client_test_has_a_result_and_no_other_has(
    results: dict[str, dict[str, Any]], declared: dict[str, dict[str, Any]]
) -> None:
    assert results.keys() == declared.keys(), AGAIN


def test_results_are_of_the_tests_as_they_are_now(
    results: dict[str, dict[str, Any]], declared: dict[str, dict[str, Any]]
) -> None:
    for name, test in declared.items():
        assert results[name]["share"] == test["share"], f"{name}: {AGAIN}"
        kept = results[name]["clients"]
        for client, stated in test["clients"].items():
            assert client in kept, f"{name}: {AGAIN}"
            assert all(step in kept[client]["steps"] for step in stated["steps"]), f"{name}: {AGAIN}"


def test_nothing_failed_or_was_left_out(results: dict[str, dict[str, Any]]) -> None:
    assert {name: test["why"] for name, test in results.items() if test["result"] != "passed"} == {}


def test_each_client_of_the_catalogue_is_run_and_its_version_known(results: dict[str, dict[str, Any]]) -> None:
    ran = [(name, each["version"]) for test in results.values() for name, each in test["clients"].items()]
    assert {name for name, version in ran if version} == CATALOGUE.keys()


def test_each_client_that_has_them_ran_with_every_codec(results: dict[str, dict[str, Any]]) -> None:
    """A client without a codec says so in what it lacks."""
    for client, entry in CATALOGUE.items():
        if entry.section != "clients":
            continue
        mine = [test["clients"][client] for test in results.values() if client in test["clients"]]
        codecs = {step[1]["codec"] for each in mine for step in each["steps"] if "codec" in step[1]}
        without = {what for each in mine for what in each["lacks"]}
        assert {"none", "gzip", "snappy", "lz4", "zstd"} <= codecs | without, client


def test_a_result_that_is_not_happy_shows_in_its_row() -> None:
    kcat = {"version": "1", "steps": [["writes with {codec}", {"codec": "zstd"}]], "lacks": {"lz4": "it is old"}}
    test = {"result": "failed", "why": "a reason", "share": "make conformance", "clients": {"kcat": kcat}}
    row = render({"a": test, "b": {**test, "result": "skipped", "why": "no kcat here"}}, ["0" * 40])
    assert "2 passed" not in row
    for part in (
        "1 failed, 1 skipped",
        "**failed**: writes with zstd (a reason)",
        "(no kcat here)",
        "without lz4: it is old",
    ):
        assert part in row, part
