"""`python -m ottla.console OPTIONS`: a console that ends with whoever started it (`registry/child.py`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ottla.client.security import Security
from ottla.console.server import Console, Options, registry_options
from ottla.registry.child import Served, main

_PATHS: Final = ("masks", "roles", "oidc", "pipelines")
_TUPLES: Final = ("host_names", "log_dirs")
NICENESS: Final = 19
"""Beside a node the console gets the processor that the node leaves."""


def _run(
    options: Mapping[str, Any], security: Security, http: Mapping[str, str], serving: Callable[[Served], None]
) -> None:
    """Raises OttlaError."""
    os.nice(NICENESS)
    console = Console(options_of(options, security, http))
    console.serve(lambda: serving(console))


def options_of(given: Mapping[str, Any], security: Security, http: Mapping[str, str]) -> Options:
    """The options of a console that were sent as JSON. Raises OttlaError."""
    url = given.get("registry")
    known = {name: value for name, value in given.items() if name not in (*_PATHS, *_TUPLES, "registry")}
    known |= {name: Path(given[name]) for name in _PATHS if given.get(name) is not None}
    known |= {name: tuple(given.get(name, ())) for name in _TUPLES}
    return Options(
        **known,
        security=security,
        http=http,
        registry={} if not url else registry_options(url, security),
    )


if __name__ == "__main__":
    sys.exit(main("console", sys.argv[1:], _run, needs_login=False))
