"""Roles and masks: a table of every route that shows what records have, walked with each kind of mask; and what a role
does not give is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from ottla.console.access.roles import Forbidden, Identity, Rights, parse_roles
from ottla.console.acts.act import Act
from ottla.console.acts.table import ACTS, BY_NAME
from ottla.console.app import Application
from ottla.console.asking import Asking, Site
from ottla.console.masks import HIDDEN, Masks, parse_masks
from ottla.console.routes import API, DOWNLOAD, EVENTS, FILES, PAGES, QUERIED, Page
from ottla.console.tails import Tail
from ottla.errors import OttlaError
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.acting import Acting
from tests.unit.console.fake_changes import GOOD, OTHER, TOPIC
from tests.unit.console.fake_cluster import NOW_MS

SECRET: Final = "4111-7222-9333-SECRET"
"""In the key, the value and a header of each record."""
SPELT: Final = (SECRET, SECRET.encode().hex(), SECRET.encode().hex(" "), base64.b64encode(SECRET.encode()).decode(),
                "4111-72", "34 31 31 31", "-9333")  # fmt: skip
"""The ways in which an answer might have it, or a part of it. None looks like a number: pages have times."""
KEY: Final = json.dumps({"card": SECRET}).encode()
RECORDS: Final = [
    SimpleRecord(NOW_MS, KEY, json.dumps({"card": SECRET, "id": 17}).encode(), (("token", SECRET.encode()),)),
    SimpleRecord(NOW_MS, KEY, f"card={SECRET}".encode(), (("token", SECRET.encode()),)),
    SimpleRecord(NOW_MS, KEY, json.dumps(SECRET).encode(), (("token", SECRET.encode()),)),
    SimpleRecord(NOW_MS, KEY, b"\xff" + SECRET.encode(), (("token", SECRET.encode()),)),
    SimpleRecord(NOW_MS, KEY, json.dumps([{"CARD": {"n": SECRET}}]).encode(), (("Token", SECRET.encode()),)),
]

SHOW_RECORDS: Final = ("messages", "tail", "content", "tail_events")
"""Pages whose answers have parts of records. A new page is put here or below, or the test fails."""
SHOW_NONE: Final = (
    "overview", "topics", "topic", "groups", "group", "transactions", "security", "broker", "subjects", "subject",
    "group_by_id", "hanging", "rights", "moves", "audit", "sql", "sql_file", "pipelines", "mirror", "settings",
)  # fmt: skip
READ_RECORDS: Final = ("produce", "copy-record")
"""Acts that read records; `produce` where it sends one again."""

MASKS: Final[Mapping[str, dict[str, Any]]] = {
    "a field": {"fields": ["card"], "headers": ["token"]},
    "a path": {"fields": ["card", "card.n"], "headers": ["tok*"]},
    "everything": {"key": True, "value": True, "headers": ["*"]},
    "a hash": {"fields": ["card"], "headers": ["token"], "how": "hash"},
    "words instead": {"fields": ["card"], "headers": ["token"], "instead": "[card]"},
    "a field, and the value": {"fields": ["card"], "value": True, "headers": ["token"]},
}


def site_of(role: dict[str, Any], masks: Masks | None = None, **more: Any) -> Site:
    roles = parse_roles({"role": [{"name": "r", "users": ["*"], **role}]}, "f", tuple(BY_NAME))
    return Site(masks or Masks(), roles=roles, bootstrap="b:1", **more)


class Acted(Acting):
    """A console with these roles, whose topic has the secret."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.brokers.records = RECORDS
        self.site = site = dataclasses.replace(site, registry=self.registry, registry_url="http://r")
        made = Application(site, anonymous=self.user)
        self.made, self.app = made, made.asgi()


def all_pages() -> tuple[Page, ...]:
    return (*PAGES, *FILES, EVENTS)


def test_each_page_is_known_to_show_records_or_none() -> None:
    assert sorted(each.name for each in all_pages()) == sorted((*SHOW_RECORDS, *SHOW_NONE))


def addresses(page: Page) -> list[str]:
    inside = {"{topic}": TOPIC, "{group:any}": "billing", "{broker}": "1", "{subject:any}": "s"}
    path = page.path
    for place, value in inside.items():
        path = path.replace(place, value)
    api = API + (path if page.path != "/" else f"/{page.name}")
    if page is DOWNLOAD:
        asked = [f"?partition=0&offset={offset}&part={part}" for offset in (0, 1, 3) for part in ("key", "value")]
        return [each + query for each in (path, api) for query in asked]
    if page.name == "group_by_id":
        return [f"{path}?group=billing", f"{api}?group=billing"]
    if page.name not in SHOW_RECORDS:
        return [path, api]
    ways = (
        [f"?format={how}&from=begin" for how in ("auto", "json", "text", "hex")]
        if page.name == "messages"
        else [f"?format={how}" for how in ("auto", "json", "text", "hex")]
    )
    ways += [f"?q={SECRET}&in={where}" for where in ("any", "header")] + ["?q=9333", "?q=17", "?isolation=uncommitted"]
    return [each + query for each in (path, api) for query in ways]


