"""The console in Chromium: nothing that the content policy forbids, no page wider than a phone, keyboard, no script.

Only a browser lays pages out and obeys the policy. The cluster is in memory. OTTLA_TEST_PICTURES=DIRECTORY keeps a
picture of every page in both themes, to look at; those in DOCUMENTED are copied to docs by hand.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from ottla.client.config import ClientConfig
from ottla.console.access.roles import Identity
from ottla.console.acts.act import Act
from ottla.console.acts.table import ACTS
from ottla.console.app import Application
from ottla.console.asking import Site, User
from ottla.console.masks import Masks
from ottla.console.routes import PAGES as ROUTES
from ottla.console.sessions import Sessions
from ottla.pipelines.runner.state import Directory, QueryStatus, Status
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, iterate_records
from ottla.sql import queries
from ottla.sql.queries import Answer, Column
from tests.conformance.clients import build
from tests.conformance.console import pictures
from tests.conformance.console.demo_cluster import DemoBrokers
from tests.unit.console.acting import ChangingRegistry
from tests.unit.console.fake_changes import GOOD, ChangingBrokers
from tests.unit.console.fake_cluster import NOW_MS, FakeBrokers, user
from tests.unit.console.test_server import SASL, Guarding

PICTURES = os.environ.get("OTTLA_TEST_PICTURES")
PAGES = {
    "overview": "/", "topics": "/topics?sort=lag&order=desc", "topic": "/topics/orders",
    "messages": "/topics/orders/messages?partition=0&limit=20", "groups": "/groups", "group": "/groups/mailer",
    "share": "/groups/warehouse", "transactions": "/transactions", "security": "/security", "broker": "/brokers/1",
    "tail": "/topics/orders/tail", "by id": "/group?group=mailer", "hanging": "/hanging?older=0",
    "rights": "/rights?user=alice&name=orders", "sql": "/sql", "result": "/sql?sql=from+orders",
    "points": "/sql?sql=from+orders&plot=points&x=total&y=n", "pipelines": "/pipelines", "mirror": "/mirror",
    "settings": "/settings?show=all", "moves": "/moves", "none": "/topics/none", "empty": "/topics?q=nothing",
    "audit": "/audit", "subjects": "/schemas", "subject": "/schemas/s",
}  # fmt: skip
DOCUMENTED = {
    "console.png": ("light", PAGES["topics"], 1000),
    "console-messages.png": ("dark", "/topics/orders/messages?partition=0&q=A-41", 1000),
    "console-phone.png": ("light", PAGES["overview"], 320),
}
"""The pictures of docs/console.md: theme, page and width."""
WIDTHS = (320, 1200)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LIGHT = THEMES if PICTURES else THEMES[:1]
"""For what no colour changes: where things are, and what the policy forbids."""
DARK = THEMES if PICTURES else THEMES[1:]
"""For paper: a colour that printing leaves as it is on the screen is bright in the dark theme only."""
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe that look at colours."""


def test_every_page_is_among_those_that_are_walked() -> None:
    """By the table of routes, so that a new page cannot be forgotten."""
    paths = [each.partition("?")[0] for each in PAGES.values()]
    for page in ROUTES:
        pattern = re.sub(r"\{[^}]*\}", "[^/]+", page.path)
        assert any(re.fullmatch(pattern, path) for path in paths), page.name


class Served(uvicorn.Server):
    def __init__(self, application: Application) -> None:
        super().__init__(uvicorn.Config(application.asgi(), port=0, log_config=None, lifespan="off"))
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"


