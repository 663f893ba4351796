"""The source of another commit, taken out of git and built, once, so that it can run beside this tree.

It lies below `.cache/bench`, called after its commit, and runs in this tree's environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench.method.brokers import environment
from bench.results import ROOT
from tools import compiled

CACHE = ROOT / ".cache" / "bench"
_WHERE = "import pathlib, ottla; print(pathlib.Path(ottla.__file__).resolve().parents[1])"


@dataclass(frozen=True)
class SourceTree:
    commit: str
    """The first twelve digits."""
    date: str
    """Date of the commit."""
    path: Path

    @property
    def source(self) -> Path:
        """Directory of the package."""
        return self.path / "src"

    def __str__(self) -> str:
        count = len(compiled.typed_modules(self.source))
        return f"commit {self.commit} of {self.date} ({count} compiled module{'s' * (count != 1)})"


def source_tree(revision: str, cache: Path = CACHE, repository: Path = ROOT) -> SourceTree:
    """The tree of a revision of the repository, built, as a run before left it or made now.

    Raises ValueError for a revision that there is not, RuntimeError for one that cannot be built or run here.
    """
    found = _git(repository, "log", "-1", "--abbrev=12", "--format=%h %cs", "--end-of-options", revision, "--")
    if found.returncode:
        raise ValueError(f"no revision {revision!r}: {found.stderr.decode().strip()}")
    commit, date = found.stdout.decode().split()
    tree = SourceTree(commit, date, cache / commit)
    if not tree.path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{commit}-", dir=cache))
        try:
            _extract(repository, commit, part)
            build(part)
            part.rename(tree.path)  # what is there is whole
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    require_own(tree)
    return tree


def _extract(repository: Path, commit: str, directory: Path) -> None:
    found = _git(repository, "archive", "--format=tar", commit)
    if found.returncode:
        raise RuntimeError(f"git archive {commit}: {found.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(directory)


def build(directory: Path) -> None:
    """Compile the modules of a tree in place, as its own `setup.py` does it. Raises RuntimeError if one is not built.

    A compiler that fails does not fail `setup.py`, and what is interpreted would be measured.
    """
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    missing = [path.name for path in compiled.typed_modules(directory / "src") if compiled.built(path) is None]
    if done.returncode or missing:
        what = f"not compiled: {', '.join(missing)}" if missing else f"exit code {done.returncode}"
        raise RuntimeError(f"{' '.join(command)} in {directory}: {what}\n{done.stderr}")


def require_own(tree: SourceTree) -> None:
    """Raise RuntimeError unless this interpreter, told where the tree is, runs its package and no other."""
    done = subprocess.run(
        [sys.executable, "-c", _WHERE],
        env=environment(tree.source),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or Path(done.stdout.strip()) != tree.source.resolve():
        raise RuntimeError(f"{tree.source} is not what runs: {done.stdout.strip() or done.stderr.strip()}")


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *arguments], cwd=repository, env=outside, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
