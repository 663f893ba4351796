"""`python -m peers.spark`: keep Spark's classes for the tests."""

from __future__ import annotations

from peers.spark import install, is_there

if not is_there():
    print("== Spark's classes, parsed once for all tests", flush=True)
    install()