@contextmanager
def running(server: Served) -> Iterator[None]:
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.ready.wait(60)
    yield
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("pipelines")
    runs = Directory(directory, "totals")
    runs.path.mkdir()
    query = QueryStatus("totals", 1_204_118, 311, 5_120.0, 1.2, lag_records=40, lag_s=0.8, state_rows=12_000)
    runs.write(Status("totals", "running", 1, "2026-11-28T09:00:00Z", bootstrap="kafka-1:9092", queries=[query]))
    columns = [
        Column("customer", "string", "text"),
        Column("total", "double", "number"),
        Column("n", "int64", "number"),
    ]
    rows: list[list[str | None]] = [[f"customer-{number}", f"{12.5 * number}", str(40 - number)] for number in range(9)]
    site = Site(Masks(), ChangingRegistry(), registry_url="http://127.0.0.1:8081", pipelines=directory)
    ann = Identity("ann", "corp", "https://login.example.com 17")
    site.trail.note("login", ann, "accepted", client="127.0.0.1", roles="support")
    site.trail.note("records read", ann, "read", topic="orders", ranges="0:80-100", shown=20, masked=True)
    site.trail.note("act", Identity(None), "refused", act="delete-topic", parameters="topic='orders'", why="no role")
    server = Served(Application(site, anonymous=user(DemoBrokers())))
    with pytest.MonkeyPatch.context() as patch, running(server):
        patch.setattr(queries, "run", lambda *_: Answer(columns, [*rows], ["orders"], 60))
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no Chromium here")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Browser, url: str, theme: Literal["light", "dark"] = "light", **options: Any) -> Page:
    """A tab in Berlin."""
    context = browser.new_context(
        base_url=url or None, color_scheme=theme, timezone_id="Europe/Berlin", locale="en-GB", **options
    )
    context.set_default_timeout(60_000)
    return context.new_page()


@pytest.mark.parametrize("theme", THEMES)
def test_each_theme_has_its_background(browser: Browser, url: str, theme: Literal["light", "dark"]) -> None:
    page = opened(browser, url, theme)
    page.goto(PAGES["settings"])
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.context.close()
    assert (background == "rgb(246, 247, 248)") == (theme == "light")


