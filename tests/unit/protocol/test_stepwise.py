"""What is encoded in steps is the same as in one piece, and no step is long: not with one long row either."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.handlers import TABLE
from ottla.steps import at_once
from tests import kio_oracle
from tests.unit.server.counting import filled, kinds

CALLS_MAX = 6_000
"""Calls in one step, a millisecond: 250 strings. With 3,000 numbers, which take three calls each, it was more."""


def long_scalars(cls: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays of numbers, strings and ids."""
    from kio.serial._introspect import EntityField, EntityTupleField

    for field, kind in kinds(cls):
        here = (*path, field.name)
        if isinstance(kind, EntityField | EntityTupleField):
            yield from long_scalars(kind.type_, here)
        elif kind.is_array and "tag" not in field.metadata:
            yield here


def most_calls(steps: messages.Steps) -> tuple[Any, int]:
    """The result, and the calls of the step that made most."""
    calls = most = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    while True:
        calls = 0
        sys.setprofile(count)
        try:
            next(steps)
        except StopIteration as end:
            return end.value, max(most, calls)
        finally:
            sys.setprofile(None)
            most = max(most, calls)


@pytest.mark.parametrize("is_request", [True, False], ids=["requests", "responses"])
def test_long_arrays_of_scalars_are_encoded_in_steps(is_request: bool) -> None:
    walked = 0
    for key in sorted(TABLE):
        version = TABLE[key].max_version
        cls = kio_oracle.request_class(key, version) if is_request else kio_oracle.response_class(key, version)
        for path in long_scalars(cls):
            values = filled(cls, path, True)
            client = ("c",) if is_request else ()
            encode = messages.encode_request_in_steps if is_request else messages.encode_response_in_steps
            in_steps = partial(encode, key, version, 1)
            whole = partial(messages.encode_request if is_request else messages.encode_response, key, version, 1)
            assert at_once(in_steps(*client, values)) == whole(*client, values), (ApiKey(key).name, path)
            _, most = most_calls(in_steps(*client, values))
            assert most < CALLS_MAX, (ApiKey(key).name, path, most)
            walked += 1
    assert walked > 15, walked
