"""The text formats are read back by Prometheus' own parsers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ottla.metrics.instruments import REQUEST_SECONDS, Histogram, NodeMetrics, TopicTraffic
from ottla.metrics.table import METRICS
from ottla.metrics.text import Exposition, labels

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
MEMBERS = "kafka_consumergroup_members"
SECONDS = "kafka_network_requestmetrics_totaltime_seconds"


def parsed(page: Exposition, openmetrics: bool) -> dict[str, Any]:
    text = b"".join(page.write(openmetrics=openmetrics)).decode()
    return {family.name: family for family in (parse_openmetrics if openmetrics else parse_text)(text)}


@pytest.mark.parametrize("openmetrics", [False, True])
def test_counters_gauges_and_histograms(openmetrics: bool) -> None:
    page = Exposition()
    histogram = Histogram(REQUEST_SECONDS)
    histogram.add(0.0001)
    histogram.add(0.0003, 4)
    histogram.add(99.0)
    page.add_histogram(SECONDS, histogram, request="Produce")
    page.add(MEMBERS, 3, labels(consumergroup="g"))
    page.add(BYTES_IN, 17)
    found = parsed(page, openmetrics)
    counter = found[BYTES_IN.removesuffix("_total")]
    assert (counter.type, counter.samples[0].value) == ("counter", 17)
    assert (found[MEMBERS].type, found[MEMBERS].samples[0].labels) == ("gauge", {"consumergroup": "g"})
    assert found[SECONDS].type == "histogram"
    values = {(each.name, each.labels.get("le")): each.value for each in found[SECONDS].samples}
    assert values[f"{SECONDS}_bucket", "0.0001"] == 1
    assert values[f"{SECONDS}_bucket", "0.00025"] == 1
    assert values[f"{SECONDS}_bucket", "0.0005"] == 5
    assert values[f"{SECONDS}_bucket", "30.0"] == 5
    assert values[f"{SECONDS}_bucket", "+Inf"] == values[f"{SECONDS}_count", None] == 6
    assert values[f"{SECONDS}_sum", None] == pytest.approx(99.0013)


@pytest.mark.parametrize("openmetrics", [False, True])
@given(st.lists(st.text(), min_size=1, max_size=4, unique=True))
def test_any_name_of_a_group_comes_back(openmetrics: bool, names: list[str]) -> None:
    page = Exposition()
    for name in names:
        page.add(MEMBERS, 1, labels(consumergroup=name))
    found = parsed(page, openmetrics)
    assert [each.labels["consumergroup"] for each in found[MEMBERS].samples] == names


def test_half_a_character_does_not_spoil_the_answer() -> None:
    assert labels(consumergroup="a\ud800") == '{consumergroup="a?"}'


def test_only_metrics_of_the_table() -> None:
    with pytest.raises(KeyError):
        Exposition().add("made_up", 1)


def test_names_and_labels_are_legal_and_distinct() -> None:
    for metric in METRICS.values():
        assert metric.name.isidentifier() and metric.name.isascii()
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric.name
        assert metric.doc.endswith(".") and "\n" not in metric.doc
    assert len(METRICS) > 60


def test_totals_survive_the_topics_they_came_from() -> None:
    metrics = NodeMetrics()
    metrics.topic("a").bytes_in += 5
    metrics.topic("a").messages_in += 1
    metrics.remove_topic("a")
    metrics.remove_topic("never was")
    assert metrics.topics == {}
    assert (metrics.deleted_topics.bytes_in, metrics.deleted_topics.messages_in) == (5, 1)
    both = TopicTraffic()
    both.add(metrics.deleted_topics)
    both.add(metrics.deleted_topics)
    assert both.bytes_in == 10


@pytest.mark.parametrize("openmetrics", [False, True])
def test_what_there_is_no_value_of(openmetrics: bool) -> None:
    page = Exposition()
    page.add(MEMBERS, float("nan"), labels(consumergroup="g"))
    assert b'kafka_consumergroup_members{consumergroup="g"} NaN\n' in b"".join(page.write(openmetrics=openmetrics))
    assert math.isnan(parsed(page, openmetrics)[MEMBERS].samples[0].value)
