"""Pages of docs/production name what is there: the alerts of deploy/, settings that a node accepts, and metrics."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.config import definitions
from ottla.config.properties import parse_properties
from ottla.config.server import ServerConfig
from ottla.metrics import table
from ottla.server.listeners.exposure import refuse_open_ports

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs" / "production"


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_every_alert_has_its_procedure() -> None:
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    assert set(re.findall(r"`(Ottla[A-Z]\w+)`", page("monitoring"))) == set(alerts)
    assert len(alerts) > 10


def test_the_settings_file_is_one_that_a_node_accepts() -> None:
    (text,) = re.findall(r"^```properties\n(.*?)^```", page("settings"), re.MULTILINE | re.DOTALL)
    config = ServerConfig.load(None, parse_properties(text), {}, lambda: "host")
    assert config.node_id in config.quorum_voters and len(config.quorum_voters) == 3
    assert config.is_broker and config.is_controller
    assert config["min.insync.replicas"] == 2
    refuse_open_ports(config)
    assert [name for name in parse_properties(text) if name not in definitions.BROKER] == []


def test_settings_and_metrics_that_the_pages_name_exist() -> None:
    known = {*definitions.BROKER, *definitions.TOPIC, *definitions.THROTTLES, *definitions.GROUP}
    metrics = set(re.findall(r'"((?:ottla|kafka)_\w+)"', Path(table.__file__).read_text(encoding="utf-8")))
    checked = 0
    for path in PAGES.glob("*.md"):
        text = re.sub(r"^( *)```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for name, _ in re.findall(r"`([a-z]+(?:\.[a-z]+){2,})(=[^`]*)?`", text):
            checked += 1
            assert name in known or name.startswith(("listener.name.", "log4j")), f"{path.name}: {name}"
        for name in re.findall(r"`(ottla_[a-z_]+)`", text):
            assert name in metrics, f"{path.name}: {name}"
    assert checked > 30
