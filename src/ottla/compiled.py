"""Whether this Ottla runs compiled: the modules with a `.pxd` beside them, which `setup.py` compiles.

Found without importing them, so that `ottla --version` stays quick.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def how(package: str = _PACKAGE) -> str:
    """ "compiled", "interpreted", or how many of the modules are compiled where it is a part.

    `OTTLA_INTERPRETED` counts, as `interpreted.py` has it.
    """
    suffix = EXTENSION_SUFFIXES[0]
    modules = there = 0
    for _, directories, names in os.walk(package):
        directories[:] = [each for each in directories if each != "__pycache__"]
        present = set(names)
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind == "pxd" and f"{stem}.py" in present:
                modules += 1
                there += stem + suffix in present
    if not there or "ottla.interpreted" in sys.modules:
        return "interpreted"
    return "compiled" if there == modules else f"{there} of {modules} modules compiled"
