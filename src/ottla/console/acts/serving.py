"""Acts over HTTP: a form that shows what would happen, and acts once; the same as JSON.

A form needs the cookie of a login, a token that this user was given, and an origin that is this console. The API takes
no cookie: a program sends name and password with each request, as JSON, which no page elsewhere can send.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.client.security import SecurityFailure
from ottla.console.access.roles import Forbidden
from ottla.console.acts.act import Act, Blocked, Misfit, Partly, Plan, Result, outcome_of
from ottla.console.acts.table import ACTS
from ottla.console.asking import Asking, Invalid, NotFound, Site, User
from ottla.console.brokers import Refused, Unanswered, for_an_act
from ottla.console.pages import Renderer
from ottla.console.requests import body_of, is_own
from ottla.console.routes import API
from ottla.console.tokens import NAME_MAX, StillActing, UnknownToken
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields

_LOG = logging.getLogger("ottla.console")

QUERY_FIELDS_MAX: Final = 50
AUDIT_CHARACTERS_MAX: Final = 200
"""Length of a parameter in a line of the audit log."""
STEPS: Final = ("preview", "do")
OWN_FIELDS: Final = ("token", "step", "confirm")
"""What a form has besides the act's fields; the API has others: preview, confirm, once."""
_MAY_BE_DONE: Final = frozenset({ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append})
"""Errors of a broker after which the change may have been made all the same."""


class NotOwn(Exception):
    """The request comes from another page."""


class Host(Protocol):
    """The application that acts are served by."""

    site: Site
    renderer: Renderer
    limit: anyio.CapacityLimiter

    async def guarded(
        self, request: Request, as_json: bool, answer: Callable[[User], Awaitable[Response]], *, by_password: bool
    ) -> Response: ...


def served(site: Site) -> tuple[Act, ...]:
    """The acts of a console: none where it is read-only."""
    if site.is_read_only:
        return ()
    return tuple(each for each in ACTS if site.registry is not None or not each.needs_registry)


def routes(host: Host) -> list[Route]:
    found = []
    for act in served(host.site):
        found.append(Route(act.path, _form(host, act), methods=["GET"]))
        found.append(Route(act.path, _posted(host, act), methods=["POST"]))
        found.append(Route(API + act.path, _api(host, act), methods=["POST"]))
    return found


# Forms


