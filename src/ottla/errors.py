"""Kafka's error codes, and the one exception that carries them to a response."""

from __future__ import annotations

import sys


def _without_hypothesis() -> None:
    """Import kio without hypothesis: kio registers test strategies whenever it finds it, which costs half a second."""
    if "hypothesis" in sys.modules:
        import kio.schema.errors
    else:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
        try:
            import kio.schema.errors
            import kio.serial  # noqa: F401
        finally:
            del sys.modules["hypothesis"]


_without_hypothesis()

from kio.schema.errors import ErrorCode  # noqa: E402

__all__ = ["ErrorCode", "KafkaError", "MissingOffsets", "OttlaError"]


class OttlaError(Exception):
    """An error of the operator's (a setting, a directory, a port): one sentence that says what to do."""


class KafkaError(Exception):
    """An error that a client sees: a code of the protocol and, where the response has room for it, a sentence."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message


class MissingOffsets(KafkaError):
    """INVALID_RECORD: a leader sent batches with a gap before them, which only a log that was compacted has."""
