"""Pages as HTML: templates with everything escaped, no script needed, every state in the address."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from ottla.config.units import duration, human_bytes
from ottla.console.acts.act import Act, Plan, Result, outcome_of
from ottla.console.asking import Asking, User
from ottla.console.history import Trend
from ottla.console.routes import API, PAGES, SECTIONS, Page
from ottla.version import VERSION

TEMPLATES: Final = Path(__file__).parent / "templates"
_TITLES: Final = {
    400: "This request cannot be",
    403: "Not allowed",
    404: "Not found",
    409: "Not done",
    503: "No answer from the brokers",
}
AGAIN_MAX: Final = 1_000
"""Characters of a value that the link to the same form has."""
_SECTION_OF: Final = {each.name: each.section for each in PAGES}


@functools.cache
def _environment() -> Environment:
    """Templates, compiled before the first visitor comes."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "number": number,
        "size": _size,
        "seconds": _seconds,
        "part": _part,
        "moment": moment,
        "points": points,
        "amount": amount,
        "kebab": _kebab,
    }
    found.globals |= {"url": url, "act_url": _act_url, "group_url": group_url}
    for name in found.list_templates():
        found.get_template(name)
    return found


class Renderer:
    """Renders pages of one console."""

    def __init__(
        self,
        *,
        has_login: bool,
        has_registry: bool,
        acts: Sequence[Act] = (),
        providers: Sequence[tuple[str, str]] = (),
        takes_passwords: bool = True,
    ) -> None:
        """`providers` are (path of the login, title)."""
        self._environment = _environment()
        self._acts = {each.name: each for each in acts}
        self._shared = {
            "acts": self._acts,
            "providers": providers,
            "takes_passwords": takes_passwords,
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
            page.template,
            200,
            section=page.section,
            page=data,
            problems=asking.problems,
            age=asking.age_s,
            user=user,
            here=here,
            given=asking.parameters,
            query=query,
            api=url(_api(page, path), **query),
            acts={name: each for name, each in self._acts.items() if asking.rights.may_act(name)},
        )

    def record(self, asking: Asking, row: Any) -> str:
        """One record of a live tail, as it is on the page."""
        topic = asking.text("topic")
        is_whole = asking.rights.may_download and asking.mask(topic).is_empty
        return str(self._environment.get_template("record.html").module.one(row, topic, not is_whole))  # type: ignore[attr-defined]

    def act(
        self,
        act: Act,
        user: User,
        values: Mapping[str, str],
        *,
        plan: Plan | None = None,
        result: Result | None = None,
        is_repeated: bool = False,
    ) -> HTMLResponse:
        """The form of an act, with its preview or its outcome."""
        given = {each.name: values.get(each.name) or str(each.default) for each in act.fields if not each.is_private}
        given |= {each.name: values.get(each.name, "") for each in act.fields if each.is_private}
        outcome = None if result is None or result.error else result.outcome
        preview = None if plan is None or outcome is not None else outcome_of(plan, done=False)
        values = {name: given[name] for name in given if name in values}
        again = {
            each.name: given[each.name]
            for each in act.fields
            if not each.is_private and each.widget != "hidden" and len(given[each.name]) < AGAIN_MAX
        }
        return self._rendered(
            "act.html",
            200 if result is None else result.status,
            section=_SECTION_OF[act.page],
            act=act,
            user=user.name,
            given=given,
            shown=preview or outcome,
            is_done=outcome is not None,
            is_previewed=preview is not None,
            can_act=plan is not None and not plan.blocked,
            pinned={} if plan is None else dict(plan.pinned),
            result=result,
            is_repeated=is_repeated,
            is_final=result is not None and result.is_final and (outcome is not None or result.status != 200),
            back=result.back if outcome is not None and result is not None else None if plan is None else plan.back,
            again=url(act.path, **again),
            token=user.tokens.issue(act.name),
            by_program=_curl(act, given, has_login=bool(self._shared["has_login"])),
        )

    def error(self, status: int, sentence: str, user: str | None) -> HTMLResponse:
        title = _TITLES.get(status, "Something went wrong")
        return self._rendered("error.html", status, section="", title=title, sentence=sentence, user=user)

    def login(self, there: str, name: str, problem: str, status: int = 200) -> HTMLResponse:
        return self._rendered("login.html", status, section="", there=there, name=name, problem=problem, user=None)

    def elsewhere(self, title: str, sentence: str, address: str, link: str) -> HTMLResponse:
        """A page that leads to another one at once. A redirect would not do: after a login elsewhere browsers send
        cookies of SameSite=strict only with what a page of this console begins, and `form-action` stops forms."""
        return self._rendered(
            "elsewhere.html", 200, section="", title=title, sentence=sentence, address=address, link=link, user=None
        )

    def _rendered(self, template: str, status: int, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._environment.get_template(template).render(**{**self._shared, **values}), status)


def _curl(act: Act, given: Mapping[str, str], *, has_login: bool) -> str:
    """The act as a call of the API; what must not be shown is left to be filled in."""
    body: dict[str, Any] = {
        each.name: "..." if each.is_private else given[each.name]
        for each in act.fields
        if given[each.name] not in ("", str(each.default))
    }
    if act.confirm:
        body["confirm"] = given[act.confirm]
    user = ["-u", "USER"] if has_login else []
    words = ["curl", *user, "--json", json.dumps(body, ensure_ascii=False)]
    return f"{shlex.join(words)} $CONSOLE{API}{act.path}"


def _act_url(act: Act, **values: Any) -> str:
    """The form of an act, with what is known already."""
    known = {each.name for each in act.fields}
    return url(act.path, **{name: value for name, value in values.items() if name in known})


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


def _kebab(text: str) -> str:
    """`DescribeConfigs` as acts have it: `describe-configs`."""
    found = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", text).lower()
    return "token" if found == "delegation-token" else found


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
