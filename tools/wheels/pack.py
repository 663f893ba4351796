"""The source archive, the pure wheel that is built of it, and wheels with compiled modules made of the pure one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.wheels.targets import ROOT, Target


def pure(out: Path) -> tuple[Path, Path]:
    """(source archive, wheel for every Python), written into a directory. Raises RuntimeError."""
    with tempfile.TemporaryDirectory() as directory:
        # Of the archive and not of the tree: what the archive lacks is missed here.
        _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, str(ROOT)])
        made = [next(Path(directory).glob(pattern)) for pattern in ("*.tar.gz", "*-py3-none-any.whl")]
        out.mkdir(parents=True, exist_ok=True)
        archive, wheel = (Path(shutil.move(each, out / each.name)) for each in made)
    return archive, wheel


def with_modules(wheel: Path, target: Target, modules: Mapping[str, Path], out: Path) -> Path:
    """The wheel of a target: all that is in the pure one, and the compiled modules beside their sources."""
    with tempfile.TemporaryDirectory() as directory:
        _run([sys.executable, "-m", "wheel", "unpack", "--dest", directory, str(wheel)])
        (tree,) = Path(directory).iterdir()
        for place, file in modules.items():
            shutil.copy(file, tree / place)
        (about,) = tree.glob("*.dist-info/WHEEL")
        text = re.sub(r"(?m)^Tag: .*\n", "", about.read_text().rstrip() + "\n")
        text = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        about.write_text(text + "".join(f"Tag: {tag}\n" for tag in target.tags))
        packed = Path(directory) / "packed"
        packed.mkdir()
        _run([sys.executable, "-m", "wheel", "pack", "--dest-dir", str(packed), str(tree)])
        (made,) = packed.iterdir()
        return Path(shutil.move(made, out / made.name))


def _run(command: list[str]) -> None:
    environment = {**os.environ, "OTTLA_INTERPRETED": "1", "SOURCE_DATE_EPOCH": _time_of_commit()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])}\n{done.stdout}{done.stderr}")


def _time_of_commit() -> str:
    """What files of an archive are dated with, so that the same commit gives the same archive."""
    said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "315532800"  # a zip file has nothing before 1980
