"""Logins at identity providers, over HTTP: the way there, the way back, and the logout.

What belongs to a login that is under way (state, nonce, the verifier of PKCE, the page to go on with) is in a signed
cookie of its own, so that many logins that are never ended take no room, and a link that someone else began logs
nobody in.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import anyio.to_thread
from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.console.access.bearer import Bearer
from ottla.console.access.provider import LoginFailed, Provider, ProviderAway
from ottla.console.access.roles import Identity
from ottla.console.sessions import Session, WrongLogin

if TYPE_CHECKING:
    from ottla.console.access.trail import Trail
    from ottla.console.pages import Renderer
    from ottla.console.sessions import Sessions

LOGIN_SECONDS_MAX: Final = 600
"""For a user at the provider."""
USED_MAX: Final = 10_000
"""Logins whose end is remembered, so that none is ended twice."""
PARAMETER_MAX: Final = 4_096
"""Characters of a code or a state."""
COOKIE_PREFIX: Final = "ottla_login_"
_STATE_SHOWN: Final = 16
"""Characters of the state in the cookie's name: several logins may be under way in one browser."""


class Logins:
    """The identity providers of a console."""

    def __init__(
        self, providers: Sequence[Provider], sessions: Sessions, trail: Trail, url: str, *, is_secure: bool
    ) -> None:
        self.providers: Mapping[str, Provider] = {each.settings.id: each for each in providers}
        self._sessions, self._trail, self._url, self._is_secure = sessions, trail, url, is_secure
        self._signer = URLSafeTimedSerializer(secrets.token_bytes(32), salt="ottla.console.login")
        self._lock = threading.Lock()
        self._used: dict[str, None] = {}
        self._limit = anyio.CapacityLimiter(4)

    @property
    def links(self) -> list[tuple[str, str]]:
        """(path of the login, title) of each provider."""
        return [(f"/oidc/{name}/login", each.settings.title) for name, each in self.providers.items()]

    def routes(self, host: Entrance) -> list[Route]:
        async def begin(request: Request) -> Response:
            return await self._begin(request, host)

        async def end(request: Request) -> Response:
            return await self._end(request, host)

        return [
            Route("/oidc/{provider}/login", begin, methods=["GET"]),
            Route("/oidc/{provider}/callback", end, methods=["GET"]),
        ]

    async def _begin(self, request: Request, host: Entrance) -> Response:
        provider = self.providers.get(request.path_params["provider"])
        if provider is None:
            return host.renderer.error(404, "There is no such identity provider.", None)
        there = host.inside(request.query_params.get("next", "/"))
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            url = await self._blocking(lambda: provider.login_url(state, nonce, verifier))
        except (LoginFailed, ProviderAway) as error:
            return host.renderer.login(there, "", f"{_sentence(error)}", 503)
        answer = RedirectResponse(url, 303)
        answer.set_cookie(
            _cookie(state),
            self._signer.dumps([provider.settings.id, state, nonce, verifier, there]),
            max_age=LOGIN_SECONDS_MAX,
            httponly=True,
            samesite="lax",
            secure=self._is_secure,
            path="/oidc",
        )
        return answer

    async def _end(self, request: Request, host: Entrance) -> Response:
        query = request.query_params
        state = query.get("state", "")[:PARAMETER_MAX]
        there = "/"
        name, who = request.path_params["provider"], None
        try:
            provider, nonce, verifier, there = self._begun(name, state, request.cookies)
            if "error" in query:
                await self._blocking(lambda: provider.check_issuer(query.get("iss")))
                raise LoginFailed(f"{provider.settings.title} let nobody in ({_word(query['error'])})")
            code = query.get("code", "")
            if not code or len(code) > PARAMETER_MAX:
                raise LoginFailed(f"{provider.settings.title} answered without a code")
            tokens = await self._blocking(lambda: provider.finish(code, verifier, nonce, query.get("iss")))
            who = tokens.identity
            bearer = Bearer(provider, tokens)
            session, cookie = await self._blocking(lambda: self._sessions.log_in_with(bearer))
            answer = host.entered(request, session, cookie, there)
        except (LoginFailed, WrongLogin) as error:
            self._trail.note("login", who or Identity("", name), "refused", provider=name, why=str(error))
            answer = host.renderer.login(there, "", f"The login was refused: {error}.", 401)
        except (ProviderAway, OSError) as error:
            self._trail.note("login", who or Identity("", name), "unknown", provider=name, why=str(error))
            answer = host.renderer.login(there, "", f"{_sentence(error)}", 503)
        answer.delete_cookie(_cookie(state), path="/oidc", httponly=True, samesite="lax", secure=self._is_secure)
        return answer

    def _begun(self, name: str, state: str, cookies: Mapping[str, str]) -> tuple[Provider, str, str, str]:
        """The provider, the nonce, the verifier and the page of a login that this browser began. Raises
        LoginFailed."""
        try:
            made = self._signer.loads(cookies.get(_cookie(state), ""), max_age=LOGIN_SECONDS_MAX)
        except BadData:
            made = None
        if not made or not hmac.compare_digest(str(made[1]).encode(), state.encode()):
            raise LoginFailed("this browser did not begin it, or took longer than ten minutes")
        if made[0] != name:
            raise LoginFailed("the answer comes from another identity provider than the login began with")
        with self._lock:
            if state in self._used:
                raise LoginFailed("it has ended already")
            self._used[state] = None
            while len(self._used) > USED_MAX:
                self._used.pop(next(iter(self._used)))
        return self.providers[name], made[2], made[3], made[4]

    def of_program(self, token: str) -> Session:
        """The session of a program that shows an access token. Raises WrongLogin, OSError."""
        if not 0 < len(token) <= PARAMETER_MAX * 4:
            raise WrongLogin("the token is empty, or too long")
        known = self._sessions.of_token(token)
        if known is not None:
            return known
        reason = "no identity provider of this console takes tokens of programs"
        for provider in self.providers.values():
            if not provider.settings.audience:
                continue
            try:
                tokens = provider.of_program(token)
            except LoginFailed as error:
                reason = str(error)
                continue
            except ProviderAway as error:
                raise ConnectionError(str(error)) from None
            return self._sessions.add_token(token, Bearer(provider, tokens))
        raise WrongLogin(reason)

    def logout_url(self, bearer: Bearer) -> str | None:
        """Where the browser ends its login at the provider too. Blocks."""
        if not bearer.tokens.id_token:
            return None
        return bearer.provider.logout_url(bearer.tokens, f"{self._url}/login")

    async def _blocking(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._limit)


class Entrance(Protocol):
    """What the application does for logins."""

    renderer: Renderer

    def inside(self, path: str) -> str: ...

    def entered(self, request: Request, session: Session, cookie: str, there: str) -> Response: ...


def _cookie(state: str) -> str:
    shown = "".join(each for each in state[:_STATE_SHOWN] if each.isascii() and (each.isalnum() or each in "-_"))
    return COOKIE_PREFIX + shown


def _word(text: str) -> str:
    """An error's code, which anyone may have written."""
    return "".join(each for each in text[:60] if each.isascii() and (each.isalnum() or each in "_-")) or "no reason"


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
