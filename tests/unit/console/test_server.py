"""Where a console may listen, and who may send it what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ottla.client.config import ClientConfig
from ottla.client.security import Login, Security, SecurityFailure, Tls
from ottla.config.secret import Secret
from ottla.console import sessions as module
from ottla.console.app import Application
from ottla.console.asking import Site, User
from ottla.console.masks import Masks
from ottla.console.server import CannotStart, Options, ensure_guarded
from ottla.console.sessions import COOKIE, IDLE_S, SESSIONS_MAX, Sessions, WrongLogin, mechanisms_of
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.unit.console.fake_cluster import FakeBrokers, user

SASL = Security("SASL_SSL", Tls(), Login("SCRAM-SHA-512", "admin", Secret("x")))
ORIGIN = "http://localhost"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_loopback_needs_nothing(host: str) -> None:
    ensure_guarded(Options("b:1", host), is_secured=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org"])
def test_other_addresses_need_a_login_and_tls(host: str) -> None:
    with pytest.raises(CannotStart, match="everyone who reaches this machine could read every record"):
        ensure_guarded(Options("b:1", host), is_secured=True)
    with pytest.raises(CannotStart, match="passwords would be sent as they are"):
        ensure_guarded(Options("b:1", host, security=SASL), is_secured=False)
    ensure_guarded(Options("b:1", host, security=SASL), is_secured=True)
    ensure_guarded(Options("b:1", host, security=SASL, is_behind_proxy=True), is_secured=False)


@pytest.mark.parametrize(
    ("security", "wanted"),
    [
        (Security("SASL_PLAINTEXT", None, Login("SCRAM-SHA-256", "a")), ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        (Security("SASL_PLAINTEXT", None, Login("PLAIN", "a")), ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]),
        (SASL, ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]),
        (Security("SASL_PLAINTEXT", None, Login("OAUTHBEARER")), ["SCRAM-SHA-512", "SCRAM-SHA-256"]),
    ],
)
def test_a_password_is_sent_plain_only_over_tls_or_if_that_is_said(security: Security, wanted: list[str]) -> None:
    assert mechanisms_of(ClientConfig(("b:1",), security=security)) == wanted


class Guarding(FakeBrokers):
    """Takes one name and password."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(["orders"])
        self.config = config
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def metadata(self, values: Any) -> dict[str, Any]:
        login = self.config.security.login
        assert login is not None
        if login.mechanism != "SCRAM-SHA-256":
            raise SecurityFailure("not offered", ErrorCode.unsupported_sasl_mechanism)
        if (login.username, login.password.reveal()) not in (("alice", "right"), ("böb", "a:b")):
            raise SecurityFailure("refused")
        return super().metadata(values)


@pytest.fixture
def made() -> list[Guarding]:
    return []


@pytest.fixture
def sessions(made: list[Guarding]) -> Sessions:
    def make(name: str | None, config: ClientConfig) -> User:
        made.append(Guarding(config))
        return user(made[-1], name)

    return Sessions(ClientConfig(("b:1",), security=SASL), make)


class Browser:
    """Requests without a browser's own rules."""

    def __init__(self, application: Application) -> None:
        self._app = application.asgi()

    def ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(ask())


@pytest.fixture
def browser(sessions: Sessions) -> Iterator[Browser]:
    yield Browser(Application(Site(Masks()), sessions=sessions, is_secure=True))


def form(name: str = "alice", password: str = "right", there: str = "/topics") -> dict[str, str]:
    return {"user": name, "password": password, "next": there}


def cookie_of(answer: httpx.Response) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_a_login(browser: Browser, made: list[Guarding]) -> None:
    assert browser.ask("GET", "/topics?q=o").headers["location"] == "/login?next=%2Ftopics%3Fq%3Do"
    answer = browser.ask("POST", "/login", data=form())
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
    attributes = {each.strip().lower() for each in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= attributes
    page = browser.ask("GET", "/topics", headers=cookie_of(answer))
    assert page.status_code == 200
    assert "orders" in page.text
    assert "alice" in page.text
    assert browser.ask("POST", "/logout", headers=cookie_of(answer)).status_code == 303
    assert browser.ask("GET", "/topics", headers=cookie_of(answer)).status_code == 303
    assert all(each.is_closed for each in made)


@pytest.mark.parametrize("given", [form(password="wrong"), form(name=""), form(name="a" * 2000), {}])
def test_a_wrong_login(browser: Browser, given: dict[str, str], made: list[Guarding]) -> None:
    answer = browser.ask("POST", "/login", data=given)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "wrong" not in answer.text.replace("went wrong", "")
    assert all(each.is_closed for each in made)


def test_no_page_is_seen_without_a_login(browser: Browser) -> None:
    """Each route: pages lead to the login, the API says 401."""
    from ottla.console.routes import DOWNLOAD, PAGES

    for page in (*PAGES, DOWNLOAD):
        path = page.path.replace(":any}", "}")
        assert browser.ask("GET", path).headers["location"].startswith("/login?"), path
        assert browser.ask("GET", page.api_path).status_code == 401, path
        forged = {"cookie": f"{COOKIE}=abc.def"}
        assert browser.ask("GET", path, headers=forged).status_code == 303, path
    assert browser.ask("GET", "/unknown").status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://["},
    ],
)
def test_a_form_of_another_page_is_refused(browser: Browser, headers: dict[str, str]) -> None:
    assert browser.ask("POST", "/login", data=form(), headers=headers).status_code == 403
    own = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
    answer = browser.ask("POST", "/login", data=form(), headers=own)
    assert answer.status_code == 303
    assert browser.ask("POST", "/logout", headers={**cookie_of(answer), **headers}).status_code == 403
    assert browser.ask("GET", "/topics", headers=cookie_of(answer)).status_code == 200


