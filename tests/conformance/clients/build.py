"""Build the programs of the client matrix, once per checkout and again when their sources change.

What is built and what is fetched for it stays below `.cache/clients`. Versions come from the lock files here.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from peers.kafka import LIBS, cache
from peers.kafka.old import install_old, old_home

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache" / "clients"
LIMIT_S = 900

TOOLCHAINS = {
    "go": ["go"],
    "node": ["node", "npm"],
    "axe": ["node", "npm"],
    "rust": ["cargo"],
    "java": ["javac", "mvn"],
    "tools": ["javac"],
    "tools-3.9": ["javac", "mvn"],
    "tools-4.4": ["javac"],
}

OF_BOTH_RELEASES = ("AssignorLines", "CodecLines", "GroupCoordinatorLines", "ShareConsumerLines", "Shell")
"""Programs of `tools` that are built and run with the jars of 4.4 too. The others walk beside classes of 4.3 alone."""


def tools_of(release: str) -> str:
    """The programs that are built with the jars of a release of Kafka."""
    return "tools" if release == "4.3" else f"tools-{release}"


def missing(language: str) -> str | None:
    """Why this machine cannot build for a language, or None if it can."""
    absent = [tool for tool in TOOLCHAINS[language] if shutil.which(tool) is None]
    return f"no {' and no '.join(absent)} here" if absent else None


def build(language: str) -> Path:
    """The folder with what was built. Raises RuntimeError with what the build printed."""
    target = CACHE / language
    target.mkdir(parents=True, exist_ok=True)
    stamp = target / ".built"
    wanted = _digest(HERE / language)
    if language == "tools-4.4":
        wanted += _digest(HERE / "tools")
    with open(target / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker of xdist builds, the others wait
        if not stamp.exists() or stamp.read_text() != wanted:
            _STEPS[language](HERE / language, target)
            stamp.write_text(wanted)
    return target


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def _go(source: Path, target: Path) -> None:
    (target / "bin").mkdir(exist_ok=True)
    _run(
        [
            "go",
            "build",
            "-modcacherw",
            "-gcflags=all=-N -l",
            "-ldflags=-s -w",
            "-o",
            f"{target / 'bin'}{os.sep}",
            "./cmd/...",
        ],
        source,
        GOMODCACHE=str(target / "mod"),
        GOCACHE=str(target / "build"),
    )


def _node(source: Path, target: Path) -> None:
    for path in source.iterdir():
        shutil.copy(path, target)
    _run(["npm", "ci", "--no-audit", "--no-fund"], target, npm_config_cache=str(CACHE / "npm"))


def _rust(source: Path, target: Path) -> None:
    # Away from the sources: Cargo's lock file names the registry, and the exact versions are in Cargo.toml.
    copy = target / "sources"
    shutil.copytree(source, copy, dirs_exist_ok=True)
    _run(["cargo", "build", "--release"], copy, CARGO_TARGET_DIR=str(target), CARGO_HOME=str(CACHE / "cargo"))


def _java(source: Path, target: Path) -> None:
    libs = target / "libs"
    shutil.rmtree(libs, ignore_errors=True)
    pom = str(source / "pom.xml")
    _run(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={libs}"], source)
    _run(["javac", "-cp", f"{libs}/*", "-d", str(target / "classes"), *map(str, source.glob("*.java"))], source)


def _tools(source: Path, target: Path) -> None:
    _run(["javac", "-cp", f"{LIBS}/*", "-d", str(target), *map(str, source.glob("*.java"))], source)


def _tools_of_3_9(source: Path, target: Path) -> None:
    """What is asked of the last classes that know ZooKeeper."""
    install_old("3.9")
    sources = map(str, source.glob("*.java"))
    _run(["javac", "-cp", f"{old_home('3.9') / 'libs'}/*", "-d", str(target), *sources], source)


def _tools_of_4_4(source: Path, target: Path) -> None:
    """What is asked of the classes of Kafka 4.4: the sources there, with those for 4.3 that suit both."""
    sources = [*source.glob("*.java"), *(source.with_name("tools") / f"{name}.java" for name in OF_BOTH_RELEASES)]
    _run(["javac", "-cp", f"{cache('4.4') / 'libs'}/*", "-d", str(target), *map(str, sources)], source)


_STEPS: dict[str, Callable[[Path, Path], None]] = {
    "go": _go,
    "node": _node,
    "axe": _node,
    "rust": _rust,
    "java": _java,
    "tools": _tools,
    "tools-3.9": _tools_of_3_9,
    "tools-4.4": _tools_of_4_4,
}
