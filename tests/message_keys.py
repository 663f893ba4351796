"""What a test has sent must be known: the encoder leaves out keys of a mapping that the message does not have, so that
a name spelled wrong is a default at the other end. Types find most of it (`protocol/schemas/sent.pyi`); what has none,
as the requests of tests, is looked at here, in each process that tests run in.

Of long arrays the first and the last row are looked at, and rows that are made when they are encoded not at all. Tests
in other folders than `tests/unit` send what they like: many ask two servers whether both take it alike.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

from ottla.protocol import group_responses, messages
from ottla.protocol.layout import Layout
from ottla.protocol.writer import Writer, write_struct

USUAL_ERROR: Final = frozenset({"error_code", "error_message"})
"""`api.top_level_error` gives both to any response."""

_unknown: set[str] = set()


class CheckedWriter:
    """A writer that notes keys which are no field of any version; the compiled class can have no subclass."""

    def __init__(self, head: bytes = b"") -> None:
        self._writer = Writer(head)

    def steps(self, layout: Layout, values: Any) -> Generator[int, None, None]:
        look(layout, values, USUAL_ERROR)
        return self._writer.steps(layout, values)

    def done(self) -> bytes:
        return self._writer.done()


def checked_write_struct(layout: Layout, values: Any, head: bytes = b"") -> bytes:
    look(layout, values, USUAL_ERROR)
    return write_struct(layout, values, head)


def look(layout: Layout, values: Any, passed: frozenset[str] = frozenset()) -> None:
    """Note the keys of `values` that are neither fields nor `passed`."""
    if not isinstance(values, Mapping):
        return
    fields = {field.name: field for field in (*layout.fields, *layout.tagged, *layout.absent)}
    _unknown.update(f"{layout.cls.__name__}.{name}" for name in values if name not in fields and name not in passed)
    for name, value in values.items():
        field = fields.get(name)
        if field is None or field.layout is None:
            continue
        if isinstance(value, list | tuple):
            for row in (value[0], value[-1]) if value else ():
                look(field.layout, row)
        else:
            look(field.layout, value)


def pytest_configure() -> None:
    messages.Writer = CheckedWriter  # type: ignore[assignment,misc]
    messages.write_struct = group_responses.write_struct = checked_write_struct


def taken() -> set[str]:
    """What was noted since the last call."""
    found = set(_unknown)
    _unknown.clear()
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    _unknown.clear()
    result = yield
    found = taken()
    if found and "unit" in item.path.parts and item.get_closest_marker("shared_values") is None:
        pytest.fail(f"no message has these fields, so they were not sent: {', '.join(sorted(found))}")
    return result
