"""The console over HTTP: a Starlette application that answers from the table of pages, as HTML and as JSON."""

from __future__ import annotations

import base64
import dataclasses
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.client.security import SecurityFailure
from ottla.console import live, openapi
from ottla.console.access.logins import Logins
from ottla.console.access.roles import Forbidden, Identity
from ottla.console.acts import serving
from ottla.console.asking import Asking, Invalid, NotFound, Site, User
from ottla.console.brokers import Refused
from ottla.console.pages import Renderer
from ottla.console.requests import body_of, is_own
from ottla.console.routes import API, EVENTS, FILES, PAGES, Page
from ottla.console.sessions import COOKIE, LIFE_S, Session, Sessions, WrongLogin
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.version import VERSION

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("ottla.console")

STATIC: Final = Path(__file__).parent / "static"
FORM_BYTES_MAX: Final = 8 * 1024
PAGES_AT_ONCE: Final = 16
"""Requests that ask brokers at the same time; others wait, so that a burst of clicks is no burst for the cluster."""
LOGINS_AT_ONCE: Final = 4
"""A broker answers a wrong password after a tenth of a second, so this also limits guesses."""

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With no-referrer browsers say `Origin: null` of the console's own forms, which are refused then.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class _Anything(Convertor[str]):
    """The rest of a path, with slashes and line ends: names of groups may have both."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _Anything())


class SecurityHeaders:
    """Adds the headers to every answer, and keeps pages with data out of caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message.get("headers", []))
                for name, value in SECURITY_HEADERS.items():
                    headers[name.encode()] = value.encode()
                if not scope["path"].startswith("/static/"):
                    headers[b"cache-control"] = b"no-store"
                cookies = [each for each in message.get("headers", []) if each[0] == b"set-cookie"]
                headers.pop(b"set-cookie", None)
                message = {**message, "headers": [*headers.items(), *cookies]}
            await send(message)

        await self._app(scope, receive, secured)


class NotLoggedIn(Exception):
    """The cluster asks for a login, and the request has none."""