def _form(host: Host, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        async def shown(user: User) -> Response:
            host.site.rights_of(user).ensure_act(act.name)
            return await anyio.to_thread.run_sync(lambda: _shown(host, act, user, request), limiter=host.limit)

        return await host.guarded(request, False, shown, by_password=False)

    return answer


def _shown(host: Host, act: Act, user: User, request: Request) -> Response:
    """The form; with a preview where nothing is left to choose and the act may not be done without."""
    given = _pairs(request.url.query)
    known = {each.name for each in act.fields}
    values = {name: value for name, value in given.items() if name in known}
    for each in act.fields:
        if values.get(each.name):
            each.parse(values[each.name])
    if act.fill is not None:
        parsed = {
            each.name: each.parse(values.get(each.name)) if values.get(each.name) else each.default
            for each in act.fields
        }
        values = {**values, **act.fill(Asking(user, host.site, parsed))}
    needed = [each for each in act.fields if each.is_required and not values.get(each.name)]
    is_open = any(each.widget != "hidden" and not each.is_required and not values.get(each.name) for each in act.fields)
    if needed or is_open or (act.is_direct and not act.destroys):
        return host.renderer.act(act, user, values)
    plan, result = _planned(host, act, user, values)
    return host.renderer.act(act, user, values, plan=plan, result=result)


def _posted(host: Host, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        async def sent(user: User) -> Response:
            if not is_own(request):
                raise NotOwn
            host.site.rights_of(user).ensure_act(act.name)
            form = {
                name: value.replace("\r\n", "\n")
                for name, value in _pairs((await body_of(request, act.body_max)).decode("ascii", "strict")).items()
            }
            return await anyio.to_thread.run_sync(lambda: _of_form(host, act, user, form), limiter=host.limit)

        return await host.guarded(request, False, sent, by_password=False)

    return answer


def _of_form(host: Host, act: Act, user: User, form: Mapping[str, str]) -> Response:
    values = {name: value for name, value in form.items() if name not in OWN_FIELDS}
    token, step = form.get("token", ""), form.get("step", "preview")
    if step not in STEPS:
        raise Invalid(f"step must be one of {', '.join(STEPS)}")
    if step == "preview":
        user.tokens.check(token, act.name)
        plan, result = _planned(host, act, user, values)
        return host.renderer.act(act, user, values, plan=plan, result=result)
    known = user.tokens.take(token, act.name)
    if known is not None:
        return host.renderer.act(act, user, values, result=known, is_repeated=True)
    result = _kept(user, act, token, lambda: _done(host, act, user, values, form.get("confirm", "")))
    if result.status == 200 or result.is_final:
        return host.renderer.act(act, user, values, result=result)
    plan = None
    if act.destroys or not act.is_direct:
        plan, failed = _planned(host, act, user, values)
        result = result if failed is None else failed
    return host.renderer.act(act, user, values, plan=plan, result=result)


def _kept(user: User, act: Act, token: str, do: Callable[[], Result]) -> Result:
    """The result, which is kept if the cluster may have been changed."""
    result: Result | None = None
    try:
        result = do()
        return result
    finally:
        if result is not None and not result.is_final:
            user.tokens.drop(token, act.name)
        else:
            kept = result or Result(500, None, ("/", "Overview"), "This is a bug of the console; its log has it.")
            user.tokens.keep(token, act.name, kept)


# The API


def _api(host: Host, act: Act) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        async def sent(user: User) -> Response:
            if not is_own(request):
                raise NotOwn
            host.site.rights_of(user).ensure_act(act.name)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Invalid("the body must be JSON, with content-type application/json")
            values, own = _body(await body_of(request, act.body_max))
            return await anyio.to_thread.run_sync(lambda: _of_api(host, act, user, values, own), limiter=host.limit)

        return await host.guarded(request, True, sent, by_password=True)

    return answer


def _body(data: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """The act's parameters as text, and what a request has besides. Raises Invalid."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise Invalid("the body is not JSON") from None
    if not isinstance(body, dict):
        raise Invalid("the body must be an object")
    values: dict[str, str] = {}
    for name, value in body.items():
        if not all(ord(each) < 0xD800 or ord(each) > 0xDFFF for each in name):
            raise Invalid("the name of a parameter has half of a surrogate pair")  # no answer can repeat it
        if isinstance(value, bool):
            values[name] = "true" if value else "false"
        elif isinstance(value, int) and abs(value) < 2**64:
            values[name] = str(value)
        elif isinstance(value, str):
            values[name] = value
        elif value is not None:
            raise Invalid(f"{name[:100]} must be a text or a whole number")
    own = {name: values.pop(name, "") for name in ("preview", "confirm", "once")}
    if own["preview"] not in ("", "true", "false"):
        raise Invalid("preview must be true or false")
    if len(own["once"]) > NAME_MAX:
        raise Invalid(f"once has more than {NAME_MAX} characters")
    return values, own


def _of_api(host: Host, act: Act, user: User, values: Mapping[str, str], own: Mapping[str, str]) -> Response:
    if own["preview"] == "true":
        plan, failed = _planned(host, act, user, values)
        if failed is not None:
            return _as_json(failed)
        assert plan is not None
        return _as_json(Result(200, outcome_of(plan, done=False), plan.back))
    if not own["once"]:
        return _as_json(_done(host, act, user, values, own["confirm"]))
    known = user.tokens.take_own(own["once"], act.name)
    if known is not None:
        return _as_json(known)
    do = lambda: _done(host, act, user, values, own["confirm"])  # noqa: E731
    return _as_json(_kept(user, act, f"own {own['once']}", do))


def _as_json(result: Result) -> Response:
    if result.outcome is None or result.error:
        more = {"code": result.code, "field": result.field}
        body = {"error": result.error, **{name: each for name, each in more.items() if each}}
        return JSONResponse(body, result.status)
    return JSONResponse({"data": dataclasses.asdict(result.outcome), "problems": {}, "age_s": 0.0})


# What both do


def _planned(host: Host, act: Act, user: User, values: Mapping[str, str]) -> tuple[Plan | None, Result | None]:
    """What would happen, and whether the cluster would do it; nothing is changed."""
    with for_an_act():
        return _plan(host, act, user, values)


def _plan(host: Host, act: Act, user: User, values: Mapping[str, str]) -> tuple[Plan | None, Result | None]:
    try:
        plan = act.plan(Asking(user, host.site, act.parse(values)))
        if plan.check is not None and not plan.blocked:
            try:
                plan.check()
            except (KafkaError, OSError) as error:
                if isinstance(error, SecurityFailure):
                    raise
                plan.blocked = _refusal(error)[1]
        return plan, None
    except Exception as error:
        return None, _failed(act, user, values, error, may_be_done=False)


def _done(host: Host, act: Act, user: User, values: Mapping[str, str], confirm: str) -> Result:
    """Do it, and say in the audit log what came of it."""
    plan: Plan | None = None
    is_sent = False
    try:
        parameters = act.parse(values)
        if act.confirm and confirm != str(parameters[act.confirm]):
            raise Invalid(f"confirm must be the same as {act.confirm}, typed again")
        with for_an_act():
            plan = act.plan(Asking(user, host.site, parameters))
            if plan.blocked:
                raise Blocked(plan.blocked)
            is_sent = True
            plan.run()
    except Exception as error:
        result = _failed(act, user, values, error, may_be_done=is_sent)
        outcome = "unknown" if result.is_final else "refused"
        _log(host.site, act, user, values, outcome, f"{result.error} {result.code}".strip())
        return result
    finally:
        if is_sent:
            user.snapshots.drop()
    _log(host.site, act, user, values, "done", "")
    return Result(200, outcome_of(plan, done=True), plan.back)


def _failed(act: Act, user: User, values: Mapping[str, str], error: Exception, *, may_be_done: bool) -> Result:
    status, sentence, code = _explained(error)
    if status == 500:
        _LOG.error("an act failed", exc_info=error, extra=fields(act=act.name))
    is_unknown = isinstance(error, Unanswered | Partly) or status == 500
    is_unknown = is_unknown or (isinstance(error, KafkaError) and error.code in _MAY_BE_DONE)
    if is_unknown and may_be_done and not isinstance(error, Partly):
        sentence += " It may have been done all the same: look before you repeat it."
    return Result(
        status,
        None,
        ("/", "Overview"),
        sentence,
        code,
        error.name if isinstance(error, Misfit) else "",
        is_final=is_unknown and may_be_done,
    )


def _explained(error: Exception) -> tuple[int, str, str]:
    """(HTTP's status, a sentence, the protocol's code) for what an act ended with."""
    if isinstance(error, Invalid):
        return 400, f"This cannot be: {error}.", ""
    if isinstance(error, NotFound):
        return 404, str(error), ""
    if isinstance(error, Forbidden):
        return 403, f"It was not done: {error}.", ""
    if isinstance(error, Blocked):
        return 409, f"It was not done. {error}", ""
    if isinstance(error, Partly):
        return 409, f"Only a part was done: {error}.", ""
    if isinstance(error, SecurityFailure):
        return 503, f"The brokers refuse this user: {error}.", ""
    if isinstance(error, KafkaError | OSError):
        return _refusal(error)
    return 500, "This is a bug of the console; its log has the details.", ""


def _refusal(error: KafkaError | OSError) -> tuple[int, str, str]:
    if isinstance(error, Unanswered):
        return 503, f"No answer came: {error}.", ""
    if isinstance(error, OSError):
        return 503, f"The brokers could not be asked: {error}.", ""
    code = error.code.name.upper()
    words = (error.message or code).rstrip(".")
    if code not in words:
        words = f"{words} ({code})"
    return (403 if isinstance(error, Refused) else 409), f"It was not done: {words}.", code


def _log(site: Site, act: Act, user: User, values: Mapping[str, str], outcome: str, error: str) -> None:
    """Which user changed what; of passwords and records only how long they are."""
    private = {each.name for each in act.fields if each.is_private}
    known = {each.name for each in act.fields}
    told = " ".join(
        f"{name}={f'[{len(value)} characters]' if name in private else repr(value[:AUDIT_CHARACTERS_MAX])}"
        for name, value in sorted(values.items())
        if name in known and value
    )
    site.trail.note("act", user.identity, outcome, act=act.name, parameters=told, error=error)


def _pairs(text: str) -> dict[str, str]:
    """Raises Invalid."""
    try:
        found = parse_qs(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except ValueError:
        raise Invalid("the form cannot be read") from None
    return {name: values[-1] for name, values in found.items()}


def refusal_of(error: Exception) -> tuple[int, str] | None:
    """(HTTP's status, a sentence) for a form that is no form of this user's."""
    if isinstance(error, NotOwn):
        return 403, "A change is sent from the console's own page."
    if isinstance(error, UnknownToken):
        return 403, "This form is too old, or it is not yours. Nothing was changed: load the page again."
    if isinstance(error, StillActing):
        return 409, "This form was sent before, and is still being worked on. Load the page that it changes."
    if isinstance(error, UnicodeDecodeError):
        return 400, "The form cannot be read."
    return None