@pytest.mark.parametrize("theme", LIGHT)
def test_every_page_fits_and_keeps_the_policy(browser: Browser, url: str, theme: Literal["light", "dark"]) -> None:
    page = opened(browser, url, theme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    backgrounds = set()
    for name, path in PAGES.items():
        page.goto(path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            if PICTURES:
                page.screenshot(path=str(Path(PICTURES) / f"{name}-{width}-{theme}.png"))
        assert page.locator("h1").count() == 1
        backgrounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    page.goto(PAGES["points"])
    page.set_viewport_size({"width": 1200, "height": 800})
    # The picture is stretched, and its points are round all the same.
    assert page.locator(".plot .dot").count() == 9
    assert page.evaluate("getComputedStyle(document.querySelector('.plot .dot')).vectorEffect") == "non-scaling-stroke"
    for file, (shade, path, width) in DOCUMENTED.items():
        if PICTURES and theme == shade:
            page.set_viewport_size({"width": width, "height": 620})
            page.goto(path)
            page.screenshot(path=str(Path(PICTURES) / file))
    page.context.close()
    # The pages that are not there say so by their status, which Chromium writes to its console.
    assert [each for each in said if "404 (Not Found)" not in each] == []
    assert len(backgrounds) == 1


@pytest.mark.parametrize("theme", THEMES)
def test_pages_look_as_they_did(browser: Browser, tmp_path: Path, theme: Literal["light", "dark"]) -> None:
    """Beside the sheets in `sheets/`, which were looked at. After a change of how pages look, see that it is meant and
    copy the new ones over them: OTTLA_TEST_PICTURES=DIRECTORY keeps them."""
    directory = Path("/var/lib/ottla/pipelines")
    site = Site(Masks(), ChangingRegistry(), registry_url="http://127.0.0.1:8081", pipelines=directory)
    with running(server := Served(Application(site, anonymous=user(DemoBrokers())))):
        page = opened(browser, server.url, theme, viewport={"width": 1200, "height": 800})
        found = {}
        for name, path in PAGES.items():
            if name not in ("result", "points", "audit"):  # the hours of their lines differ
                page.goto(path)
                found[name] = page.screenshot(animations="disabled", caret="hide")
        page.context.close()
        kept = Path(PICTURES) if PICTURES else tmp_path
        assert pictures.compared(browser, theme, found, kept) == {}, f"see {kept / theme}.png"
        # Pages that lack their style, and their table, are found.
        page = opened(browser, server.url, theme, viewport={"width": 1200, "height": 800})
        page.goto(PAGES["topics"])
        page.evaluate("document.querySelector('table').remove()")
        broken = {**found, "topics": page.screenshot()}
        page.route("**/style.css", lambda route: route.abort())
        page.goto(PAGES["overview"])
        broken["overview"] = page.screenshot()
        page.context.close()
        if pictures.is_comparable(browser, theme):
            assert pictures.compared(browser, theme, broken, tmp_path).keys() == {"overview", "topics"}


LONG = '"><img src=x onerror=alert(1)>' + "x" * 150 + "é日本"
"""At the end of every name that brokers say."""
COVERED = """[...document.querySelectorAll("td")].filter(each => each.scrollWidth > each.clientWidth + 1)
  .map(each => each.textContent.trim().slice(0, 60))"""
"""Cells whose text runs over the next cell."""


def test_long_names_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    topic, group = "orders." * 35, "g<b>" + "x" * 200
    site = Site(Masks(), pipelines=tmp_path)
    brokers = FakeBrokers([topic], [(group, "consumer")], LONG, [SimpleRecord(NOW_MS, b"k" * 300, b"v" * 900)])
    with running(server := Served(Application(site, anonymous=user(brokers)))):
        page = opened(browser, server.url, viewport={"width": 320, "height": 640})
        inside = {"{topic}": topic, "{group:any}": quote(group), "{broker}": "1", "{subject:any}": "s"}
        query = {
            "/group": f"group={quote(group)}",
            "/transactions": "state=all",
            "/settings": "show=all",
            "/rights": f"user={'u' * 200}&name={'n' * 200}",
        }
        for each in ROUTES:
            path = each.path
            for name, value in inside.items():
                path = path.replace(name, value)
            page.goto(f"{path}?{query.get(each.path, '')}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, each.name
            assert page.evaluate(COVERED) == [], each.name
        page.context.close()


PRINTED = """() => {
  const shown = each => each.checkVisibility({visibilityProperty: true}) && each.getBoundingClientRect().width > 0;
  const unwanted = [...document.querySelectorAll("nav a, form, button, input, select, textarea, .act")].filter(shown);
  const dull = [...document.querySelectorAll("main *, footer *")].filter(shown).filter(each => {
    const [red, green, blue] = getComputedStyle(each).color.match(/[0-9]+/g).map(Number);
    return Math.max(red, green, blue) > 100;
  });
  const plain = [...document.querySelectorAll("main a")].filter(shown)
    .filter(each => !getComputedStyle(each).textDecorationLine.includes("underline"));
  const cut = [...document.querySelectorAll(".table, pre")].filter(shown)
    .filter(each => getComputedStyle(each).overflowY !== "visible" && each.scrollHeight > each.clientHeight + 1);
  const told = elements => elements.map(each => each.outerHTML.slice(0, 120));
  return {
    unwanted: told(unwanted), dull: told(dull), plain: told(plain), cut: told(cut),
    back: getComputedStyle(document.documentElement).backgroundColor,
  };
}"""


@pytest.mark.parametrize("theme", DARK)
def test_print(browser: Browser, url: str, theme: Literal["light", "dark"]) -> None:
    """Dark text on white whatever the theme, links that can be told from text, nothing to click, nothing cut off."""
    page = opened(browser, url, theme)
    page.set_viewport_size({"width": 720, "height": 1000})
    for name, path in PAGES.items():
        page.goto(path)
        page.emulate_media(media="print")
        expected = {"unwanted": [], "dull": [], "plain": [], "cut": [], "back": "rgb(255, 255, 255)"}
        assert page.evaluate(PRINTED) == expected, name
        page.emulate_media(media="screen")
    page.emulate_media(media="print")
    page.goto(PAGES["topic"])
    assert page.locator("h1").is_visible()
    assert page.get_by_role("link", name="mailer").is_visible()
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"print-{theme}.png"))
    page.context.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, which looks for what people with other eyes or hands cannot use."""
    reason = build.missing("axe")
    if reason is not None:
        pytest.skip(reason)
    return (build.build("axe") / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", THEMES)
def test_axe_has_no_complaint(browser: Browser, url: str, axe: str, theme: Literal["light", "dark"]) -> None:
    """By all of its rules, and in the other theme by those of colours."""
    page = opened(browser, url, theme, bypass_csp=True)  # the policy would not let the page run what a test brings
    found = {}
    page.set_content("<img src=x>")
    page.evaluate(axe)
    assert "image-alt" in [each["id"] for each in page.evaluate("axe.run().then(found => found.violations)")]
    for name, path in PAGES.items():
        page.goto(path)
        page.evaluate(axe)
        rules = {"runOnly": COLOURS} if theme == "dark" else {}
        violations = page.evaluate("rules => axe.run(rules).then(found => found.violations)", rules)
        complaints = [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary'][:200]}"
            for each in violations
            for node in each["nodes"][:3]
        ]
        if complaints:
            found[name] = complaints
    page.context.close()
    assert found == {}


def test_a_live_tail(browser: Browser, url: str) -> None:
    """New records come by themselves and in front; a pause ends the stream; a silent broker is named, and its
    partitions when they are back; without script the page reads again."""
    page = opened(browser, url)
    page.goto("/topics/carts/tail?partition=0")
    status, first = page.locator("#tail-status"), page.locator("#tail article strong").nth(1)
    status.filter(has_text="Live: 0 new records").wait_for()
    before = int(first.inner_text())
    DemoBrokers.written += 1
    status.filter(has_text="Live: 1 new records").wait_for()
    assert int(first.inner_text()) == before + 1
    assert page.locator("#tail article").first.locator("time .local").count() == 1
    page.get_by_role("button", name="Pause").click()
    status.filter(has_text="Paused").wait_for()
    DemoBrokers.written += 1
    page.get_by_role("button", name="Go on").click()
    status.filter(has_text="Live: 2 new records").wait_for()
    page.goto("/topics/carts/tail")
    status.filter(has_text="Live: 0 new records").wait_for()
    DemoBrokers.silent = 2
    status.filter(has_text="Live: 0 new records shown. Silent: partitions 1, 4 (node 2: it hangs).").wait_for()
    DemoBrokers.written += 1
    status.filter(has_text="Live: 1 new records shown. Silent: partitions 1, 4 (node 2: it hangs).").wait_for()
    DemoBrokers.silent = 0
    status.filter(has_text="Live: 1 new records shown. Back: partitions 1, 4.").wait_for()
    DemoBrokers.written += 1
    status.filter(has_text=re.compile("Live: 2 new records shown[.]$")).wait_for()
    page.context.close()
    page = opened(browser, url, java_script_enabled=False)
    page.goto("/topics/carts/tail")
    assert page.locator("noscript meta").get_attribute("content") == "5"
    page.context.close()


def test_the_keyboard_is_enough(browser: Browser, url: str) -> None:
    page = opened(browser, url)
    page.goto("/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_url("**#main")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.name") != "q":
        page.keyboard.press("Tab")
    page.keyboard.type("cart")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?q=cart")
    assert page.locator("tbody tr").count() == 1
    page.go_back()
    assert page.locator("tbody tr").count() == 8
    page.context.close()


def test_it_works_without_script(browser: Browser, url: str) -> None:
    page = opened(browser, url, java_script_enabled=False)
    page.goto("/topics")
    page.get_by_role("link", name="Lag").click()
    assert page.locator("tbody tr").first.locator("td").first.inner_text() == "clicks"
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_label("Partition").select_option("0")
    page.get_by_label("Contains").fill("A-41")
    page.get_by_role("button", name="Show").click()
    assert page.locator("article").count() == 1
    assert page.locator("article strong").all_inner_texts() == ["0", "41"]
    page.context.close()


def test_moments_are_shown_in_both_zones(browser: Browser, url: str) -> None:
    page = opened(browser, url)
    page.goto(PAGES["messages"])
    shown = page.locator("article time").first.inner_text()
    assert "UTC" in shown
    assert shown.endswith("here")
    hour_utc, hour_here = (part.split(":")[0][-2:] for part in (shown.split("UTC")[0], shown.split("UTC")[1]))
    assert (int(hour_here) - int(hour_utc)) % 24 in (1, 2)
    page.context.close()


# Acts, on a cluster in memory that notes what it is asked for


@pytest.fixture(scope="module")
def acting() -> Iterator[tuple[str, ChangingBrokers]]:
    brokers = ChangingBrokers()
    site = Site(Masks(), ChangingRegistry(), None, "http://127.0.0.1:8081")
    server = Served(Application(site, anonymous=user(brokers)))
    with running(server):
        yield server.url, brokers


@pytest.mark.parametrize("theme", LIGHT)
def test_every_form_fits_and_keeps_the_policy(
    browser: Browser, acting: tuple[str, ChangingBrokers], theme: Literal["light", "dark"]
) -> None:
    """Each act's empty form and its preview."""
    page = opened(browser, acting[0], theme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for act in ACTS:
        for step in ("form", "preview"):
            page.goto(act.path if step == "form" else url_of(act))
            if step == "preview" and page.get_by_role("button", name="Show what will happen").count():
                page.get_by_role("button", name="Show what will happen").click()
                if "password" not in GOOD[act.name]:  # which the browser itself asks for
                    assert page.locator("text=What will happen").count() == 1, act.name
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 800})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (act.name, step, width)
                if PICTURES:
                    page.screenshot(path=str(Path(PICTURES) / f"act-{act.name}-{step}-{width}-{theme}.png"))
    page.context.close()
    assert said == []
    assert acting[1].changes == []


