"""Errors in a schema or in the options of typed keys and values. Needs no pyarrow."""

from __future__ import annotations


class SchemaError(ValueError):
    """A schema that cannot be read, or that has no Arrow type."""
