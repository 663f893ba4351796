"""Stands in for the `cython` module where a module that is compiled elsewhere runs and Cython is not installed."""

from __future__ import annotations

import contextlib

compiled = False
nogil = contextlib.nullcontext()
