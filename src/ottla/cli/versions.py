"""The output of `ottla --version`, without the rest of the command line, which takes half a second to load."""

from __future__ import annotations


def version() -> str:
    from ottla.compiled import how
    from ottla.version import VERSION

    return f"ottla {VERSION} ({how()})"