def test_a_host_that_is_none_is_answered(browser: Browser) -> None:
    for path in ("/topics", "/api/v1/topics", "/login", "/unknown"):
        assert browser.ask("GET", path, headers={"host": "["}).status_code < 500, path


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "", "/\r\nX: y", "javascript:x"]
)
def test_nobody_is_sent_elsewhere(browser: Browser, there: str) -> None:
    assert browser.ask("POST", "/login", data=form(there=there)).headers["location"] == "/"


def test_a_form_has_a_limit(browser: Browser) -> None:
    assert browser.ask("POST", "/login", data=form(password="x" * 20_000)).status_code == 400


def test_programs_send_name_and_password(browser: Browser, made: list[Guarding]) -> None:
    for _ in range(3):
        answer = browser.ask("GET", "/api/v1/topics", auth=("böb", "a:b"))
        assert answer.json()["data"]["rows"][0]["name"] == "orders"
    # The login is checked once: mechanisms are tried, and then the session is used again.
    assert sum(not each.is_closed for each in made) == 1
    assert browser.ask("GET", "/api/v1/topics", auth=("böb", "a:c")).status_code == 401
    assert browser.ask("GET", "/api/v1/topics", headers={"authorization": "Bearer x"}).status_code == 401
    # Pages take no Basic: a browser would send it from anywhere.
    assert browser.ask("GET", "/topics", auth=("böb", "a:b")).status_code == 303


def test_sessions_end(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    session, cookie = sessions.log_in("alice", "right")
    now[0] += IDLE_S
    assert sessions.of_cookie(cookie) is session
    now[0] += IDLE_S + 1
    assert sessions.of_cookie(cookie) is None
    session, cookie = sessions.log_in("alice", "right")
    for _ in range(100):
        now[0] += IDLE_S / 10
        found = sessions.of_cookie(cookie)
    assert found is None


def test_sessions_have_a_limit(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    cookies = [sessions.log_in("alice", "right")[1] for _ in range(4)]
    assert [sessions.of_cookie(each) is not None for each in cookies] == [False, True, True, True]
    assert SESSIONS_MAX > 3


def test_a_name_is_no_part_of_another_password(sessions: Sessions) -> None:
    with pytest.raises(WrongLogin):
        sessions.of_password("alicer", "ight")
    one = sessions.of_password("alice", "right")
    assert sessions.of_password("alice", "right") is one


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "127.0.0.1.evil.example", "[", "[::1"])
def test_other_names_are_refused_where_no_login_protects(host: str) -> None:
    """DNS rebinding: a page elsewhere whose name suddenly leads here."""
    application = Application(
        Site(Masks()), anonymous=user(FakeBrokers(["orders"])), hosts=frozenset({"localhost", "127.0.0.1", "::1"})
    )
    browser = Browser(application)
    for path in ("/topics", "/api/v1/topics"):
        assert browser.ask("GET", path, headers={"host": host}).status_code == 400
        for own in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
            assert browser.ask("GET", path, headers={"host": own}).status_code == 200


def test_what_is_asked_of_brokers_does_not_grow_with_topics() -> None:
    """No N+1: as many requests for a thousand topics and groups as for one."""
    counts = []
    for size in (1, 1000):
        brokers = FakeBrokers(
            [f"t{number}" for number in range(size)], [(f"g{number}", "classic") for number in range(size)]
        )
        browser = Browser(Application(Site(Masks()), anonymous=user(brokers)))
        asked: dict[str, list[ApiKey]] = {}
        for path in ("/", "/topics", "/topics?sort=lag", "/groups", "/groups?sort=lag&order=desc", "/topics/t0"):
            brokers.asked.clear()
            assert browser.ask("GET", path).status_code == 200
            asked[path] = list(brokers.asked)
        counts.append(asked)
    assert counts[0] == counts[1]
