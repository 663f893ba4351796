"""Which modules are compiled, and whether what was built is of the sources that are there.

Python prefers a compiled module to its source, so that after a change tests would run what was there before.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"


def typed_modules(source: Path = SOURCE) -> list[Path]:
    """The sources of the modules that are compiled: each has a `.pxd` file beside it."""
    return [path for path in (each.with_suffix(".py") for each in sorted(source.rglob("*.pxd"))) if path.exists()]


def built(module: Path) -> Path | None:
    """The extension that was built of a module for this Python."""
    found = (module.with_name(module.stem + suffix) for suffix in EXTENSION_SUFFIXES)
    return next((path for path in found if path.exists()), None)


def stale(source: Path = SOURCE) -> list[str]:
    """Modules whose sources have changed since they were built, and those built whose sources are gone."""
    found = []
    known = set()
    for module in typed_modules(source):
        binary = built(module)
        known.add(binary)
        newest = max(path.stat().st_mtime_ns for path in (module, module.with_suffix(".pxd")))
        if binary is not None and binary.stat().st_mtime_ns < newest:
            found.append(module.relative_to(source).as_posix())
    for suffix in EXTENSION_SUFFIXES[:1]:
        found += [path.relative_to(source).as_posix() for path in source.rglob("*" + suffix) if path not in known]
    return found
