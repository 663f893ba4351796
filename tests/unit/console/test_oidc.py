"""Logins at an identity provider that runs and checks what such ones check; and everything that it may do wrong, or
someone between it and the browser."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from ottla.client.config import ClientConfig
from ottla.client.security import Login, Security, SecurityFailure
from ottla.config.secret import Secret
from ottla.console.access import bearer as bearer_module
from ottla.console.access import logins as logins_module
from ottla.console.access import provider as provider_module
from ottla.console.access.logins import Logins
from ottla.console.access.provider import TOKEN_S, Provider
from ottla.console.access.provider_settings import ProviderSettings, parse_oidc
from ottla.console.access.roles import Role, Roles
from ottla.console.app import Application
from ottla.console.asking import Site, User
from ottla.console.hung import ANSWER_S
from ottla.console.masks import Masks
from ottla.console.server import CannotStart, Options, ensure_oidc
from ottla.console.sessions import COOKIE, Sessions
from ottla.drivers.nodes.identity_provider import Endpoint
from ottla.errors import ErrorCode, OttlaError
from tests.unit.console.fake_cluster import FakeBrokers, user
from tests.unit.console.openid_provider import AUDIENCE, CLIENT, SECRET, OpenIdProvider

URL = "http://console.example"
SASL = Security("SASL_PLAINTEXT", None, Login("SCRAM-SHA-512", "admin", Secret("x")))


class Trusting(FakeBrokers):
    """Takes the tokens that the provider has issued."""

    def __init__(self, config: ClientConfig, takes: Callable[[str], bool]) -> None:
        super().__init__(["orders"])
        self.config, self._takes = config, takes
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def metadata(self, values: Any) -> dict[str, Any]:
        login = self.config.security.login
        assert login is not None
        if login.bearer is None or not self._takes(login.bearer.token()):
            raise SecurityFailure("refused", ErrorCode.sasl_authentication_failed)
        return super().metadata(values)


class Clock:
    """The wall clock of a console, which may be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Browser:
    """A browser with one console and its cookies; it follows no redirect by itself."""

    def __init__(self, *providers: OpenIdProvider, roles: Roles | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.brokers: list[Trusting] = []
        site = Site(Masks(), roles=roles or Roles())
        self.site = site
        sessions = Sessions(ClientConfig(("b:1",), security=SASL), self._user)
        made = []
        self.issued = [each.issued for each in providers]
        for number, each in enumerate(providers):
            name = f"p{number}"
            each.redirects.add(f"{URL}/oidc/{name}/callback")
            secret = None if each.is_public else Secret(SECRET)
            wanted = ProviderSettings(name, f"Corp {number}", each.issuer, CLIENT, secret, **settings)
            made.append(
                Provider(wanted, f"{URL}/oidc/{name}/callback", claims=lambda: site.roles.claims, now=self.clock)
            )
        self.logins = Logins(made, sessions, site.trail, URL, is_secure=False)
        self.app = Application(site, sessions=sessions, logins=self.logins, takes_passwords=False).asgi()
        self.cookies: dict[str, str] = {}

    def _user(self, name: str | None, config: ClientConfig) -> User:
        self.brokers.append(Trusting(config, lambda token: any(token in each for each in self.issued)))
        return user(self.brokers[-1], name)

    def ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
                return await client.request(method, path, **arguments)

        headers = {**arguments.pop("headers", {}), "cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        arguments["headers"] = headers
        answer = asyncio.run(ask())
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            if "max-age=0" in line.lower():
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer

    def begin(self, name: str = "p0", there: str = "/topics") -> str:
        """The address at the provider."""
        answer = self.ask("GET", f"/oidc/{name}/login", params={"next": there})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def back(self, address: str) -> str:
        """The address of the console to which the provider sends the browser."""
        answer = httpx.get(address)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def log_in(self, there: str = "/topics") -> httpx.Response:
        return self.ask("GET", self.back(self.begin(there=there)))

    @property
    def is_in(self) -> bool:
        return self.ask("GET", "/topics").status_code == 200


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with OpenIdProvider().running() as found:
        yield found


def leads_to(page: httpx.Response) -> str:
    """Where the page goes at once."""
    match = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', page.text)
    assert match is not None, page.text
    return unescape(match[1])


def test_a_login_and_a_logout(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    assert browser.ask("GET", "/topics?q=o").headers["location"] == "/login?next=%2Ftopics%3Fq%3Do"
    assert "/oidc/p0/login?next=%2Ftopics" in browser.ask("GET", "/login?next=/topics").text
    page = browser.log_in("/topics?q=o")
    assert page.status_code == 200
    # A page and no redirect: browsers send a cookie of SameSite=strict only with what the console itself begins.
    assert leads_to(page) == "/topics?q=o"
    attributes = page.headers.get_list("set-cookie")
    assert any(each.startswith(COOKIE) and "SameSite=strict" in each and "HttpOnly" in each for each in attributes)
    assert list(browser.cookies) == [COOKIE], "the cookie of the login is dropped"
    assert "orders" in browser.ask("GET", "/topics").text
    page = browser.ask("POST", "/logout")
    query = dict(parse_qsl(urlsplit(leads_to(page)).query))
    assert query["post_logout_redirect_uri"] == f"{URL}/login" and query["id_token_hint"] in provider.issued
    assert not browser.is_in
    assert all(each.is_closed for each in browser.brokers)
    kinds = [(each.kind, each.user, each.subject, each.outcome) for each in browser.site.trail.entries()]
    who = ("alice", f"{provider.issuer} alice")
    assert kinds == [("logout", *who, "done"), ("login", *who, "accepted")]


def test_brokers_are_shown_the_token_that_the_settings_name(provider: OpenIdProvider) -> None:
    for credential, audience in (("access_token", AUDIENCE), ("id_token", CLIENT)):
        browser = Browser(provider, credential=credential)
        browser.log_in()
        login = browser.brokers[-1].config.security.login
        assert login is not None and login.bearer is not None and login.mechanism == "OAUTHBEARER"
        import jwt

        assert jwt.decode(login.bearer.token(), options={"verify_signature": False})["aud"] == audience
        assert login.bearer.token() not in repr(login)


def test_a_public_client(provider: OpenIdProvider) -> None:
    provider.is_public = True
    assert Browser(provider).log_in().status_code == 200


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "another nonce": ({"lies": {"nonce": "x"}}, "of another login (nonce)"),
    "no nonce": ({"lies": {"nonce": None}}, "of another login (nonce)"),
    "another issuer": ({"lies": {"iss": "https://evil.example"}}, "of another issuer (iss)"),
    "another audience": ({"lies": {"aud": "another"}}, "for another audience (aud)"),
    "the brokers' audience": ({"lies": {"aud": AUDIENCE}}, "for another audience (aud)"),
    "no audience": ({"lies": {"aud": None}}, "for another audience (aud)"),
    "many audiences": ({"lies": {"aud": [CLIENT, "another"]}}, "to another client (azp)"),
    "another party": ({"lies": {"azp": "another"}}, "to another client (azp)"),
    "expired": ({"lies": {"exp": 1_700_000_000}}, "has expired"),
    "from the future": ({"lies": {"iat": 4_000_000_000}}, "in the future (iat)"),
    "not valid yet": ({"lies": {"nbf": 4_000_000_000}}, "not valid yet (nbf)"),
    "no subject": ({"lies": {"sub": None}}, "no name in claim sub"),
    "another access token": ({"lies": {"at_hash": "AAAA"}}, "the access token is another (at_hash)"),
    "no algorithm": ({"algorithm": "none"}, "algorithm is not one of"),
    "the public key as a secret": ({"algorithm": "HS256"}, "algorithm is not one of"),
    "another key": ({"algorithm": "stranger"}, "signature is not valid"),
    "refused": ({"refusal": "access_denied"}, "let nobody in (access_denied)"),
    "refused with markup": ({"refusal": "<b>x</b>"}, "let nobody in (bxb)"),
    "the issuer is left out": ({"answer_issuer": None}, "does not say which identity provider"),
    "the answer is of another": ({"answer_issuer": "https://evil.example"}, "comes from another identity provider"),
}


@pytest.mark.parametrize("case", LIES)
def test_a_provider_that_is_not_believed(provider: OpenIdProvider, case: str) -> None:
    settings, sentence = LIES[case]
    for name, value in settings.items():
        setattr(provider, name, value)
    browser = Browser(provider)
    page = browser.log_in()
    assert page.status_code == 401
    assert sentence in unescape(page.text)
    assert not browser.cookies and not browser.is_in
    assert not browser.brokers, "no broker was shown the token"
    assert browser.site.trail.entries()[0].outcome == "refused"


DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"issuer": "https://evil.example"}, "says that it is another issuer"),
    "no endpoint": ({"token_endpoint": None}, "cannot be used"),
    "an endpoint in clear": ({"token_endpoint": "http://login.example/token"}, "must be https"),
    "keys in clear": ({"jwks_uri": "http://login.example/jwks"}, "must be https"),
    "a file": ({"jwks_uri": "file:///etc/passwd"}, "cannot be used"),
    "a script": ({"authorization_endpoint": "javascript:alert(1)"}, "cannot be used"),
    "a password in it": ({"token_endpoint": "https://a:b@login.example/"}, "cannot be used"),
    "no PKCE": ({"code_challenge_methods_supported": ["plain"]}, "does not know PKCE"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_document_that_cannot_be_used(provider: OpenIdProvider, case: str) -> None:
    provider.document, sentence = DOCUMENTS[case]
    answer = Browser(provider).ask("GET", "/oidc/p0/login")
    assert answer.status_code == 503
    assert sentence in unescape(answer.text)


def test_a_provider_that_is_away() -> None:
    with OpenIdProvider().running() as gone:
        browser = Browser(gone)
    answer = browser.ask("GET", "/oidc/p0/login")
    assert answer.status_code == 503
    assert "Corp 0 cannot be asked" in answer.text
    assert browser.ask("GET", "/oidc/none/login").status_code == 404


def test_a_provider_that_hangs_is_waited_for_once_and_not_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is an older document to go by; without one nobody can log in anyway."""
    asked, document = (
        list[Endpoint](),
        json.dumps(
            {
                "issuer": "https://login.example",
                "authorization_endpoint": "https://login.example/a",
                "token_endpoint": "https://login.example/t",
                "jwks_uri": "https://login.example/k",
            }
        ).encode(),
    )
    hangs = False

    def ask(endpoint: Endpoint, *_: Any) -> bytes:
        asked.append(endpoint)
        if hangs:
            raise TimeoutError("timed out")
        return document

    settings = ProviderSettings("corp", "Corp", "https://login.example", CLIENT, None)
    provider = Provider(settings, f"{URL}/oidc/corp/callback", asked=ask)
    monkeypatch.setattr(provider_module, "METADATA_FRESH_S", 0.0)
    provider.metadata()
    hangs = True
    provider.metadata()
    assert [(each.connect_s, each.read_s) for each in asked] == [(ANSWER_S, TOKEN_S), (ANSWER_S, ANSWER_S)]
    monkeypatch.setattr(provider_module, "METADATA_FRESH_S", 3600.0)
    for _ in range(10):
        provider.login_url("state", "nonce", "verifier")
    assert len(asked) == 2


def changed(address: str, **values: str) -> str:
    parts = urlsplit(address)
    return parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **values})).geturl()


def test_answers_that_this_browser_did_not_begin(provider: OpenIdProvider) -> None:
    """Wrong, missing and old states, and those of others: nothing is asked of the provider."""
    browser, victim = Browser(provider), Browser(provider)
    address = browser.back(browser.begin())
    for tried in (changed(address, state="x" * 43), changed(address, state=""), changed(address, state="é")):
        page = browser.ask("GET", tried)
        assert page.status_code == 401 and "this browser did not begin it" in page.text
    # The link of an attacker, who would have others act in the attacker's name.
    assert victim.ask("GET", address).status_code == 401
    # A cookie of the same name that the attacker's own console made.
    victim.cookies |= browser.cookies
    assert victim.ask("GET", address).status_code == 401
    assert not any(each.startswith("/token") for each in provider.asked)


def test_an_answer_is_for_one_time(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    address = browser.back(browser.begin())
    kept = dict(browser.cookies)
    assert browser.ask("GET", address).status_code == 200
    browser.cookies = dict(kept)
    page = browser.ask("GET", address)
    assert page.status_code == 401 and "it has ended already" in page.text
    # A code that was used, in the answer to another login.
    second = browser.back(browser.begin())
    code = dict(parse_qsl(urlsplit(address).query))["code"]
    page = browser.ask("GET", changed(second, code=code))
    assert page.status_code == 401 and "gave no token (invalid_grant)" in page.text
    # A code of another browser's login, whose verifier this one does not have.
    third, other = browser.begin(), Browser(provider)
    stolen = dict(parse_qsl(urlsplit(other.back(other.begin())).query))["code"]
    page = browser.ask("GET", changed(browser.back(third), code=stolen))
    assert page.status_code == 401 and "gave no token (invalid_grant)" in page.text


def test_a_login_ends_after_ten_minutes(provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(provider)
    address = browser.back(browser.begin())
    monkeypatch.setattr(logins_module, "LOGIN_SECONDS_MAX", -1)
    assert browser.ask("GET", address).status_code == 401


def test_two_providers_are_not_mixed_up(provider: OpenIdProvider) -> None:
    """A login that began at one does not end with the answer of the other (RFC 9700, 4.4)."""
    with OpenIdProvider(subject="mallory").running() as other:
        browser = Browser(provider, other)
        address = browser.back(browser.begin("p0"))
        page = browser.ask("GET", address.replace("/oidc/p0/", "/oidc/p1/"))
        assert page.status_code == 401 and "from another identity provider" in page.text
        code = dict(parse_qsl(urlsplit(browser.back(browser.begin("p1"))).query))["code"]
        page = browser.ask("GET", changed(browser.back(browser.begin("p0")), code=code, iss=other.issuer))
        assert page.status_code == 401 and "from another identity provider" in page.text
        assert not any(each.startswith("/token") for each in (*provider.asked, *other.asked))
        assert not browser.is_in


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "/\r\nX: y", "javascript:x", "/\t/evil"]
)
def test_nobody_is_sent_elsewhere(provider: OpenIdProvider, there: str) -> None:
    assert leads_to(Browser(provider).log_in(there)) == "/"


def test_a_token_that_no_broker_takes(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    browser.issued = []
    page = browser.log_in()
    assert page.status_code == 401 and "the brokers do not take the token of Corp 0" in page.text
    assert all(each.is_closed for each in browser.brokers)


def test_tokens_are_renewed_and_the_session_ends_with_them(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    browser.log_in()
    browser.clock.ahead_s += provider.life_s - bearer_module.RENEW_S - 1
    assert browser.is_in and "/token refresh_token" not in provider.asked
    browser.clock.ahead_s += 2
    assert browser.is_in and "/token refresh_token" in provider.asked
    browser.clock.ahead_s += 2 * provider.life_s
    assert not browser.is_in, "nobody came for so long that the tokens have ended"


def test_groups_are_those_of_the_newest_token(provider: OpenIdProvider) -> None:
    browser = Browser(provider, roles=Roles([Role("all", groups=("staff",), data=("*",))]))
    provider.claims, provider.life_s = {"groups": ["staff"]}, 10_000
    browser.log_in()
    assert browser.is_in
    provider.claims = {"groups": []}
    browser.clock.ahead_s += provider.life_s - 10
    provider.life_s *= 3
    page = browser.ask("GET", "/topics")
    assert page.status_code == 403 and "you have no role" in page.text


def test_a_login_that_the_provider_ended(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    browser.log_in()
    provider.revoke()
    assert browser.is_in
    browser.clock.ahead_s += provider.life_s - 10
    assert browser.ask("GET", "/topics").status_code == 303
    assert browser.site.trail.entries()[0].kind == "logout"
    assert all(each.is_closed for each in browser.brokers)


def test_without_refresh_tokens_a_session_ends_with_its_token(provider: OpenIdProvider) -> None:
    provider.has_refresh = False
    browser = Browser(provider)
    browser.log_in()
    browser.clock.ahead_s += provider.life_s - 1
    assert browser.is_in
    browser.clock.ahead_s += 2
    assert not browser.is_in


def test_a_renewed_login_is_of_the_same_user(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    browser.log_in()
    provider.subject = "mallory"
    browser.clock.ahead_s += provider.life_s - 10
    assert not browser.is_in


def test_clocks_may_differ_by_what_the_settings_say(provider: OpenIdProvider) -> None:
    provider.life_s = 60
    for ahead_s, status in ((85, 401), (-25, 200), (-35, 401)):
        browser = Browser(provider)
        address = browser.back(browser.begin())
        browser.clock.ahead_s = ahead_s + (10 if ahead_s == 85 else 0)
        assert browser.ask("GET", address).status_code == status, ahead_s


def test_programs_show_access_tokens(provider: OpenIdProvider) -> None:
    browser = Browser(provider, audience=AUDIENCE)

    def ask(token: str) -> int:
        return browser.ask("GET", "/api/v1/topics", headers={"authorization": f"Bearer {token}"}).status_code

    token = provider.access_token()
    assert [ask(token), ask(token)] == [200, 200]
    assert len(browser.brokers) == 1, "the session is used again"
    for wrong in (
        provider.access_token(aud=CLIENT),
        provider.access_token(iss="https://evil.example"),
        provider.access_token(exp=1_700_000_000),
        token[:-6] + "AAAAAA",
        "",
        "x",
        "a.b.c",
        "x" * 100_000,
    ):
        assert ask(wrong) == 401
    # Pages take no token: a page elsewhere must not be able to send one.
    assert browser.ask("GET", "/topics", headers={"authorization": f"Bearer {token}"}).status_code == 303
    assert (
        Browser(provider).ask("GET", "/api/v1/topics", headers={"authorization": f"Bearer {token}"}).status_code == 401
    ), "without an audience none is taken"


def test_passwords_are_refused_where_the_settings_say_so(provider: OpenIdProvider) -> None:
    browser = Browser(provider)
    assert 'type="password"' not in browser.ask("GET", "/login").text
    assert browser.ask("POST", "/login", data={"user": "a", "password": "b"}).status_code == 403
    assert browser.ask("GET", "/api/v1/topics", auth=("a", "b")).status_code == 401


PROVIDER = {"id": "corp", "issuer": "https://login.example", "client_id": "c"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "names no provider"),
        ({"provider": {}}, "names no provider"),
        ({"providers": []}, "unknown entry 'providers'"),
        ({"url": "http://console.example", "provider": [PROVIDER]}, "must be https"),
        ({"url": "https://console.example/x", "provider": [PROVIDER]}, "without a path"),
        ({"passwords": "no", "provider": [PROVIDER]}, "passwords must be true or false"),
        ({"provider": [{**PROVIDER, "id": "Corp/.."}]}, "id has 1 to 32"),
        ({"provider": [{**PROVIDER, "issuer": "http://login.example"}]}, "must be https"),
        ({"provider": [{"id": "a", "issuer": "https://login.example"}]}, "client_id is missing"),
        ({"provider": [{**PROVIDER, "secret": "x"}]}, "unknown entry 'secret'"),
        ({"provider": [{**PROVIDER, "scopes": ["profile"]}]}, "scopes must have openid"),
        ({"provider": [{**PROVIDER, "credential": "code"}]}, "credential is one of"),
        ({"provider": [{**PROVIDER, "skew_seconds": 3600}]}, "from 0 to 300"),
        ({"provider": [{**PROVIDER, "parameters": {"redirect_uri": "x"}}]}, "sets redirect_uri itself"),
        ({"provider": [{**PROVIDER, "client_secret_file": "/none"}]}, "cannot be read"),
        ({"provider": [{**PROVIDER, "client_secret_file": "/x", "client_secret": "y"}]}, "both set"),
        ({"provider": [PROVIDER, PROVIDER]}, "two providers have the same id"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OttlaError, match=complaint):
        parse_oidc(given, "f")


def test_where_a_console_does_not_start() -> None:
    oidc = parse_oidc({"provider": [PROVIDER]}, "f")
    with pytest.raises(CannotStart, match="could not tell the users"):
        ensure_oidc(Options("b:1"), oidc)
    ensure_oidc(Options("b:1", security=SASL), oidc)
    for options in (Options("b:1", "0.0.0.0", security=SASL), Options("b:1", security=SASL, is_behind_proxy=True)):
        with pytest.raises(CannotStart, match="by a URL that it knows"):
            ensure_oidc(options, oidc)
        ensure_oidc(options, parse_oidc({"url": "https://c.example", "provider": [PROVIDER]}, "f"))
