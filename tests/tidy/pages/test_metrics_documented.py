"""`docs/reference/metrics.md` says what the table of metrics says; dashboard and alerts ask for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla import logs
from ottla.metrics.table import METRICS, Metric
from tools import metrics_page as render

ROOT = Path(__file__).resolve().parents[3]
SCRAPE_LABELS = {"job", "instance"}
"""Labels that Prometheus adds."""
WORDS = {"sum", "max", "rate", "by", "topk", "histogram_quantile", "label_values", "predict_linear", "up", "le"}


def test_the_page_is_what_the_table_renders() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert text == render.document(), "stale: run `python -m tools.metrics_page docs/reference/metrics.md`"


def test_every_logger_is_in_the_page() -> None:
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py") if path.name != "logs.py"
    )
    loggers = set(re.findall(r'getLogger\("([\w.]+)"\)', text))
    documented = set(re.findall(r"^\| `(ottla\.[a-z]+)` \| (?!`)", render.LOGS, re.MULTILINE))
    assert documented == loggers
    assert all(name in render.LOGS for name in logs.LEVELS if name != "TRACE")


def dashboard_queries() -> list[str]:
    found = json.loads((ROOT / "deploy/grafana/ottla.json").read_text())
    queries = [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]
    variables = [each["query"]["query"] for each in found["templating"]["list"] if each["type"] == "query"]
    assert len(queries) > 40 and len(variables) == 4
    return queries + variables


def alert_queries() -> list[str]:
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    queries = re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)
    assert len(queries) == text.count("- alert:") > 5
    return queries


def metric_of(name: str) -> Metric | None:
    return METRICS.get(name) or METRICS.get(re.sub("_(bucket|sum|count)$", "", name))


def mistakes(query: str) -> list[str]:
    """Metrics and labels in a query that there are not, parentheses that do not match."""
    found = []
    for opening, closing in ("()", "{}", "[]"):
        if query.count(opening) != query.count(closing):
            found.append(opening)
    labels: set[str] = set()
    bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", query)
    for name in re.findall(r"\b[a-z]\w*_\w+|\bup\b", re.sub(r"\{[^}]*\}|by \([^)]*\)", "", bare)):
        metric = metric_of(name)
        if metric is not None:
            labels |= set(metric.labels)
        elif name not in WORDS:
            found.append(name)
    matchers = " ".join(re.findall(r"\{[^}]*\}", bare))
    asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) | {
        label for inner in re.findall(r"by \(([^)]*)\)", bare) for label in re.split(r",\s*", inner)
    }
    if query.startswith("label_values"):
        asked.add(query.rstrip(")").rpartition(",")[2].strip())
    return found + sorted(asked - labels - SCRAPE_LABELS - {"le"})


@pytest.mark.parametrize("query", dashboard_queries() + alert_queries())
def test_queries_ask_for_what_there_is(query: str) -> None:
    assert mistakes(query) == []


@pytest.mark.parametrize(
    "query", ["sum(rate(made_up_total[5m]))", 'ottla_ready{topic="x"}', "sum(ottla_ready", "sum by (x) (ottla_ready)"]
)
def test_mistakes_would_be_found(query: str) -> None:
    assert mistakes(query)


def test_what_an_alert_prints_is_there() -> None:
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    known = SCRAPE_LABELS | {label for metric in METRICS.values() for label in metric.labels}
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= known


def test_panels_do_not_lie_on_each_other() -> None:
    panels: list[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/ottla.json").read_text())["panels"]
    cells = [
        (x, y)
        for each in (panel["gridPos"] for panel in panels)
        for x in range(each["x"], each["x"] + each["w"])
        for y in range(each["y"], each["y"] + each["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "name",
    [
        "kafka_server_plugins_authorization_denied_total",
        "kafka_server_socket_server_metrics_failed_authentication_total",
        "ottla_ssl_handshakes_failed_total",
        "ottla_audit_events_lost_total",
    ],
)
def test_who_is_kept_out_is_on_the_dashboard_and_in_the_alerts(name: str) -> None:
    assert any(name in query for query in dashboard_queries())
    assert name.startswith("ottla_ssl_handshakes") or any(name in query for query in alert_queries())
