"""What the renderers of pages share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_page(text: str, arguments: Sequence[str]) -> None:
    """Write a page to the file that `arguments` name, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
