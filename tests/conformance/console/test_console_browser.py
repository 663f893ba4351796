"""The console in Chromium: nothing that the content policy forbids, no page wider than a phone, keyboard, no script.

Only a browser lays pages out and obeys the policy. The cluster is in memory. OTTLA_TEST_PICTURES=DIRECTORY keeps a
picture of every page in both themes, to look at; console.png of it is the one in docs.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from ottla.console.app import Application
from ottla.console.asking import Site
from ottla.console.masks import Masks
from tests.conformance.clients import build
from tests.conformance.console.demo_cluster import DemoBrokers
from tests.unit.console.fake_cluster import user

PICTURES = os.environ.get("OTTLA_TEST_PICTURES")
PAGES = {
    "overview": "/", "topics": "/topics?sort=lag&order=desc", "topic": "/topics/orders",
    "messages": "/topics/orders/messages?partition=0&limit=20", "groups": "/groups", "group": "/groups/mailer",
    "share": "/groups/warehouse", "transactions": "/transactions", "security": "/security", "broker": "/brokers/1",
    "tail": "/topics/orders/tail", "by id": "/group?group=mailer", "hanging": "/hanging?older=0",
    "rights": "/rights?user=alice&name=orders", "moves": "/moves", "none": "/topics/none", "empty": "/topics?q=nothing",
}  # fmt: skip
WIDTHS = (320, 1200)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class Served(uvicorn.Server):
    def __init__(self) -> None:
        application = Application(Site(Masks()), anonymous=user(DemoBrokers()))
        super().__init__(uvicorn.Config(application.asgi(), port=0, log_config=None, lifespan="off"))
        self.ready = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Served()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.ready.wait(60)
    yield server.url
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


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
        base_url=url, color_scheme=theme, timezone_id="Europe/Berlin", locale="en-GB", **options
    )
    context.set_default_timeout(60_000)
    return context.new_page()


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_fits_and_keeps_the_policy(browser: Browser, url: str, theme: Literal["light", "dark"]) -> None:
    page = opened(browser, url, theme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    backgrounds = set()
    for name, path in PAGES.items():
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            if PICTURES:
                page.screenshot(path=str(Path(PICTURES) / f"{name}-{width}-{theme}.png"))
        assert page.locator("h1").count() == 1
        backgrounds.add(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    if PICTURES and theme == "light":
        page.set_viewport_size({"width": 1000, "height": 620})
        page.goto(PAGES["topics"])
        page.screenshot(path=str(Path(PICTURES) / "console.png"))
    page.context.close()
    # The pages that are not there say so by their status, which Chromium writes to its console.
    assert [each for each in said if "404 (Not Found)" not in each] == []
    assert len(backgrounds) == 1
    assert (backgrounds == {"rgb(246, 247, 248)"}) == (theme == "light")


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, which looks for what people with other eyes or hands cannot use."""
    reason = build.missing("axe")
    if reason is not None:
        pytest.skip(reason)
    return (build.build("axe") / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", THEMES)
def test_axe_has_no_complaint(browser: Browser, url: str, axe: str, theme: Literal["light", "dark"]) -> None:
    page = opened(browser, url, theme, bypass_csp=True)  # the policy would not let the page run what a test brings
    found = {}
    page.set_content("<img src=x>")
    page.evaluate(axe)
    assert "image-alt" in [each["id"] for each in page.evaluate("axe.run().then(found => found.violations)")]
    for name, path in PAGES.items():
        page.goto(path)
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(found => found.violations)")
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
    """New records come by themselves and in front; a pause ends the stream; without script the page reads again."""
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
    assert page.url.endswith("#main")
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
