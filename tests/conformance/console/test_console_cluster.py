"""The console beside three nodes of Ottla, one of which is stopped (SIGSTOP) and then killed."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx
from confluent_kafka import Producer

from ottla.console.routes import API
from ottla.console.server import Options
from ottla.testing import Cluster
from tests.conformance.console.test_console_node import console, reading

PAGE_S: Final = 3.0
"""Two seconds, and what a busy machine adds; it was up to 15."""
LIMIT_S: Final = 60.0
PAGES: Final = {"/": "/overview", "/topics": "/topics", "/topics/orders": "/topics/orders", "/groups": "/groups",
                "/moves": "/moves"}  # fmt: skip
"""Pages and their paths of the API."""


def asked(site: httpx.Client) -> dict[str, Any]:
    """The JSON of each page; the page itself is there too, whole and in time."""
    found = {}
    for page, path in PAGES.items():
        for each in (page, API + path):
            began = time.monotonic()
            answer = site.get(each)
            assert time.monotonic() - began < PAGE_S, each
            assert answer.status_code == 200, answer.text
        found[page] = answer.json()
        assert site.get(page).text.rstrip().endswith("</html>")
    return found


def test_pages_while_a_node_is_stopped_and_after_it_died() -> None:
    with Cluster(3, topics={"orders": 6}, group_initial_rebalance_delay_ms=0) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(60):
            producer.produce("orders", f"order {number}", partition=number % 6)
        producer.flush()
        with reading(cluster.bootstrap, "mailer", "classic"):
            pass  # has committed, and is empty
        with console(Options(cluster.bootstrap, port=0)) as site:
            before = asked(site)
            assert all(each["problems"] == {} for each in before.values()), before
            assert before["/topics/orders"]["data"]["records"] == "60"

            ill = next(row["leader"] for row in before["/topics/orders"]["data"]["partitions"])
            cluster.pause(ill)
            _names_the_stopped_one(site, ill)
            cluster.kill(ill)
            _until_it_is_away(site, ill)
            _shows_that_it_died(asked(site), ill)


def _names_the_stopped_one(site: httpx.Client, ill: int) -> None:
    """As long as the controller has not noticed, it is a leader still, and its part is missing."""
    told = asked(site)["/topics/orders"]
    overview = asked(site)["/"]["data"]
    assert _attention(overview) == [str(ill)]
    assert "2 brokers are up" in overview["health"]
    if any(row["leader"] == ill for row in told["data"]["partitions"]):  # the controller was not quicker
        assert f"node {ill}: " in told["problems"]["offsets"]["sentence"], told["problems"]
        ends = [(row["leader"] == ill, row["end"]) for row in told["data"]["partitions"]]
        assert set(ends) == {(True, None), (False, "10")}


def _attention(overview: dict[str, Any]) -> list[str]:
    return [each["name"] for each in overview["attention"] if each["kind"] == "node"]


def _until_it_is_away(site: httpx.Client, ill: int) -> None:
    until = time.monotonic() + LIMIT_S
    while True:
        topic = site.get(f"{API}/topics/orders").json()["data"]
        led = {row["leader"] for row in topic["partitions"]}
        overview = site.get(f"{API}/overview").json()["data"]  # of some seconds ago
        is_led = ill not in led and None not in led and topic["records"] == "60"
        if is_led and _attention(overview) == [str(ill)] and "2 brokers are up" in overview["health"]:
            return
        assert time.monotonic() < until, (topic, overview)


def _shows_that_it_died(found: dict[str, Any], ill: int) -> None:
    overview = found["/"]["data"]
    assert overview["level"] == "warn"
    assert "2 brokers are up" in overview["health"]
    assert _attention(overview) == [str(ill)]
    (row,) = found["/topics"]["data"]["rows"]
    assert (row["name"], row["records"], row["under_replicated"]) == ("orders", "60", 6)
    assert [each["missing"] for each in found["/topics/orders"]["data"]["partitions"]] == [[ill]] * 6
    assert [each["name"] for each in found["/groups"]["data"]["rows"]] == ["mailer"]
    assert found["/groups"]["data"]["rows"][0]["lag"] == "9"
    assert found["/moves"]["data"]["rows"] == []
    # It is listed for 15 minutes, and asked for its part.
    sentences = [problem["sentence"] for each in found.values() for problem in each["problems"].values()]
    assert all(f"node {ill}: " in each for each in sentences), sentences
