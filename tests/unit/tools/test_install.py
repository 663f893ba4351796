"""`tools/install.sh`: by uv, and by pip where uv fails or cannot know of an index that pip was told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "install.sh"
PYTHON = """#!/bin/sh
case "$*" in
"-c import uv") exit {has_uv} ;;
"-m pip config list") echo "{config}" ;;
*) echo "python $* ($(basename "$DIST_EXTRA_CONFIG"))" >> {said} ;;
esac
"""
UV = """#!/bin/sh
echo "uv $1 $2 $6" >> {said}
exit {code}
"""


@pytest.mark.parametrize(
    ("has_uv", "code", "config", "expected"),
    [
        (True, 0, "global.cert='x'", ["uv pip install cython>=3.1"]),
        (True, 1, "", ["uv pip install cython>=3.1", "python -m pip install --quiet cython>=3.1 (uncompressed.cfg)"]),
        (True, 0, ":env:.index-url='x'", ["python -m pip install --quiet cython>=3.1 (uncompressed.cfg)"]),
        (
            False,
            0,
            "",
            [
                "python -m pip install --quiet uv (uncompressed.cfg)",
                "python -m pip install --quiet cython>=3.1 (uncompressed.cfg)",
            ],
        ),
    ],
)
def test_which_installs(tmp_path: Path, has_uv: bool, code: int, config: str, expected: list[str]) -> None:
    said = tmp_path / "said"
    programs = {"python": PYTHON.format(has_uv=int(not has_uv), config=config, said=said)}
    if has_uv:
        programs["uv"] = UV.format(said=said, code=code)
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    done = subprocess.run([SCRIPT, tmp_path, "cython>=3.1"], env=dict(os.environ), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said.read_text().splitlines() == expected
