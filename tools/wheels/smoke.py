"""Tries a wheel as a user would: installed with its dependencies in an empty environment, then a node and a record."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.wheels.debian import Unavailable
from tools.wheels.pythons import Python
from tools.wheels.targets import Target

_TIMEOUT_S = 1800.0
"""Longest run of a command; emulated ones and compilations are slow."""
_KEPT = re.compile(r"PIP_|SSL_|HOME$|LANG|LC_|PATH$|TMPDIR$")
"""What an empty environment has of this process's variables."""
_FILES = "import importlib, sys; [print(importlib.import_module(name).__file__) for name in sys.argv[1:]]"


class DoesNotWork(Exception):
    """What went wrong, with what was said."""


@dataclass(frozen=True)
class Installed:
    """Where a wheel is: the command of its Python, and the environment for it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def installed(wheel: Path, target: Target, python: Python, directory: Path) -> Installed:
    """A wheel with its dependencies, in a directory of its own. Raises DoesNotWork, and Unavailable where one of these
    would have to be compiled for another machine."""
    environment = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    if target.runs_here:
        interpreter = str(directory / "bin" / "python")
        if python.root is None:
            _said([*python.command, "-m", "venv", str(directory)], environment)
            pip = [interpreter, "-m", "pip"]
        else:  # Debian's own pip looks for its parts in the system's directories
            _said([*python.command, "-m", "venv", "--without-pip", str(directory)], environment)
            pip = [sys.executable, "-m", "pip", "--python", interpreter]
            include = python.root / "usr" / "include"
            environment["C_INCLUDE_PATH"] = f"{include}:{include / target.triplet}"
        _said([*pip, "install", "--quiet", str(wheel)], environment)
        return Installed((interpreter,), environment)
    # pip itself need not be emulated: it can choose for another machine.
    platforms = [f"--platform=manylinux_2_{minor}_{target.architecture}" for minor in range(40, 16, -1)]
    try:
        _said(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--target",
                str(directory),
                "--only-binary=:all:",
                "--implementation=cp",
                f"--python-version={target.version}",
                f"--platform={target.platforms[0]}",
                *platforms,
                str(wheel),
            ],
            environment,
        )
    except DoesNotWork as error:
        if lacks := re.search(r"No matching distribution found for ([\w-]+)", str(error)):
            raise Unavailable(f"{lacks[1]}, which Ottla needs, has no wheel for {target}") from None
        raise
    return Installed(python.command, {**environment, "PYTHONPATH": str(directory)})


def works(place: Installed, *, modules: Sequence[str], says: str) -> None:
    """Start a node, write a record and read it again. `says` is how it has to call itself: compiled or interpreted;
    `modules` are those that then are, or are not, compiled. Raises DoesNotWork."""
    if not (version := _said([*place.command, "-m", "ottla", "--version"], place.environment)).endswith(f"({says})\n"):
        raise DoesNotWork(f"--version says {version!r}, not {says}")
    files = _said([*place.command, "-c", _FILES, *modules], place.environment).split()
    if odd := [file for file in files if file.endswith(".so") != (says == "compiled")]:
        raise DoesNotWork(f"{odd[0]} is not {says}")
    with tempfile.TemporaryDirectory() as data:
        node = subprocess.Popen(
            [*place.command, "-m", "ottla", "server", "start", data, "--listen", "127.0.0.1:0"],
            cwd=data,
            env=place.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert node.stdout is not None
        try:
            greeting = next((line for line in node.stdout if line.startswith("ottla: ")), "")
            found = re.match(r"ottla: listening on (\S+), data in ", greeting)
            if found is None or not greeting.endswith(f"({says})\n"):
                raise DoesNotWork(f"the node said: {greeting or 'nothing'}")
            _round(place, found[1])
        finally:
            node.send_signal(signal.SIGTERM)
            rest, _ = node.communicate(timeout=_TIMEOUT_S)
        if node.returncode:
            raise DoesNotWork(f"the node ended with exit code {node.returncode}: {rest}")


def _round(place: Installed, bootstrap: str) -> None:
    def ottla(*words: str) -> str:
        return _said([*place.command, "-m", "ottla", *words, "--bootstrap", bootstrap], place.environment)

    ottla("produce", "greetings", "hello", "--create")
    if (said := ottla("consume", "greetings", "--count", "1")) != "hello\n":
        raise DoesNotWork(f"'hello' was written, and read: {said!r}")


def _said(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """By a command, elsewhere than in this tree. Raises DoesNotWork."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    if done.returncode:
        raise DoesNotWork(f"{' '.join(command[:6])}: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout
