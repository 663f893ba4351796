"""A console whose users log in at an identity provider, beside a node that takes the same tokens: the node's authorizer
decides. Only a node shows that it is the user's own token that it is asked with; only a browser, that its cookies come
back from another site; only a provider of others, that ours is no dialect."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from playwright.sync_api import sync_playwright

from ottla.client.security_settings import parse_security
from ottla.console.routes import API
from ottla.console.server import Console, Options
from ottla.testing.process import reserve
from peers.kafka import free_port
from tests.conformance.clients import build
from tests.node import NodeProcess
from tests.unit.console.openid_provider import AUDIENCE, CLIENT, SECRET, OpenIdProvider

LIMIT_S = 60.0
PREFIX = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
ROLES = """
[[role]]
name = "staff"
groups = ["staff"]
data = ["*"]
[[role.mask]]
topics = ["orders"]
fields = ["card"]
[[role]]
name = "admin"
users = ["admin"]
data = ["*"]
acts = ["*"]
audit = true
"""


@contextmanager
def trusting(data: Path, issuer: str) -> Iterator[NodeProcess]:
    """A node that takes the provider's tokens; `admin` is its super user."""
    node = NodeProcess(data)
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://{node.bootstrap}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}jwks.endpoint.url": f"{issuer}/jwks",
        f"{PREFIX}expected.issuer": issuer,
        f"{PREFIX}expected.audience": AUDIENCE,
        "super.users": "User:admin",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    with node:
        yield node


@contextmanager
def console(node: NodeProcess, directory: Path, issuer: str, port: int) -> Iterator[Console]:
    oidc, roles = directory / "oidc.toml", directory / "roles.toml"
    oidc.write_text(
        f'passwords = false\n[[provider]]\nid = "corp"\nissuer = "{issuer}"\nclient_id = "{CLIENT}"\n'
        f"client_secret = '{SECRET}'\naudience = \"{AUDIENCE}\"\n"
    )
    roles.write_text(ROLES)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "none",
        "sasl.password": "none",
    }
    made = Console(Options(node.bootstrap, port=port, security=parse_security(settings), oidc=oidc, roles=roles))
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def act(url: str, token: str, name: str, values: Mapping[str, Any]) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.post(f"{url}{API}/acts/{name}", json=dict(values), headers=headers, timeout=LIMIT_S)


def prepare(url: str, token: str) -> None:
    """Two topics with a record each; alice may read one of them."""
    for topic in ("orders", "concealed"):
        assert act(url, token, "create-topic", {"topic": topic, "partitions": 1}).status_code == 200
        value = '{"card": "cAnArY", "id": 17}'
        answer = act(url, token, "produce", {"topic": topic, "value": value})
        assert answer.status_code == 200, answer.text
    acl = {"principal": "alice", "operation": "read", "kind": "topic", "name": "orders"}
    assert act(url, token, "create-acl", acl).status_code == 200


def check_rights(browser: httpx.Client) -> None:
    """What alice sees: by the node's ACLs which topics, by the console's roles which parts of records."""
    rows = browser.get(f"{API}/topics").json()["data"]["rows"]
    assert [row["name"] for row in rows] == ["orders"]
    messages = browser.get(f"{API}/topics/orders/messages?from=begin")
    assert '\\"id\\": 17' in messages.text and "cAnArY" not in messages.text
    assert browser.get(f"{API}/topics/concealed/messages").status_code == 404
    assert browser.get("/acts/delete-topic?topic=orders").status_code == 403


def test_the_node_decides_by_the_users_token(tmp_path: Path) -> None:
    with reserve(0) as held, OpenIdProvider(claims={"groups": ["staff"]}).running("localhost") as provider:
        port = held.getsockname()[1]
        with (
            trusting(tmp_path / "data", provider.issuer) as node,
            console(node, tmp_path, provider.issuer, port) as made,
        ):
            provider.redirects.add(f"{made.url}/oidc/corp/callback")
            provider.subject = "admin"
            admin = provider.access_token()
            prepare(made.url, admin)
            provider.subject = "alice"
            with httpx.Client(base_url=made.url, timeout=LIMIT_S, follow_redirects=True) as browser:
                assert "You are logged in" in browser.get("/oidc/corp/login?next=/topics").text
                check_rights(browser)
                alice = provider.access_token(groups=["staff"])
                answer = act(made.url, alice, "delete-topic", {"topic": "orders", "confirm": "orders"})
                assert answer.status_code == 403 and "do not let you do this" in answer.json()["error"]
                rows = browser.get(f"{API}/audit").json()["data"]["rows"]
                assert {row["subject"] for row in rows} == {f"{provider.issuer} alice"}
            lines = httpx.get(f"{made.url}{API}/audit", headers={"authorization": f"Bearer {admin}"}).json()["data"]
            assert {row["user"] for row in lines["rows"]} == {"admin", "alice"}
            if shutil.which("chromium") is not None:
                in_a_browser(made.url, provider)


def in_a_browser(url: str, provider: OpenIdProvider) -> None:
    """For a browser the provider is another site than the console: localhost, and 127.0.0.1."""
    assert urlsplit(provider.issuer).hostname != urlsplit(url).hostname
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(base_url=url).new_page()
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("console", lambda message: said.append(message.text))
        page.goto("/topics?q=o")
        page.get_by_role("link", name="Log in with corp").click()
        page.wait_for_url("**/topics?q=o")
        assert page.get_by_role("link", name="orders").count()
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        assert provider.ended, "the provider's own login was ended"
        page.goto("/topics")
        assert "/login" in page.url
        browser.close()
    assert not said


@contextmanager
def certified(redirect: str, logout: str) -> Iterator[str]:
    why = build.missing("node")
    if why is not None:
        pytest.skip(why)
    port = free_port()
    program = ["node", str(build.build("node") / "openid-console.js"), str(port), redirect, logout]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as provider:
        try:
            assert provider.stdout is not None
            assert any(line == "ready\n" for line in provider.stdout), "the provider does not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            provider.kill()


def through_forms(browser: httpx.Client, address: str, user: str) -> httpx.Response:
    """Log in and agree at the provider, by its own forms."""
    for _ in range(12):
        page = browser.get(address)
        while page.is_redirect:
            page = browser.get(urljoin(str(page.url), page.headers["location"]))
        action = re.search(r'<form[^>]* action="([^"]+)"', page.text)
        prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
        if action is None or prompt is None:
            return page
        form = {"prompt": prompt[1], "login": user, "password": "any"}
        sent = browser.post(urljoin(str(page.url), unescape(action[1])), data=form)
        address = urljoin(str(page.url), sent.headers["location"])
    raise AssertionError("the provider does not come to an end")


@pytest.mark.matrix
def test_a_certified_provider(tmp_path: Path) -> None:
    with reserve(0) as held:
        port = held.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        with (
            certified(f"{url}/oidc/corp/callback", f"{url}/login") as issuer,
            trusting(tmp_path / "data", issuer) as node,
            console(node, tmp_path, issuer, port),
        ):
            with httpx.Client(base_url=url, timeout=LIMIT_S) as browser:
                page = through_forms(browser, "/oidc/corp/login?next=/topics", "admin")
                assert "You are logged in" in page.text, page.text
                form = browser.get("/acts/create-topic").text
                token = re.search(r'name="token" value="([^"]+)"', form)
                assert token is not None
                values = {"token": token[1], "step": "do", "topic": "orders", "partitions": "1"}
                assert "is created" in browser.post("/acts/create-topic", data=values).text
                assert "orders" in browser.get("/topics").text
                out = browser.post("/logout")
                left = re.search(r'content="0;url=([^"]+)"', out.text)
                assert left is not None and urlsplit(unescape(left[1])).netloc == urlsplit(issuer).netloc
                assert "log-out" in browser.get(unescape(left[1])).text.lower().replace("logout", "log-out")
            with httpx.Client(base_url=url, timeout=LIMIT_S) as other:
                page = through_forms(other, "/oidc/corp/login", "alice")
                assert "You are logged in" in page.text
                assert other.get(f"{API}/topics").json()["data"]["rows"] == []
