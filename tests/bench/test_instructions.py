"""The hot path costs what is written down: user instructions of each kind of request, counted, within 15 percent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import instructions
from bench.method.counted import totals
from bench.method.counted_requests import Load, loads

DEVIATION_MAX = 0.15
TIMES_AGAIN = 5


def deviations(counted: dict[str, float], kept: dict[str, float]) -> list[str]:
    """What costs more than is written down, or less, which is to be written down."""
    return [
        f"{name}: {found:,.0f}, kept {kept[name]:,.0f}"
        for name, found in counted.items()
        if abs(found / kept[name] - 1) > DEVIATION_MAX
    ]


def counts(directory: Path, wanted: list[Load]) -> dict[str, float]:
    directory.mkdir()
    return instructions.measure(directory, wanted)


def test_requests_cost_what_is_written_down(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind here: `make peers` installs it")
    kept = json.loads(instructions.KEPT.read_text())
    if kept["build"] != instructions.build():
        pytest.skip(f"no figures are kept for {instructions.build()}, but for {kept['build']}")
    wanted = [load for load in loads() if load.in_suite]
    counted = counts(tmp_path / "first", wanted)
    assert counted.keys() == {load.name for load in wanted} and len(counted) >= 10
    found = deviations(counted, kept["loads"])
    for again in range(TIMES_AGAIN):
        if not found:
            break
        # A busy machine adds what the node does by its clocks; what the code costs is in every count.
        names = {each.partition(":")[0] for each in found}
        some = [load for load in wanted if load.name in names]
        found = deviations(counts(tmp_path / f"again-{again}", some), {name: kept["loads"][name] for name in names})
    assert found == [], "dearer: why? cheaper: python -m bench.instructions --write, and keep it"


def test_every_load_has_its_figure() -> None:
    kept = json.loads(instructions.KEPT.read_text())
    assert kept["loads"].keys() == {load.name for load in loads() if load.is_kept}


def test_a_deviation_is_seen_either_way() -> None:
    kept = {"a": 1000.0, "b": 1000.0, "c": 1000.0}
    assert deviations({"a": 1140, "b": 860, "c": 1000}, kept) == []
    assert deviations({"a": 1160, "b": 840, "c": 1000}, kept) == ["a: 1,160, kept 1,000", "b: 840, kept 1,000"]


def test_the_sum_of_a_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.write_text("fn=main\n1 2\n\ntotals: 12345\n")
    assert totals(dump) == 12345
    dump.write_text("fn=main\n")
    with pytest.raises(ValueError, match="no totals"):
        totals(dump)
