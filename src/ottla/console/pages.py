"""Pages as HTML: templates with everything escaped, no script needed, every state in the address."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from ottla.config.units import duration, human_bytes
from ottla.console.asking import Asking
from ottla.console.history import Trend
from ottla.console.routes import API, SECTIONS, Page
from ottla.version import VERSION

TEMPLATES: Final = Path(__file__).parent / "templates"
_TITLES: Final = {
    400: "This request cannot be",
    403: "Not allowed",
    404: "Not found",
    503: "No answer from the brokers",
}


@functools.cache
def _environment() -> Environment:
    """Templates, compiled before the first visitor comes."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    found.filters |= {
        "number": number,
        "size": _size,
        "seconds": _seconds,
        "part": _part,
        "moment": moment,
        "points": points,
        "amount": amount,
    }
    found.globals |= {"url": url, "group_url": group_url}
    for name in found.list_templates():
        found.get_template(name)
    return found


class Renderer:
    """Renders pages of one console."""

    def __init__(self, *, has_login: bool, has_registry: bool) -> None:
        self._environment = _environment()
        self._shared = {
            "sections": [(name, path, title) for name, path, title in SECTIONS if has_registry or path != "/schemas"],
            "version": VERSION,
            "has_login": has_login,
            "has_registry": has_registry,
        }

    def page(self, page: Page, asking: Asking, data: Any, user: str | None) -> HTMLResponse:
        """The page with the data of its view."""
        path = page.path.replace(":any}", "}")
        for each in page.inside:
            path = path.replace(f"{{{each.name}}}", _part(asking.parameters[each.name]))
        query = {
            each.name: asking.parameters[each.name]
            for each in page.query
            if asking.parameters[each.name] not in ("", each.default)
        }

        def here(**changes: Any) -> str:
            """The address of this page with other parameters; an empty one is left out."""
            defaults = {each.name: each.default for each in page.query}
            wanted = {**query, **changes}
            return url(path, **{name: each for name, each in wanted.items() if each != defaults.get(name)})

        return self._rendered(
            page.template, 200, section=page.section, page=data, problems=asking.problems, age=asking.age_s, user=user,
            here=here, given=asking.parameters, query=query, api=url(_api(page, path), **query),
        )  # fmt: skip

    def record(self, asking: Asking, row: Any) -> str:
        """One record of a live tail, as it is on the page."""
        topic = asking.text("topic")
        is_masked = not asking.site.masks.of(topic, asking.user.name).is_empty
        return str(self._environment.get_template("record.html").module.one(row, topic, is_masked))  # type: ignore[attr-defined]

    def error(self, status: int, sentence: str, user: str | None) -> HTMLResponse:
        title = _TITLES.get(status, "Something went wrong")
        return self._rendered("error.html", status, section="", title=title, sentence=sentence, user=user)

    def login(self, there: str, name: str, problem: str, status: int = 200) -> HTMLResponse:
        return self._rendered(
            "login.html", status, section="", there=there, name=name, problem=problem, user=None
        )  # fmt: skip

    def _rendered(self, template: str, status: int, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._environment.get_template(template).render(**self._shared, **values), status)


def _api(page: Page, path: str) -> str:
    return API + (path if page.path != "/" else f"/{page.name}")


def url(path: str, **query: Any) -> str:
    """An address of this console; parameters without a value are left out."""
    given: Mapping[str, str] = {name: str(value) for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def _part(text: Any) -> str:
    """A part of a path: a slash in a name is not one between parts."""
    return quote(str(text), safe="")


def amount(value: float | None) -> str:
    """`1,234`, `0.25`: a rate or a count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def group_url(name: str) -> str:
    """The page of a group; browsers take . and .. out of a path, and an empty name is none."""
    return f"/groups/{_part(name)}" if name.strip(".") else f"/group?{urlencode({'group': name})}"


def points(trend: Trend) -> list[str]:
    """The lines of a sparkline of 100 by 24, each as points; what is not known parts two lines."""
    wide, high = max(1, len(trend.values) - 1), trend.high or 1.0
    lines: list[list[str]] = [[]]
    for number, value in enumerate(trend.values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{number * 100 / wide:.1f},{23 - 22 * value / high:.1f}")
    # One point alone is a short line, as a line without a length is not drawn.
    return [" ".join(each if len(each) > 1 else [each[0], _beside(each[0])]) for each in lines if each]


def _beside(point: str) -> str:
    across, _, down = point.partition(",")
    return f"{float(across) + 1:.1f},{down}"


def number(value: int | str | None) -> str:
    """`1,234,567`; a dash for what is not known."""
    return "–" if value is None or value == "" else f"{int(value):,}"


def _size(value: int | str | None) -> str:
    return "–" if value is None or value == "" else human_bytes(int(value))


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(value)


def moment(text: str | None) -> Markup:
    """A moment in UTC; a script adds the time of the browser's zone."""
    if text is None:
        return Markup("–")
    plain = text.replace("T", " ").removesuffix("Z")
    return Markup('<time datetime="{}">{} UTC</time>').format(text, plain)
