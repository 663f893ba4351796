"""Walks a task through a page: with the mouse, or with nothing but the keyboard, as those do who cannot use a mouse."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from playwright.sync_api import Locator, Page

from tests.conformance.console.tasks import Click, Download, Fill, Pick, See, Step, Task, Write

STOPS_MAX = 500
"""Elements that Tab goes to on one page."""
BACK_MAX_PX = 400
"""How far up the next element may be: parts that stand beside one another."""
FOCUS = """target => {
  const at = document.activeElement, style = getComputedStyle(at), box = at.getBoundingClientRect();
  const is_in_window = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  return {
    is_there: at === target, is_body: at === document.body || at === document.documentElement,
    is_seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 && box.width > 0 && is_in_window,
    parts: at.type === "datetime-local" ? 8 : 1,
    place: [...document.querySelectorAll("*")].indexOf(at), top: box.top + scrollY, html: at.outerHTML.slice(0, 200),
  };
}"""


LABELS = """labels => labels.map(label => {
  const copy = label.cloneNode(true);
  copy.querySelectorAll("input, select, textarea, .what, .soft").forEach(each => each.remove());
  return copy.textContent.trim();
})"""


class Hands(Protocol):
    def click(self, element: Locator) -> None: ...

    def fill(self, element: Locator, text: str) -> None: ...

    def pick(self, element: Locator, option: str) -> None: ...


class Mouse:
    def click(self, element: Locator) -> None:
        element.click()

    def fill(self, element: Locator, text: str) -> None:
        element.fill(text)

    def pick(self, element: Locator, option: str) -> None:
        element.select_option(label=option)


class Keys:
    """Tab, Enter, arrows and letters. What has the focus must be seen, and Tab must go down the page to its end."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.tabs = 0
        """How often Tab was pressed."""

    def click(self, element: Locator) -> None:
        self.go_to(element)
        self._page.keyboard.press("Enter")

    def fill(self, element: Locator, text: str) -> None:
        self.go_to(element)
        self._page.keyboard.press("Control+A")
        self._page.keyboard.type(text)

    def pick(self, element: Locator, option: str) -> None:
        self.go_to(element)
        self._page.keyboard.type(option)

    def go_to(self, element: Locator) -> None:
        target = element.element_handle()
        seen = target.evaluate(FOCUS)
        before = None if seen["is_body"] else seen
        has_wrapped, stays = False, 1
        for _ in range(STOPS_MAX):
            if seen["is_there"]:
                return
            self._page.keyboard.press("Tab")
            self.tabs += 1
            seen = target.evaluate(FOCUS)
            if seen["is_body"] or (before is not None and seen["place"] < before["place"]):
                assert not has_wrapped, f"Tab does not go to {element}"
                has_wrapped, before = True, None
                if seen["is_body"]:
                    continue
            assert seen["is_seen"], f"nobody sees that the focus is at {seen['html']}"
            if before is not None:
                stays = stays + 1 if seen["place"] == before["place"] else 1
                assert stays <= seen["parts"], f"the focus is caught in {seen['html']}"
                assert seen["top"] > before["top"] - BACK_MAX_PX, f"{seen['html']} comes after {before['html']}"
            before = seen
        raise AssertionError(f"{element} is more than {STOPS_MAX} stops away")


class Walked(NamedTuple):
    steps: int
    seconds: float


def walk(page: Page, url: str, task: Task, way: str, hands: Hands, write: Callable[[str, str], None]) -> Walked:
    """At the console at `url`; `way` is put in the place of {m}."""

    def said(text: str) -> str:
        return text.replace("{m}", way)

    page.goto(url.rstrip("/") + said(task.start))
    started = time.perf_counter()
    for step in task.steps:
        _step(page, _filled(step, said), hands, write)
    return Walked(task.count, time.perf_counter() - started)


def _filled(step: Step, said: Callable[[str], str]) -> Any:
    return step._make(said(each) for each in step)


def _step(page: Page, step: Any, hands: Hands, write: Callable[[str, str], None]) -> None:
    match step:
        case Click(name, role):
            with _next_page(page):
                hands.click(page.get_by_role(role, name=name, exact=True).first)  # type: ignore[arg-type]
        case Fill(label, text):
            hands.fill(_field(page, label), text)
            assert _field(page, label).input_value() == text
        case Pick(label, option):
            field = _field(page, label)
            hands.pick(field, option)
            assert field.evaluate("each => each.selectedOptions[0].text") == option
        case Download(name):
            with page.expect_download() as coming:
                hands.click(page.get_by_role("link", name=name, exact=True))
            assert coming.value.path().stat().st_size > 100
        case Write(topic, key):
            write(topic, key)
        case See(text):
            page.locator("main").filter(has_text=text).wait_for()


def _field(page: Page, label: str) -> Locator:
    """By the words before the field; what explains it is not among them."""
    labels = page.locator("main label")
    texts = labels.evaluate_all(LABELS)
    assert label in texts, f"no field {label!r} among {texts}"
    return labels.nth(texts.index(label)).locator("input, select, textarea")


@contextlib.contextmanager
def _next_page(page: Page) -> Iterator[None]:
    with page.expect_navigation():
        yield
