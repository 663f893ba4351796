"""Stands in for the `cython` module where a module that is compiled elsewhere runs and Cython is not installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

compiled = False
nogil = contextlib.nullcontext()


def locals(**types: Any) -> Callable[[T], T]:
    """A decorator that leaves a function as it is."""
    return lambda function: function
