"""Runs the compiled modules from their sources, for a debugger or a profile: `OTTLA_INTERPRETED=1`.

A module with a `.pxd` beside it is compiled where there is a C compiler (`setup.py`), and Python prefers what is
compiled. With this finder in front it does not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class Sources(MetaPathFinder):
    """Finds the modules below `ottla` in their `.py` files only."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("ottla.") or path is None:
            return None
        for directory in path:
            spec = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """For every import from now on."""
    if not any(isinstance(finder, Sources) for finder in sys.meta_path):
        sys.meta_path.insert(0, Sources())
