"""`python -m ottla.registry OPTIONS`: an instance that ends with whoever started it (`child.py`)."""

from __future__ import annotations

import sys

from ottla.registry.child import main
from ottla.registry.server import Options, run

if __name__ == "__main__":
    sys.exit(
        main(
            "schema registry",
            sys.argv[1:],
            lambda options, security, http, serving: run(Options(**options, security=security, http=http), serving),
        )
    )
