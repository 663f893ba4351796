"""What is judged of a sample of JSON can read that sample."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ottla.formats.inference import DEPTH_MAX, type_of_json
from ottla.formats.json_values import JsonValues
from ottla.formats.nested import Bad


@pytest.mark.parametrize(
    ("sample", "kind"),
    [
        ([1, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**63], pa.float64()),
        ([True, None], pa.bool_()),
        ([True, 1], pa.string()),
        (["a", {"b": 1}], pa.string()),
        ([[], None], pa.list_(pa.string())),
        ([[1], [None, 1.5]], pa.list_(pa.float64())),
        ([None], pa.string()),
        ([{}], pa.string()),
        ([{"a": 1}, {"b": None}, {"a": 1.5}], pa.struct([("a", pa.float64()), ("b", pa.string())])),
        (
            [{"a": {"x": [{"y": 1}]}}, {"a": None}],
            pa.struct([("a", pa.struct([("x", pa.list_(pa.struct([("y", pa.int64())])))]))]),
        ),
    ],
)
def test_the_narrowest_type_that_all_have(sample: list[object], kind: pa.DataType) -> None:
    values = [json.dumps(each).encode() for each in sample]
    assert type_of_json([*values, None, b"{", b"\xff"]) == kind
    bad = Bad()
    column = JsonValues(kind).decode(list(values), bad)
    assert (len(column), bad.reasons) == (len(sample), {})


def test_what_is_too_deep_is_text() -> None:
    found = type_of_json([b"[" * (DEPTH_MAX + 5) + b"1" + b"]" * (DEPTH_MAX + 5)])
    for _ in range(DEPTH_MAX):
        found = found.value_type
    assert found == pa.string()
    assert type_of_json([b"[" * 100_000 + b"]" * 100_000]) == pa.string()
