"""Stands in for the `cython` module where `_records.py` runs interpreted and Cython is not installed."""

from __future__ import annotations

import contextlib

compiled = False
nogil = contextlib.nullcontext()
