"""One line on standard error that is written over as work goes on; nothing where that is no terminal."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType

_CLEAR = "\r\x1b[K"


class StatusLine:
    """A status line as a context manager: it is cleared at the end."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._shown:
            width = shutil.get_terminal_size((80, 24)).columns
            sys.stderr.write(_CLEAR + text[: max(10, width - 1)])
            sys.stderr.flush()

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show("")
