"""The archive that `spark-submit --archives` ships to executors: a folder of packages to put on PYTHONPATH.

Not a virtual environment, which wants its Python at the same path everywhere, and not a zip for --py-files, out of
which no compiled module can be imported. The packages are copied by what their installers recorded; Ottla itself as it
is imported here, so that an editable install goes along with its compiled modules.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from ottla.cli.exits import CommandFailed

PACKAGES = ("ottla", "pyspark_ottla")
"""Ottla's packages; Spark finds the data source by the name of the second."""
NOT_ON_EXECUTORS = frozenset({"confluent-kafka", "cyclopts", "google-re2", "h11", "rich", "uvloop", "xxhash"})
"""Packages for nodes and the command line; a test imports all modules for executors without these."""
OF_SPARK = frozenset({"pyspark", "pyarrow", "pandas", "numpy"})
"""Packages that Spark needs anyway for Arrow, and that would make the archive ten times as large."""
EXTRA = "typed"
_LEFT_OUT = frozenset({".c", ".pyc", ".pth", ".pxd"})
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?([^;]*)(?:;(.*))?")
_OF_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


class Written(NamedTuple):
    """Contents of an archive."""

    packages: dict[str, str]
    """Versions by name."""
    files: int
    bytes: int
    """Size of the archive."""


def write(place: Path, *, with_pyarrow: bool = False) -> Written:
    """Raises CommandFailed for packages that are not installed, OSError."""
    found = _closure("ottla", {EXTRA}, NOT_ON_EXECUTORS | (OF_SPARK - {"pyarrow"} if with_pyarrow else OF_SPARK))
    files: dict[str, Path] = {}
    for name in PACKAGES:
        files.update(_package(name))
    for each in found.values():
        files.update(_installed(each))
    unfinished = place.with_name(f".{place.name}.unfinished")
    try:
        _pack(unfinished, files)
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)
    return Written({name: each.version for name, each in sorted(found.items())}, len(files), place.stat().st_size)


def platform() -> str:
    """For which Python and machine the compiled modules are, as in `3.11 on linux-x86_64`."""
    return f"{sys.version_info.major}.{sys.version_info.minor} on {sysconfig.get_platform()}"


def _pack(place: Path, files: dict[str, Path]) -> None:
    """The same bytes for the same files, so that a cluster which keeps archives by their hash keeps this one."""
    with (
        place.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            entry = archive.gettarinfo(path.resolve(), name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = int(entry.mtime)
            with path.open("rb") as content:
                archive.addfile(entry, content)


def _package(name: str) -> Iterator[tuple[str, Path]]:
    spec = importlib.util.find_spec(name)
    for folder in spec.submodule_search_locations or () if spec else ():
        root = Path(folder)
        for path in root.rglob("*"):
            if path.is_file() and _wanted(path):
                yield (name / path.relative_to(root)).as_posix(), path


def _installed(found: Distribution) -> Iterator[tuple[str, Path]]:
    """What lies in site-packages, without Ottla's own packages, which come from where they are imported."""
    if found.files is None:
        raise CommandFailed(
            f"{found.metadata['Name']} has no record of its files\n  install it with pip, and try again"
        )
    for each in found.files:
        inside = not each.is_absolute() and ".." not in each.parts and each.parts[0] not in PACKAGES
        path = Path(str(each.locate()))
        if inside and _wanted(path) and path.is_file() and path.name not in ("RECORD", "direct_url.json"):
            yield each.as_posix(), path


def _wanted(path: Path) -> bool:
    return path.suffix not in _LEFT_OUT and "__pycache__" not in path.parts


def _closure(name: str, extras: set[str], without: frozenset[str]) -> dict[str, Distribution]:
    """A distribution and all that it requires here, but for some and what only these require."""
    found: dict[str, Distribution] = {}
    left = [(name, frozenset(extras), False)]
    seen = {(name, frozenset(extras))}
    while left:
        each, wanted, perhaps = left.pop()
        try:
            found[each] = distribution(each)
        except PackageNotFoundError:
            if perhaps:
                continue
            raise CommandFailed(f"{each} is not installed\n  pip install 'ottla[spark]'") from None
        for text in found[each].requires or ():
            match = _REQUIREMENT.match(text)
            if match is None:
                continue
            marker = match[4] or ""
            of_extras = set(_OF_EXTRA.findall(marker))
            other = re.sub(r"[-_.]+", "-", match[1]).lower()
            further = frozenset(part.strip() for part in (match[2] or "").split(",") if part.strip())
            if other in without or (other, further) in seen or (of_extras and not of_extras & wanted):
                continue
            seen.add((other, further))
            # With any other marker, it is installed where it applies.
            left.append((other, further, bool(marker) and not of_extras))
    return found
