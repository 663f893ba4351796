"""Rules of the console that are broken on purpose are found by the test that is named: one here, all each night."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.console.planted import PLANTED, Planted, is_found

HERE = Path(__file__).parent


def test_every_bug_can_still_be_planted_and_its_test_is_there() -> None:
    assert len({each.name for each in PLANTED}) == len(PLANTED) >= 25
    for each in PLANTED:
        compile(each.mutation.source(), str(each.mutation.path), "exec")
        file, _, name = each.found_by.partition("::")
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, each.found_by


def test_a_planted_bug_is_found() -> None:
    (planted,) = [each for each in PLANTED if each.name == "field-in-a-list-shown"]
    found, printed = is_found(planted)
    assert found, printed


@pytest.mark.nightly("tests/unit/console/test_planted.py::test_a_planted_bug_is_found")
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_each_planted_bug_is_found(planted: Planted) -> None:
    found, printed = is_found(planted)
    assert found, printed
