"""Files of Debian's packages for any release and architecture, unpacked into a directory: nothing is installed.

By apt, with lists of its own and the mirror that this machine has: it brings the headers of Pythons that this machine
lacks, and the Pythons themselves to try a wheel with.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tools.wheels.targets import WORK

RELEASES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}
"""By the version of Python that it has. None of them has 3.12."""
_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Unavailable(Exception):
    """This machine cannot have it; the text says why."""


def unpacked(release: str, architecture: str, packages: tuple[str, ...], *, whole: bool = False) -> Path:
    """A directory with the files of packages, with `whole` also of all that they depend on. Raises Unavailable.

    What a run before left is used again.
    """
    directory = WORK / "debian" / f"{release}-{architecture}-{'-'.join(packages)}"
    done = directory.with_suffix(directory.suffix + ".done")
    if done.exists():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    options = _lists(release, architecture)
    archives = directory.parent / f"{release}-{architecture}" / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    names = packages
    if whole:
        said = _run(["apt-get", *options, "--simulate", "--no-install-recommends", "install", *packages], archives)
        names = tuple(line.split()[1].partition(":")[0] for line in said.splitlines() if line.startswith("Inst "))
    _run(["apt-get", *options, "download", *names], archives)
    directory.mkdir(parents=True)
    for name in names:
        newest = max(archives.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
        _run(["dpkg-deb", "--extract", str(newest), str(directory)], archives)
    for name in ("lib", "lib64"):  # links of a system that was installed
        if not (directory / name).exists() and (directory / "usr" / name).exists():
            (directory / name).symlink_to(f"usr/{name}")
    done.touch()
    return directory


@cache
def _lists(release: str, architecture: str) -> tuple[str, ...]:
    """apt's options for lists of that release alone, which are fetched. Raises Unavailable."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None or not _KEYS.exists():
        raise Unavailable("this is no Debian, whose packages would have it")
    base = WORK / "debian" / f"{release}-{architecture}"
    for each in ("state/lists/partial", "cache/archives/partial"):
        (base / each).mkdir(parents=True, exist_ok=True)
    (base / "status").touch()
    (base / "sources.list").write_text(f"deb [signed-by={_KEYS}] {_mirror()} {release} main\n")
    settings = {
        "Dir::State": base / "state",
        "Dir::State::status": base / "status",
        "Dir::Cache": base / "cache",
        "Dir::Etc::SourceList": base / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Architecture": _NAMES[architecture],
        "APT::Architectures": _NAMES[architecture],
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    options = tuple(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
    _run(["apt-get", *options, "--quiet", "update"], base)
    return options


def _mirror() -> str:
    """Where this machine has Debian's packages from. Raises Unavailable."""
    columns = "$(ORIGIN) $(REPO_URI)"
    said = _run(["apt-get", "indextargets", "--format", columns, "Created-By: Packages"], WORK)
    found = [line.split()[1].rstrip("/") for line in said.splitlines() if line.startswith("Debian ")]
    if mirrors := [each for each in found if not each.endswith("-security")]:
        return mirrors[0]
    raise Unavailable("apt knows no mirror of Debian: run apt-get update")


def _run(command: list[str], directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout
