"""Tasks of a user, walked in Chromium beside a node, by keyboard alone and by mouse: some in each run, all by night.

Other tests see that pages are there; these, that somebody gets from one to the next, and in how many steps.
OTTLA_TEST_TASKS=FILE keeps what each took, which `tasks_page.py` writes down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.console.app import Application
from ottla.console.asking import Site
from ottla.console.masks import Masks
from ottla.console.server import Options
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker, Registry
from tests.conformance.console.demo_cluster import DemoBrokers
from tests.conformance.console.tasks import TASKS, Task
from tests.conformance.console.tasks_page import page as with_tasks
from tests.conformance.console.tasks_page import seconds_in
from tests.conformance.console.test_console_browser import Served, opened, running
from tests.conformance.console.test_console_browser import browser as browser
from tests.conformance.console.test_console_node import console
from tests.conformance.console.walking import Keys, Mouse, Walked, walk
from tests.conformance.pair import Wire
from tests.unit.console.fake_cluster import user
from tests.unit.server.node import batch, produce_values

WAYS = ("keys", "mouse")
SETTINGS = {
    "transaction.partition.verification.enable": "false",  # else no transaction could hang
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
IN_EACH_RUN = (
    "See what needs attention after a broker died", "Move a group's offsets, with a preview",
    "Find a record by its key and copy it to another topic", "Watch new records with a filter", "Delete a topic",
    "Find a hanging transaction and end it", "See why a user was denied", "Compare two versions of a schema",
)  # fmt: skip
"""By keyboard: each kind of step and of page. The rest has the same ones."""
NIGHTLY = pytest.mark.nightly("tests/conformance/console/test_console_tasks.py::test_by_keyboard_alone")
TIMES = os.environ.get("OTTLA_TEST_TASKS")
DOCS = Path(__file__).parents[3] / "docs" / "console.md"


class Place:
    """A node with what the tasks are about, and its console."""

    def __init__(self, stack: ExitStack) -> None:
        topics = {
            f"{name}-{way}": 1
            for name in ("orders", "copies", "grown", "emptied", "old", "hung", "open")
            for way in WAYS
        }
        kept = {f"kept-{way}": {"partitions": 1, "retention_ms": 86_400_000} for way in WAYS}
        self.broker = stack.enter_context(Broker(settings=SETTINGS, topics={**topics, **kept}))
        registry = stack.enter_context(Registry(self.broker.bootstrap))
        self._stack = stack
        for way in WAYS:
            self._fill(way)
            self._schemas(registry.url, way)
        options = Options(self.broker.bootstrap, port=0, registry={"schema.registry.url": registry.url})
        self.console = stack.enter_context(console(options))
        for way in WAYS:
            self._secure(way)
        server = Served(Application(Site(Masks()), anonymous=user(DemoBrokers())))
        stack.enter_context(running(server))
        self.urls = {"node": str(self.console.base_url), "memory": server.url}

    def _fill(self, way: str) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True})
        for topic in ("orders", "emptied"):
            for number in range(40):
                value = "1 read by nobody yet" if number == 5 else f'{{"number": {number}}}'
                producer.produce(f"{topic}-{way}", value, key=f"customer-{number % 10}")
        producer.flush()
        cluster = Cluster(ClientConfig((self.broker.bootstrap,)))
        for group in ("lagging", "waiting", "gone"):
            cluster.commit_offsets(f"{group}-{way}", {TopicPartition(f"orders-{way}", 0): 5})
        cluster.close()
        stuck = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": f"stuck-{way}",
                "transaction.timeout.ms": 600_000,
            }
        )
        stuck.init_transactions()
        stuck.begin_transaction()
        stuck.produce(f"open-{way}", "open")
        stuck.flush()
        self._stack.callback(stuck.purge)
        wire = Wire(self.broker.bootstrap)
        given = wire.ask(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None, "transaction_timeout": 1_000})
        ghost = {"producer_id": given["producer_id"], "producer_epoch": 0, "base_sequence": 0}
        values = produce_values(f"hung-{way}", batch(transactional=True, **ghost))
        wire.ask(ApiKey.PRODUCE, 9, {**values, "transactional_id": f"ghost-{way}"})

    @staticmethod
    def _schemas(url: str, way: str) -> None:
        for fields in (["id"], ["id", "total"]):
            rows = [{"name": each, "type": "int", "default": 0} for each in fields]
            schema = json.dumps({"type": "record", "name": "Order", "fields": rows})
            httpx.post(f"{url}/subjects/orders-{way}-value/versions", json={"schema": schema}).raise_for_status()

    def _secure(self, way: str) -> None:
        for act, values in (
            ("set-password", {"user": f"leaver-{way}", "password": "a-long-password"}),
            (
                "create-acl",
                {
                    "principal": "User:alice",
                    "permission": "deny",
                    "operation": "read",
                    "kind": "topic",
                    "name": f"kept-{way}",
                },
            ),
        ):
            answer = self.console.post(f"/api/v1/acts/{act}", json=values)
            assert answer.status_code == 200, answer.text

    def write(self, topic: str, key: str) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        producer.produce(topic, "new", key=key)
        producer.flush()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


@pytest.fixture(scope="module")
def keep(request: pytest.FixtureRequest) -> Iterator[Callable[[Task, Walked], None]]:
    times: dict[str, dict[str, float]] = {}

    def kept(task: Task, walked: Walked) -> None:
        print(f"{task.name}: {walked.steps} steps, {walked.seconds:.1f} s")
        times[task.name] = {"steps": walked.steps, "seconds": round(walked.seconds, 1)}

    yield kept
    if TIMES:
        Path(TIMES).write_text(json.dumps(times, indent=1) + "\n")


def test_the_tasks_in_the_docs_are_these() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert with_tasks(text, seconds_in(text)) == text
    assert all(float(each) > 0 for each in seconds_in(text).values())
    names = [each.name for each in TASKS]
    assert len(names) >= 25
    assert set(IN_EACH_RUN) < set(names)
    assert len(set(names)) == len(names)
    for task in TASKS:
        assert 1 <= task.count <= 12, task.name


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One for all tasks: each begins with a page of its own."""
    page = opened(browser, "")
    page.set_viewport_size({"width": 1200, "height": 800})
    yield page
    page.context.close()


@pytest.mark.parametrize(
    "task",
    [pytest.param(each, id=each.name, marks=() if each.name in IN_EACH_RUN else NIGHTLY) for each in TASKS],
)
def test_by_keyboard_alone(tab: Page, place: Place, task: Task) -> None:
    walk(tab, place.urls[task.site], task, "keys", Keys(tab), place.write)


@NIGHTLY
@pytest.mark.parametrize("task", TASKS, ids=[each.name for each in TASKS])
def test_by_mouse(tab: Page, place: Place, task: Task, keep: Callable[[Task, Walked], None]) -> None:
    keep(task, walk(tab, place.urls[task.site], task, "mouse", Mouse(), place.write))
