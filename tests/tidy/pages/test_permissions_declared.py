"""No handler without a declared permission, and `docs/reference/permissions.md` says what they declare.

It finds holes such as CVE-2023-50976, CVE-2026-105931.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages import ApiKey
from ottla.registry.handlers import ROUTES
from ottla.security.acls import SUPPORTED_OPERATIONS
from ottla.server import api
from ottla.server.api import Api
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import FORWARDABLE, OWN, TABLE
from ottla.server.http.pages import ROUTES as PAGES
from ottla.server.security.permissions import Need, Open
from tools import permissions_page as render

ROOT = Path(__file__).resolve().parents[3]
SERVER = ROOT / "src" / "ottla" / "server"

Load = Callable[[int], Api]
ROADS: list[tuple[str, int, Load]] = [
    *(("client", key, api.load) for key in {**TABLE, **OWN}),
    *(("controller", key, api.load_for_controller) for key in CONTROLLER_TABLE),
    *(("envelope", key, api.load_for_controller) for key in FORWARDABLE),
]
OPEN = {
    ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY,
}  # fmt: skip
"""What a client asks before anybody knows who it is, and what it tells about itself."""
OWNED = {ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
"""What is asked about a token that one has to own or to renew, whatever the ACLs say."""


def needs_of(load: Load, key: int) -> tuple[Need, ...]:
    needs = load(key).needs
    return () if isinstance(needs, Open) else needs


@pytest.mark.parametrize(("road", "key", "load"), ROADS, ids=[f"{road}-{ApiKey(key).name}" for road, key, _ in ROADS])
def test_every_handler_declares_its_permissions(road: str, key: int, load: Load) -> None:
    """`@api(..., needs=...)`: data, or that everybody may and why."""
    needs = load(key).needs
    if isinstance(needs, Open):
        assert key in OWNED or (key in OPEN and road != "envelope")
        assert len(needs.reason) > 10
        return
    assert needs, (
        f"{ApiKey(key).name} declares no permission: add `needs=` to its @api (ottla.server.security.permissions)"
    )
    assert key not in OPEN
    for need in needs:
        assert need.operation in SUPPORTED_OPERATIONS[need.kind], need
        assert bool(need.where) != (need.kind == 4), need
        assert need.versions is None or load(key).min_version <= need.versions[0] <= need.versions[1], need


def test_what_a_node_decides_alone_is_not_left_to_the_controller() -> None:
    """`at_controller` is for what a broker forwards: another controller asks."""
    wrong = {ApiKey(key).name for key in TABLE for need in needs_of(api.load, key) if need.at_controller} - {
        ApiKey(key).name for key in FORWARDABLE
    }
    assert wrong == set()


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_every_handler_says_so_where_it_is_marked() -> None:
    """In its own file, so that who reads the handler sees it; and `handle` is marked wherever there is one."""
    looked_at = 0
    for path in [*(SERVER / "handlers").rglob("*.py"), *(SERVER / "controller_handlers").rglob("*.py")]:
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            marks = [
                each
                for each in function.decorator_list
                if isinstance(each, ast.Call) and ast.unparse(each.func) == "api"
            ]
            assert (function.name == "handle") == bool(marks), path
            for mark in marks:
                looked_at += 1
                assert "needs" in {each.arg for each in mark.keywords}, path
    assert looked_at >= len(TABLE) + 10


def test_the_page_is_what_the_handlers_declare() -> None:
    text = (ROOT / "docs" / "reference" / "permissions.md").read_text(encoding="utf-8")
    assert text == render.document(), "stale: run `python -m tools.permissions_page docs/reference/permissions.md`"
    for key in {*TABLE, *OWN, *CONTROLLER_TABLE}:
        assert f"| {render._name(key)} |" in text


def test_every_route_over_http_declares_its_permissions() -> None:
    """Pages of the HTTP port and requests to the registry; those that are open tell nothing."""
    openly = {"/", "/health", "/ready", "GET /", "POST /", "GET /schemas/types"}
    found = [
        *((each.path, each.needs) for each in PAGES),
        *((f"{each.method} {each.path}", each.needs) for each in ROUTES),
    ]
    for path, needs in found:
        if isinstance(needs, Open):
            assert path in openly and len(needs.reason) > 20, path
            continue
        assert needs and path not in openly, f"{path} declares no permission: add its needs"
        for need in needs:
            assert need.operation in SUPPORTED_OPERATIONS[need.kind], need
    assert len(found) > 40