class Application:
    """The console for one cluster. `anonymous` is whoever comes, where the cluster asks for no login."""

    def __init__(
        self,
        site: Site,
        *,
        sessions: Sessions | None = None,
        anonymous: User | None = None,
        hosts: frozenset[str] | None = None,
        is_secure: bool = False,
        logins: Logins | None = None,
        takes_passwords: bool = True,
    ) -> None:
        """`hosts` are the names by which the console may be called; None for all. `is_secure`: it is reached by
        https. `logins` are those at identity providers."""
        if (sessions is None) == (anonymous is None):
            raise ValueError("a console has logins or one user for all, not both")
        site = dataclasses.replace(site, has_login=sessions is not None)
        self.site, self._sessions, self._anonymous = site, sessions, anonymous
        self._hosts, self._is_secure = hosts, is_secure
        self._tails = live.Tails()
        acts = serving.served(site)
        self._logins, self._takes_passwords = logins, takes_passwords
        self.renderer = Renderer(
            has_login=sessions is not None,
            has_registry=site.registry is not None,
            acts=acts,
            providers=[] if logins is None else logins.links,
            takes_passwords=takes_passwords,
        )
        self.limit = anyio.CapacityLimiter(PAGES_AT_ONCE)
        self._logins_limit = anyio.CapacityLimiter(LOGINS_AT_ONCE)

    def asgi(self) -> ASGIApp:
        routes: list[Any] = [
            Route("/login", self.login_page, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
            Route(f"{API}/openapi.json", self.openapi_document, methods=["GET"]),
            Route(EVENTS.path, self._events, methods=["GET"]),
            Route(EVENTS.api_path, self._events, methods=["GET"]),
            *(Route(f"{at}/searches/{{run}}", self._search, methods=["GET"]) for at in ("", API)),
            *(Route(f"{at}/searches/{{run}}/stop", self._search, methods=["POST"]) for at in ("", API)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        for page in FILES:
            routes += [Route(path, self._download(page), methods=["GET"]) for path in (page.path, page.api_path)]
        for page in PAGES:
            routes.append(Route(page.path, self._endpoint(page, as_json=False), methods=["GET"], name=page.name))
            path = page.path if page.path != "/" else f"/{page.name}"
            routes.append(Route(API + path, self._endpoint(page, as_json=True), methods=["GET"]))
        routes += serving.routes(self)
        routes += [] if self._logins is None else self._logins.routes(self)
        routes.append(Route("/{path:any}", self._nothing, methods=["GET"]))
        return SecurityHeaders(Starlette(routes=routes))

    def _endpoint(self, page: Page, *, as_json: bool) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return await self.guarded(request, as_json, lambda user: self._page(request, page, user, as_json))

        return answer

    def _download(self, page: Page) -> Callable[[Request], Any]:
        async def found(request: Request, user: User) -> Response:
            asking = self._asking(request, page, user)
            work = lambda: anyio.to_thread.run_sync(page.view, asking, limiter=self.limit)  # noqa: E731
            found = await live.heeding(request, asking, work)
            disposition = f"attachment; filename*=UTF-8''{quote(found.name, safe='')}"
            return Response(
                found.data, media_type="application/octet-stream", headers={"content-disposition": disposition}
            )

        async def answer(request: Request) -> Response:
            as_json = request.url.path.startswith(API)
            return await self.guarded(request, as_json, lambda user: found(request, user))

        return answer

    async def _events(self, request: Request) -> Response:
        as_json = request.url.path.startswith(API)

        async def answer(user: User) -> Response:
            asking = self._asking(request, EVENTS, user)
            shown = live.as_json if as_json else self.renderer.record
            return await self._tails.answer(asking, request.headers.get("last-event-id"), shown)

        return await self.guarded(request, as_json, answer)

    async def _search(self, request: Request) -> Response:
        """How far a reading is, or its end. Only a page of this console may end one."""

        async def answer(user: User) -> Response:
            asking, run = Asking(user, self.site, {}), request.path_params["run"]
            if request.method == "GET":
                return await anyio.to_thread.run_sync(live.progress, asking, run, self.renderer.record)
            if not is_own(request):
                raise Invalid("a reading is stopped from the console's own page")
            return live.stop(asking, run)

        is_change = request.method == "POST" and request.url.path.startswith(API)
        return await self.guarded(request, True, answer, by_password=is_change)

    def end_tails(self) -> None:
        """Answers without an end have one now; on the event loop."""
        self._tails.end()

    def renew_tails(self) -> None:
        """The rules have changed; from any thread."""
        self._tails.renew()

    async def _nothing(self, request: Request) -> Response:
        async def answer(user: User) -> Response:
            raise NotFound(f"There is no page {request.url.path}.")

        return await self.guarded(request, request.url.path.startswith(API), answer)

    async def openapi_document(self, request: Request) -> Response:
        return JSONResponse(self._document)

    @functools.cached_property
    def _document(self) -> dict[str, Any]:
        """Made when somebody asks: it costs ten milliseconds."""
        return openapi.document(VERSION, serving.served(self.site))

    def _asking(self, request: Request, page: Page, user: User) -> Asking:
        query = {name: values[-1] for name, values in _query(request).items()}
        return Asking(user, self.site, page.parameters(request.path_params, query))

    async def _page(self, request: Request, page: Page, user: User, as_json: bool) -> Response:
        asking = self._asking(request, page, user)

        def answer() -> Response:
            data = page.view(asking)
            if as_json:
                problems = {name: dataclasses.asdict(each) for name, each in asking.problems.items()}
                values = {"data": dataclasses.asdict(data), "problems": problems, "age_s": round(asking.age_s, 3)}
                return JSONResponse(values)
            return self.renderer.page(page, asking, data, user.name)

        return await live.heeding(request, asking, lambda: anyio.to_thread.run_sync(answer, limiter=self.limit))

    async def guarded(
        self,
        request: Request,
        as_json: bool,
        answer: Callable[[User], Awaitable[Response]],
        *,
        by_password: bool = False,
    ) -> Response:
        """Whatever happens, an answer in the form that was asked for. `by_password`: no cookie is taken."""
        user: User | None = None
        try:
            self._ensure_host(request)
            user = await self._user(request, as_json, by_password=by_password)
            self.site.rights_of(user).ensure_any()
            return await answer(user)
        except NotLoggedIn:
            if as_json:
                return JSONResponse({"error": "log in with the name and password of a user of the cluster"}, 401)
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?{urlencode({'next': there})}", 303)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            status, sentence = serving.refusal_of(error) or _explained(error)
            if isinstance(error, Forbidden) and user is not None:
                self.site.trail.note("refused", user.identity, "refused", path=request.url.path, why=str(error))
            if status == 500:
                _LOG.error("a request failed", exc_info=error, extra=fields(path=request.url.path))
            if as_json:
                return JSONResponse({"error": sentence}, status)
            return self.renderer.error(status, sentence, None if user is None else user.name)

    def _ensure_host(self, request: Request) -> None:
        """A page elsewhere whose name suddenly leads here (DNS rebinding) must not read what no login protects."""
        if self._hosts is None:
            return
        given = request.headers.get("host", "")
        try:
            host = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            raise Invalid(f"{given[:100]!r} is not a host") from None
        if host not in self._hosts:
            raise Invalid(f"this console is not called {host!r}; allow the name with --host-name")

    # Logins

    async def _user(self, request: Request, as_json: bool, *, by_password: bool) -> User:
        """Raises NotLoggedIn, WrongLogin, OSError."""
        if self._sessions is None:
            assert self._anonymous is not None
            return self._anonymous
        if as_json and (given := request.headers.get("authorization")) is not None:
            scheme, _, token = given.partition(" ")
            if scheme.lower() == "bearer" and self._logins is not None:
                of_token, shown = self._logins.of_program, token.strip()
                session = await anyio.to_thread.run_sync(of_token, shown, limiter=self._logins_limit)
                return session.user
            if not self._takes_passwords:
                raise NotLoggedIn
            name, password = _basic(given)
            session = await anyio.to_thread.run_sync(
                self._sessions.of_password, name, password, limiter=self._logins_limit
            )
            return session.user
        found = None if by_password else self._session(request)
        if found is None:
            raise NotLoggedIn
        bearer = found.user.bearer
        if bearer is not None and bearer.is_due:
            await anyio.to_thread.run_sync(bearer.renew, limiter=self._logins_limit)
            if bearer.is_over:
                self.site.trail.note("logout", bearer.identity, "ended", why="the identity provider ended it")
                assert self._sessions is not None
                self._sessions.end(found)
                raise NotLoggedIn
        return found.user

    def _session(self, request: Request) -> Session | None:
        cookie = request.cookies.get(COOKIE)
        return None if self._sessions is None or not cookie else self._sessions.of_cookie(cookie)

    async def login_page(self, request: Request) -> Response:
        if self._sessions is None:
            return RedirectResponse("/", 303)
        return self.renderer.login(_inside(request.query_params.get("next", "/")), "", "")

    def inside(self, path: str) -> str:
        """A path of this console, else the first page."""
        return _inside(path)

    async def log_in(self, request: Request) -> Response:
        if self._sessions is None:
            return RedirectResponse("/", 303)
        if not is_own(request):
            return self.renderer.error(403, "A login is sent from the console's own page.", None)
        if not self._takes_passwords:
            return self.renderer.error(403, "Users log in at the identity provider here.", None)
        try:
            form = await _form(request)
        except Invalid as error:
            return self.renderer.error(400, str(error), None)
        name, password, there = form.get("user", ""), form.get("password", ""), _inside(form.get("next", "/"))
        client = request.client.host if request.client is not None else None
        try:
            session, cookie = await anyio.to_thread.run_sync(
                self._sessions.log_in, name, password, limiter=self._logins_limit
            )
        except WrongLogin as error:
            self.site.trail.note("login", Identity(name), "refused", client=client)
            return self.renderer.login(there, name, f"The login was refused: {error}.", 401)
        except (OSError, KafkaError) as error:
            _LOG.warning("a login cannot be checked", extra=fields(error=str(error)))
            return self.renderer.login(there, name, f"The brokers could not be asked: {error}.", 503)
        return self._in(request, session, cookie, RedirectResponse(there, 303))

    def entered(self, request: Request, session: Session, cookie: str, there: str) -> Response:
        """After a login at an identity provider. What follows a redirect from elsewhere comes without the cookie, so
        a page leads on."""
        answer = self.renderer.elsewhere("Logged in", "You are logged in.", there, "Go on")
        return self._in(request, session, cookie, answer)

    def _in(self, request: Request, session: Session, cookie: str, answer: Response) -> Response:
        assert self._sessions is not None
        client = request.client.host if request.client is not None else None
        roles = self.site.rights_of(session.user).names
        self.site.trail.note("login", session.user.identity, "accepted", client=client, roles=roles)
        old = self._session(request)
        if old is not None:
            self._sessions.end(old)
        self._warm(session.user)
        answer.set_cookie(
            COOKIE, cookie, max_age=int(LIFE_S), httponly=True, samesite="strict", secure=self._is_secure, path="/"
        )
        return answer

    def _warm(self, user: User) -> None:
        """Begin to read the cluster while the browser asks for the first page."""

        def read() -> None:
            try:
                Asking(user, self.site, {}).cluster()
            except (KafkaError, OSError) as error:
                _LOG.info("the cluster cannot be read ahead", extra=fields(error=str(error)))

        threading.Thread(target=read, name="console warm", daemon=True).start()

    async def log_out(self, request: Request) -> Response:
        session = self._session(request)
        if not is_own(request):
            return self.renderer.error(403, "A logout is sent from the console's own page.", None)
        answer: Response = RedirectResponse("/login", 303)
        if session is not None and self._sessions is not None:
            self.site.trail.note("logout", session.user.identity, "done")
            self._sessions.end(session)
            answer = await self._out(session) or answer
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=self._is_secure)
        return answer

    async def _out(self, session: Session) -> Response | None:
        """The page that leads to the provider's own logout, if there is one."""
        bearer = session.user.bearer
        if bearer is None or self._logins is None:
            return None
        leave = functools.partial(self._logins.logout_url, bearer)
        url = await anyio.to_thread.run_sync(leave, limiter=self._logins_limit)
        if url is None:
            return None
        title = bearer.provider.settings.title
        return self.renderer.elsewhere("Logged out", "You are logged out here.", url, f"Log out of {title} too")


def _explained(error: Exception) -> tuple[int, str]:
    """(HTTP's status, a sentence) for what a request ended with."""
    if isinstance(error, Invalid):
        return 400, f"The request cannot be: {error}."
    if isinstance(error, NotFound):
        return 404, str(error)
    if isinstance(error, WrongLogin):
        return 401, f"The login was refused: {error}."
    if isinstance(error, Refused | Forbidden):
        return 403, f"This is not shown: {error}."
    if isinstance(error, SecurityFailure):
        return 503, f"The brokers refuse this user: {error}."
    if isinstance(error, KafkaError):
        return 503, f"The brokers answered with an error: {error.message or error.code.name.upper()}."
    if isinstance(error, OSError):
        return 503, f"The brokers could not be asked: {error}."
    return 500, "This is a bug of the console; its log has the details."


def _query(request: Request) -> dict[str, list[str]]:
    try:
        return parse_qs(request.url.query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise Invalid("there are too many parameters") from None


def _basic(header: str) -> tuple[str, str]:
    """Name and password of HTTP Basic. Raises NotLoggedIn for anything else."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        raise NotLoggedIn
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        raise NotLoggedIn from None
    if not colon:
        raise NotLoggedIn
    return name, password


def _inside(path: str) -> str:
    """A path of this console, else the first page: nobody is sent elsewhere after a login."""
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_own and not urlsplit(path).netloc else "/"


async def _form(request: Request) -> dict[str, str]:
    """Raises Invalid."""
    body = await body_of(request, FORM_BYTES_MAX)
    try:
        return {name: values[-1] for name, values in parse_qs(body.decode(), max_num_fields=10).items()}
    except ValueError:
        raise Invalid("the form cannot be read") from None
