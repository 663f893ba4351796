"""The topics that a statement names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


class Ambiguous(ValueError):
    """Two topics whose names SQL takes for one."""


def named(duckdb: Any, database: Any, statement: str, topics: Sequence[str]) -> list[tuple[str, str]]:
    """(name, topic) for the topics that the statement names. Others may be files, or tables of DuckDB's own. Raises
    Ambiguous, DuckDB's ParserException."""
    try:
        names: Iterable[str] = sorted(database.get_table_names(statement))
    except duckdb.ParserException:
        raise
    except duckdb.Error:  # it takes one SELECT only, no PIVOT, and no join with USING
        words = {word.lower() for word in re.findall(r"[A-Za-z0-9._-]+|\w+", statement)}
        names = [topic for topic in topics if topic.lower() in words]
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        # SQL's names have no case.
        alike = [name] if name in topics else [each for each in topics if each.lower() == name.lower()]
        if len(alike) > 1 or (alike and found.get(name.lower(), (name, alike[0]))[1] != alike[0]):
            raise Ambiguous(f"SQL cannot distinguish topics whose names differ only in case: {name}")
        if alike:
            found[name.lower()] = (name, alike[0])
    return list(found.values())
