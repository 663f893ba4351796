"""The error of a pipeline, and the values that its settings may have."""

from __future__ import annotations

Value = str | int | float | bool


class PipelineError(ValueError):
    """A pipeline that cannot run as it is written or set; the text says what to change."""
