"""Metrics of sources, out of what a progress has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.spark.metrics import source_metrics

END = json.dumps({"t": {"0": 5, "1": 7}, "t#AAAAAAAAAAAAAAAAAAAAAQ": {}})


@pytest.mark.parametrize(
    ("end", "latest", "found"),
    [
        (END, json.dumps({"t": {"0": 9, "1": 8, "2": 4}}), ("1", "4", "2.5")),
        (END, {"t": {"0": 5, "1": 7}}, ("0", "0", "0.0")),
        (END, None, ()),
        (None, END, ()),
        ("17", "19", ()),
        ('{"logOffset": 3}', '{"logOffset": 4}', ()),
        ("not json", "{}", ()),
    ],
)
def test_how_far_sources_are_behind(end: Any, latest: Any, found: tuple[str, ...]) -> None:
    names = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")
    progress = {"sources": [{"endOffset": end, "latestOffset": latest}]}
    assert source_metrics(progress) == [dict(zip(names, found, strict=False))]