def url_of(act: Act) -> str:
    return f"{act.path}?{urlencode({name: value for name, value in GOOD[act.name].items() if name != 'password'})}"


def test_a_user_creates_configures_writes_and_deletes_by_name(
    browser: Browser, acting: tuple[str, ChangingBrokers]
) -> None:
    address, brokers = acting
    brokers.changes.clear()
    page = opened(browser, address)
    page.goto("/topics")
    page.get_by_role("link", name="Create a topic").click()
    page.get_by_label("Topic").fill("made")
    page.get_by_label("Partitions").fill("3")
    page.get_by_role("button", name="Create a topic").click()
    assert "Topic made is created." in page.get_by_role("status").inner_text()
    page.goto("/topics/orders")
    page.get_by_role("link", name="Change a setting").click()
    page.get_by_label("Setting").fill("retention.ms")
    page.get_by_label("New value").fill("5")
    page.get_by_role("button", name="Change a setting").click()
    page.get_by_role("link", name="Topic orders").click()
    page.get_by_role("link", name="Write a record").click()
    page.get_by_label("Value The").fill("one\ntwo")
    page.get_by_role("button", name="Write a record").click()
    page.get_by_text("Done.").wait_for()
    page.reload()  # the browser sends the form again
    assert "sent before" in page.locator("main").inner_text()
    page.goto("/topics/orders")
    page.get_by_role("link", name="Delete the topic").click()
    button = page.get_by_role("button", name="Delete the topic")
    page.get_by_label("Type orders").fill("order")
    button.click()
    assert "typed again" in page.get_by_role("alert").inner_text()
    page.get_by_label("Type orders").fill("orders")
    button.click()
    assert "Topic orders is deleted" in page.get_by_role("status").inner_text()
    page.context.close()
    keys = [ApiKey.CREATE_TOPICS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.PRODUCE, ApiKey.DELETE_TOPICS]
    assert [key for key, _ in brokers.changes] == keys
    data = memoryview(brokers.changes[2][1]["topic_data"][0]["partition_data"][0]["records"])
    assert [each.value for each in iterate_records(data)] == [b"one\ntwo"]


