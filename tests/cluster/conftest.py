"""Fixtures of the conformance tests, beside the cluster that each module here starts."""

from __future__ import annotations

from tests.conformance.conftest import shell, topic

__all__ = ["shell", "topic"]