def requests() -> list[tuple[str, str, dict[str, Any]]]:
    """Every page and its JSON in each format, every act's form, preview and JSON."""
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", address, {}) for page in all_pages() if page is not EVENTS for address in addresses(page)
    ]
    for act in ACTS:
        found += act_requests(act)
    return found


def act_requests(act: Act) -> list[tuple[str, str, dict[str, Any]]]:
    values = {name: value for name, value in GOOD[act.name].items() if name not in ("password",)}
    again = f"?topic={TOPIC}&from_partition=0&from_offset=0" if act.name == "produce" else ""
    return [
        ("GET", f"/acts/{act.name}{again}", {}),
        ("GET", f"/acts/{act.name}", {"params": values}),
        ("POST", f"{API}/acts/{act.name}", {"json": {**GOOD[act.name], "preview": True}}),
    ]


def events(acted: Acted) -> list[str]:
    """What a live tail sends, to a page and to a program."""
    found = []
    for how in ("auto", "json", "text", "hex"):
        values = EVENTS.parameters({"topic": TOPIC}, {"at": "0:0", "format": how})
        asking = Asking(acted.user, acted.site, values)
        for row in Tail(asking).next_round().rows:
            found += [acted.made.renderer.record(asking, row), json.dumps(dataclasses.asdict(row))]
    return found


