"""CRC-32C, the checksum of Kafka's batches, by the package `crc32c`.

At its import that package asks which release of it is installed, and for that Python loads what reads archives, tables
and e-mail: a tenth of what a node does to start. So its compiled module is loaded by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

from ottla.model import Buffer


def _load() -> Callable[[Buffer], int]:
    package = find_spec("crc32c")
    compiled = PathFinder.find_spec("_crc32c", package.submodule_search_locations or [] if package else [])
    if compiled is None or compiled.loader is None:  # a release that is built otherwise
        import crc32c as whole

        return whole.crc32c
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c = _load()
