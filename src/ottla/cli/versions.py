"""What `ottla --version` prints: without the rest of the command line, which takes half a second to load."""

from __future__ import annotations


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    from ottla.compiled import how

    try:
        return f"ottla {of('ottla')} ({how()})"
    except PackageNotFoundError:
        return f"ottla (not installed, {how()})"