def test_offsets_are_moved_by_keyboard_alone_and_without_script(
    browser: Browser, acting: tuple[str, ChangingBrokers]
) -> None:
    address, brokers = acting
    brokers.changes.clear()
    page = opened(browser, address, java_script_enabled=False)
    page.goto("/groups/billing")

    def press_until(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(":focus").count() and name in page.locator(":focus").evaluate("each => each.outerHTML"):
                return
        raise AssertionError(name)

    press_until("reset-offsets")
    page.keyboard.press("Enter")
    page.wait_for_url("**/acts/reset-offsets?group=billing")
    press_until('name="to"')
    page.keyboard.type("lat")
    press_until("Show what will happen")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=skips 5 records")
    assert brokers.changes == []
    press_until("Move offsets</button>")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Done.")
    page.context.close()
    ((key, values),) = brokers.changes
    assert key == ApiKey.OFFSET_COMMIT
    assert values["topics"][0]["partitions"][0]["committed_offset"] == 5


def test_a_user_logs_in_and_out(browser: Browser) -> None:
    """A browser says by itself where a form comes from, which the server's own tests only imitate."""

    def make(name: str | None, config: ClientConfig) -> User:
        return user(Guarding(config), name)

    sessions = Sessions(ClientConfig(("b:1",), security=SASL), make)
    server = Served(Application(Site(Masks()), sessions=sessions))
    with running(server):
        page = opened(browser, server.url)
        page.goto("/topics")
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill("right")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/topics")
        assert page.locator("tbody tr").count() == 1
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        page.context.close()
