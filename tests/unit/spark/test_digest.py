"""A digest of rows: the same however they are cut into batches, another for any other rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.digest import Digest

FIELDS = pa.schema([
    ("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("timestamp", pa.timestamp("us", "UTC")),
])  # fmt: skip

headers = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries({"key": st.sampled_from("ab"), "value": st.sampled_from([None, b"", b"x"])}), max_size=2
    ),
)
rows = st.lists(
    st.fixed_dictionaries({
        "key": st.sampled_from([None, "", "a", "ab", "b"]), "value": st.sampled_from([None, b"", b"b", b"c", b"bc"]),
        "partition": st.sampled_from([None, 0, 1]), "headers": headers, "timestamp": st.sampled_from([None, 0, 1]),
    }), max_size=6,
)  # fmt: skip


def digest(rows: list[dict[str, Any]], cuts: list[int]) -> str:
    """Slices of one batch, as offsets into Arrow's memory are where mistakes are made."""
    whole = pa.RecordBatch.from_pylist(rows, schema=FIELDS)
    made = Digest()
    at = 0
    for cut in [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]:
        made.add(whole.slice(at, cut - at))
        at = cut
    assert made.rows == len(rows)
    return made.text()


@given(rows, st.lists(st.integers(0, 6), max_size=4))
def test_batches_make_no_difference(rows: list[dict[str, Any]], cuts: list[int]) -> None:
    assert digest(rows, cuts) == digest(rows, [])


@given(rows, rows)
def test_other_rows_have_another(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    assert (digest(first, []) == digest(second, [])) is (first == second)
