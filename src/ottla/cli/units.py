"""Prose as wide as the terminal, and the words of `ottla.config.units`."""

from __future__ import annotations

from ottla.config.units import duration as duration
from ottla.config.units import long_time as long_time
from ottla.config.units import size as size


def print_wrapped(head: str, text: str) -> None:
    """Prose after a heading, as wide as the terminal and no wider than reads well."""
    import shutil
    import textwrap

    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    indent = " " * len(head)
    print(
        textwrap.fill(
            text, width, initial_indent=head, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    )