def told(acted: Acted) -> list[str]:
    """What all routes answer; without what was searched for, which pages say again."""
    asked = requests()
    found = []
    for (method, path, _), answer in zip(asked, acted.ask_all(asked), strict=True):
        given = parse_qs(urlsplit(path).query).get("q", ["nothing"])[0]
        found.append(f"{method} {path.partition('?')[0]}\n{answer.text.replace(given, '')}")
    return [*found, *events(acted)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("by_role", [True, False])
def test_no_route_shows_what_a_mask_hides(mask: str, by_role: bool) -> None:
    rule = {"topics": ["*"], **MASKS[mask]}
    role: dict[str, Any] = {"data": ["*"], "download": True, "acts": ["*"], "audit": True}
    if by_role:
        acted = Acted(site_of({**role, "mask": [rule]}))
    else:
        acted = Acted(site_of(role, parse_masks({"mask": [rule]}, "f")))
    for text in told(acted):
        for spelt in SPELT:
            assert spelt not in text, (spelt, text[:2000])
    if mask == "words instead":
        assert any("[card]" in each for each in events(acted))


def test_the_routes_do_show_it_where_no_mask_is() -> None:
    """Else the test above could not fail; the table says which do."""
    acted = Acted(site_of({"data": ["*"], "download": True, "acts": ["*"]}))
    for page in all_pages():
        if page is EVENTS:
            shown = any(SECRET in each for each in events(acted))
        else:
            asked = [("GET", each, {}) for each in addresses(page) if "q=" not in each]
            shown = any(SECRET in each.text for each in acted.ask_all(asked))
        assert shown == (page.name in SHOW_RECORDS), page.name
    for act in ACTS:
        shown = any(SECRET in each.text for each in acted.ask_all(act_requests(act)))
        assert shown == (act.name == "produce"), act.name


@pytest.mark.parametrize("role", [{}, {"data": ["another"]}, {"data": [OTHER], "download": True}])
def test_records_of_topics_that_no_role_gives(role: dict[str, Any]) -> None:
    """Pages of records are refused, and all others go on."""
    acted = Acted(site_of({**role, "acts": ["*"]}))
    for page in all_pages():
        if page is EVENTS:
            with pytest.raises(Forbidden):
                events(acted)
            continue
        for each in acted.ask_all([("GET", path, {}) for path in addresses(page)]):
            is_refused = page.name in SHOW_RECORDS or (page is QUERIED and "download" not in role)
            assert (each.status_code == 403) == is_refused, (page.name, each.text)
            assert SECRET not in each.text or "q=" in str(each.url)
    for path in (f"/topics/{TOPIC}/tail/events", f"{API}/topics/{TOPIC}/tail/events"):
        assert acted.ask("GET", path).status_code == 403
    copied = acted.api("copy-record", GOOD["copy-record"])
    assert copied.status_code == 403 and "do not let you read records" in copied.json()["error"]
    assert acted.ask("GET", f"/acts/produce?topic={TOPIC}&from_partition=0&from_offset=0").status_code == 403
    assert not acted.brokers.changes


def test_downloads_are_a_right_of_their_own() -> None:
    acted = Acted(site_of({"data": ["*"]}))
    assert all(each.status_code == 403 for each in acted.ask_all([("GET", at, {}) for at in addresses(DOWNLOAD)]))
    assert "Download" not in acted.ask("GET", f"/topics/{TOPIC}/messages").text
    assert not any("Download" in each for each in events(acted))
    acted = Acted(site_of({"data": ["*"], "download": True}))
    assert acted.ask("GET", addresses(DOWNLOAD)[0]).content == KEY
    assert "Download" in acted.ask("GET", f"/topics/{TOPIC}/messages").text


@pytest.mark.parametrize("act", ACTS, ids=BY_NAME)
def test_an_act_needs_a_role(act: Act) -> None:
    """By each way: the form, what it sends, and the API; a role that gives others does not do."""
    others = [each.name for each in ACTS if each is not act]
    acted = Acted(site_of({"data": ["*"], "acts": others}))
    answers = [
        acted.ask("GET", f"/acts/{act.name}"),
        acted.ask("POST", f"/acts/{act.name}", data={"token": acted.token(act.name), **GOOD[act.name]}),
        acted.ask("POST", f"{API}/acts/{act.name}", json={**GOOD[act.name], "preview": True}),
        acted.api(act.name, GOOD[act.name]),
    ]
    assert [each.status_code for each in answers] == [403] * 4
    assert acted.changed == 0
    lines = [each for each in acted.site.trail.entries() if each.kind == "refused"]
    assert len(lines) == 4 and all(act.name in each.what for each in lines)
    assert f"/acts/{act.name}" not in acted.ask("GET", f"/topics/{TOPIC}/messages").text


def test_a_user_without_a_role_sees_nothing() -> None:
    acted = Acted(site_of({"users": ["ann"], "data": ["*"], "acts": ["*"]}))
    for method, path, more in requests():
        answer = acted.ask(method, path, **more)
        assert answer.status_code == 403 and "you have no role" in answer.text, path
    assert acted.ask("GET", "/searches/12345678").status_code == 403


def test_a_filter_on_what_is_masked_is_refused() -> None:
    """Else its contents could be guessed piece by piece: by whether something is found."""
    acted = Acted(site_of({"data": ["*"], "mask": [{"topics": ["*"], "value": True, "key": True}]}))
    for where in ("key", "value"):
        for page in ("messages", "tail"):
            for begin in ("", API):
                for guess in (SECRET, "no such text"):
                    answer = acted.ask("GET", f"{begin}/topics/{TOPIC}/{page}?q={guess}&in={where}")
                    assert answer.status_code == 403 and "cannot be searched" in answer.text
    acted = Acted(site_of({"data": ["*"], "mask": [{"topics": ["*"], "fields": ["card"], "headers": ["token"]}]}))
    for guess in (SECRET, SECRET[:3], "card=4", "9333"):
        for where in ("any", "key", "value", "header"):
            found = acted.ask("GET", f"{API}/topics/{TOPIC}/messages?q={guess}&in={where}&from=begin").json()["data"]
            assert found["rows"] == [] and found["scanned"] == str(len(RECORDS)), (guess, where)
    found = acted.ask("GET", f"{API}/topics/{TOPIC}/messages?q=17&from=begin").json()["data"]
    assert len(found["rows"]) == 1, "what is shown can be searched"


def rights(roles: list[dict[str, Any]], who: Identity, masks: Masks | None = None) -> Rights:
    return parse_roles({"role": roles}, "f", tuple(BY_NAME), ("corp", "other")).of(who, masks or Masks())


def test_who_has_a_role() -> None:
    roles = [
        {"name": "named", "users": ["ann"]},
        {"name": "group", "groups": ["staff"]},
        {"name": "claim", "claims": {"department": "care"}},
        {"name": "of-corp", "users": ["ann"], "provider": "corp"},
    ]
    assert rights(roles, Identity("ann")).names == "named"
    assert rights(roles, Identity("ann", "corp")).names == "named, of-corp"
    assert rights(roles, Identity("ann", "other")).names == "named"
    assert rights(roles, Identity("bob", "corp", groups=("x", "staff"))).names == "group"
    assert rights(roles, Identity("bob", "corp", claims={"department": ("sales", "care")})).names == "claim"
    # Names are no patterns, and groups are no names.
    for name in ("Ann", "ann ", "*", "a*", "staff", "", None):
        assert rights(roles, Identity(name)).is_nobody, name
    assert rights(roles, Identity("staff", groups=("ann", "*"))).is_nobody


def test_rights_and_masks_of_several_roles_add_up() -> None:
    mask = {"topics": ["pay*"], "fields": ["card"], "how": "last4"}
    care = {"name": "care", "users": ["ann", "bob"], "data": ["pay*"], "mask": [mask]}
    shop = {"name": "shop", "users": ["ann"], "data": ["*"], "acts": ["produce"]}
    fraud = {"name": "fraud", "users": ["carl"], "data": ["pay*"], "unmasked": ["payments"], "download": True}
    both = rights([care, shop, fraud], Identity("ann"))
    assert both.may_read("orders") and both.may_act("produce") and not both.may_act("delete-topic")
    assert not both.mask("payments").is_empty and both.mask("orders").is_empty
    whole = parse_masks({"mask": [{"topics": ["*"], "fields": ["card"]}]}, "f")
    # The stricter one counts.
    (how,) = rights([care], Identity("ann"), whole).mask("payments").fields.values()
    assert how.kind == "replace"
    free = rights([fraud], Identity("carl"), whole)
    assert free.mask("payments").is_empty and not free.mask("pay-slips").is_empty
    with pytest.raises(Forbidden, match="do not let you read records of orders"):
        free.ensure_read("orders")


def test_ways_to_hide() -> None:
    def hidden(value: Any, how: str) -> Any:
        rule = {"topics": ["*"], "fields": ["card"], "how": how}
        return parse_masks({"mask": [rule]}, "f").of("t", None).masked({"card": value})["card"]

    assert hidden("4111111111111234", "last4") == f"{HIDDEN}1234"
    assert hidden(4111111111111234, "last4") == f"{HIDDEN}1234"
    # Of short texts the last four characters are too much, and lists and objects have no last ones.
    for value in ("1234", "12345678901", "", 12, True, None, [SECRET], {"n": SECRET}):
        assert hidden(value, "last4") == HIDDEN
    assert hidden("a", "hash") == hidden("a", "hash") != hidden("b", "hash")
    assert hidden({"a": 1, "b": 2}, "hash") == hidden({"b": 2, "a": 1}, "hash")
    assert SECRET not in hidden(SECRET, "hash") and len(hidden(SECRET, "hash")) == 17


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "it has no roles"),
        ({"role": {}}, "it has no roles"),
        ({"roles": []}, "unknown entry 'roles'"),
        ({"role": [{"users": ["a"]}]}, "needs a name"),
        ({"role": [{"name": "a"}]}, "nobody has it"),
        ({"role": [{"name": "a", "users": ["b"], "topics": ["*"]}]}, "unknown entry 'topics'"),
        ({"role": [{"name": "a", "users": "b"}]}, "users must be a list"),
        ({"role": [{"name": "a", "users": ["b"], "acts": ["delete"]}]}, "there is no act 'delete'"),
        ({"role": [{"name": "a", "users": ["b"], "audit": 1}]}, "audit must be true or false"),
        ({"role": [{"name": "a", "claims": {"x": 1}}]}, "claims is a table of texts"),
        ({"role": [{"name": "a", "users": ["b"], "provider": "c"}]}, "there is no provider 'c'"),
        ({"role": [{"name": "a", "users": ["b"]}, {"name": "a", "users": ["c"]}]}, "'a' is there twice"),
        ({"role": [{"name": "a", "users": ["b"], "mask": {}}]}, "two brackets"),
        ({"role": [{"name": "a", "users": ["b"], "mask": [{"topics": ["*"]}]}]}, "it hides nothing"),
        (
            {"role": [{"name": "a", "users": ["b"], "mask": [{"topics": ["*"], "key": True, "how": "rot13"}]}]},
            "how must be one of",
        ),
        (
            {
                "role": [
                    {
                        "name": "a",
                        "users": ["b"],
                        "mask": [{"topics": ["*"], "key": True, "how": "hash", "instead": "x"}],
                    }
                ]
            },
            "instead is a text",
        ),
        (
            {"role": [{"name": "a", "users": ["b"], "mask": [{"topics": ["*"], "key": True, "except": ["b"]}]}]},
            "has no except",
        ),
    ],
)
def test_roles_that_are_not_understood_are_refused(given: dict[str, Any], complaint: str) -> None:
    """A wrong name in them would give too much, or hide too little."""
    with pytest.raises(OttlaError, match=complaint):
        parse_roles(given, "f", tuple(BY_NAME))
