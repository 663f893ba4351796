"""Ctrl-C beside librdkafka: raised in one of its callbacks, it would break the call that the callback belongs to."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class CtrlC:
    """While entered, Ctrl-C raises KeyboardInterrupt as always, but within `call` only when the call has returned.

    For the main thread.
    """

    def __init__(self) -> None:
        self._waits = False
        self._came = False
        self._before: Any = None

    def __enter__(self) -> CtrlC:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, *_: object) -> None:
        if not self._waits:
            raise KeyboardInterrupt
        self._came = True

    def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns. It should not take long."""
        self._waits = True
        try:
            result = work(*arguments)
        finally:
            self._waits = False
        if self._came:
            self._came = False
            raise KeyboardInterrupt
        return result
