"""`python -m ottla.console OPTIONS`: a console that ends with whoever started it (`registry/child.py`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.client.security import Security
from ottla.console.server import Console, Options, registry_options
from ottla.registry.child import Served, main

NICENESS: Final = 19
"""Beside a node the console gets the processor that the node leaves."""


def _run(
    options: Mapping[str, Any], security: Security, http: Mapping[str, str], serving: Callable[[Served], None]
) -> None:
    """Raises OttlaError."""
    os.nice(NICENESS)
    url = options.get("registry")
    given = {name: value for name, value in options.items() if name != "registry"}
    registry = {} if not url else registry_options(url, security)
    console = Console(Options(**given, registry=registry, security=security, http=http, yields=True))
    console.serve(lambda: serving(console))


if __name__ == "__main__":
    sys.exit(main("console", sys.argv[1:], _run))
