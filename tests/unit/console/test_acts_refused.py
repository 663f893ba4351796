"""What may not act: no token, another page, a read-only console, no right, a wrong name, and hostile text in any field.

For each act of the table, and each of its fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from ottla.console.acts.act import Act
from ottla.console.acts.table import ACTS, BY_NAME
from ottla.console.app import Application
from ottla.console.asking import Invalid, Site
from ottla.console.masks import Masks, read_masks
from ottla.console.routes import API, PAGES
from ottla.console.sessions import Sessions
from tests.unit.console.acting import NAMES, ORIGIN, Acting
from tests.unit.console.fake_changes import CHANGES, GOOD, TOPIC
from tests.unit.console.test_hostile_names import ATTRIBUTES, HOSTILE, TAGS, Seen
from tests.unit.console.test_server import Browser, cookie_of, form, made, sessions

__all__ = ["made", "sessions"]  # fixtures

FORM_TAGS = TAGS | {"textarea"}
FORM_ATTRIBUTES = ATTRIBUTES | {"rows", "max"}
ELSEWHERE = (
    {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://["}, {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)  # fmt: skip


def sent(act: Act, token: str | None) -> dict[str, str]:
    confirm = {"confirm": GOOD[act.name][act.confirm]} if act.confirm else {}
    return {**GOOD[act.name], **confirm, "step": "do", **({} if token is None else {"token": token})}


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_no_form_acts_without_its_token(act: Act) -> None:
    acting = Acting()
    other = Acting()
    tokens = (None, "x" * 32, acting.token("other-act"), other.token(act.name), "own a")
    forms = [{**sent(act, token), "step": step} for step in ("do", "preview") for token in tokens]
    for answer in acting.ask_all(("POST", act.path, {"data": data}) for data in forms):
        assert answer.status_code == 403, answer.text
        assert "Nothing was changed" in answer.text
    assert acting.changed == 0


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_no_other_page_acts(act: Act) -> None:
    acting = Acting()
    for headers in ELSEWHERE:
        answer = acting.ask("POST", act.path, data=sent(act, acting.token(act.name)), headers=headers)
        assert answer.status_code == 403
        answer = acting.ask("POST", API + act.path, json={**GOOD[act.name], "confirm": "x"}, headers=headers)
        assert answer.status_code == 403
    assert acting.changed == 0
    own = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
    assert acting.ask("POST", act.path, data=sent(act, acting.token(act.name)), headers=own).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_the_api_takes_no_form(kind: str) -> None:
    """A page elsewhere can send these without asking first."""
    acting = Acting()
    data = json.dumps({"topic": TOPIC, "confirm": TOPIC}).encode()
    answer = acting.ask("POST", f"{API}/acts/delete-topic", content=data, headers={"content-type": kind})
    assert answer.status_code == 400
    assert acting.changed == 0


def test_a_name_that_no_answer_can_repeat() -> None:
    """Half of a surrogate pair: the sentence that refused it could not be encoded."""
    acting = Acting()
    for act in ACTS:
        content, kind = b'{"\\ud800": 1}', {"content-type": "application/json"}
        answer = acting.ask("POST", API + act.path, content=content, headers=kind)
        assert answer.status_code == 400 and "surrogate" in answer.json()["error"]


def test_the_api_takes_no_cookie(sessions: Sessions) -> None:
    browser = Browser(Application(Site(Masks()), sessions=sessions))
    cookie = cookie_of(browser.ask("POST", "/login", data=form()))
    served = [each for each in ACTS if not each.needs_registry]
    for act in served:
        assert browser.ask("POST", API + act.path, json=dict(GOOD[act.name]), headers=cookie).status_code == 401
        assert browser.ask("POST", act.path, data=sent(act, "x")).headers["location"].startswith("/login")
        assert browser.ask("GET", act.path).headers["location"].startswith("/login")
    answer = browser.ask(
        "POST", f"{API}/acts/delete-topic", json={"topic": "none", "confirm": "none"}, auth=("alice", "right")
    )
    assert answer.status_code == 404


def test_a_token_is_of_one_session(sessions: Sessions) -> None:
    """Another user's, or the same user's other session's, is no token."""
    browser = Browser(Application(Site(Masks()), sessions=sessions))
    cookies = [cookie_of(browser.ask("POST", "/login", data=form())) for _ in range(2)]
    page = browser.ask("GET", "/acts/create-topic", headers=cookies[0]).text
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None
    data = {"topic": "a", "token": found[1], "step": "preview"}
    assert browser.ask("POST", "/acts/create-topic", data=data, headers=cookies[1]).status_code == 403
    assert browser.ask("POST", "/acts/create-topic", data=data, headers=cookies[0]).status_code != 403


def test_schemas_are_not_changed_with_the_login_of_the_console(sessions: Sessions) -> None:
    acting = Acting()
    site = Site(Masks(), acting.registry, None, "http://r")
    browser = Browser(Application(site, sessions=sessions))
    for act in (each for each in ACTS if each.needs_registry):
        values = {**GOOD[act.name], "confirm": "s"}
        answer = browser.ask("POST", API + act.path, json=values, auth=("alice", "right"))
        assert answer.status_code == 409
        assert "not yours" in answer.json()["error"]
    assert acting.registry.changes == []


# Read-only


def test_a_read_only_console_serves_no_act() -> None:
    acting = Acting(read_only=True)
    for act in ACTS:
        assert acting.ask("GET", act.path).status_code == 404
        assert acting.ask("POST", act.path, data=sent(act, acting.token(act.name))).status_code in (404, 405)
        assert acting.ask("POST", API + act.path, json=dict(GOOD[act.name])).status_code in (404, 405)
    assert acting.changed == 0
    document = acting.ask("GET", f"{API}/openapi.json").json()
    assert [each for each in document["paths"] if "/acts/" in each] == []
    posts = [path for path, each in document["paths"].items() if "post" in each]
    assert posts == [f"{API}/searches/{{run}}/stop"]  # which ends a reading of the user's own
    for path in pages():
        text = acting.ask("GET", path).text
        assert "/acts/" not in text, path


def pages() -> list[str]:
    inside = {"{topic}": TOPIC, "{group:any}": "billing", "{broker}": "1", "{subject:any}": "s"}
    found = []
    for page in PAGES:
        path = page.path
        for place, value in inside.items():
            path = path.replace(place, value)
        found.append(path)
    return found


def test_every_act_is_linked_from_a_page_and_every_link_opens() -> None:
    acting = Acting()
    acting.brokers.members = 1
    links: set[str] = set()
    for path in [*pages(), "/transactions?state=open", f"/topics/{TOPIC}/messages?from=begin"]:
        links |= {each for each in Seen(acting.ask("GET", path).text).links if each.startswith("/acts/")}
    names = {each.partition("?")[0].removeprefix("/acts/") for each in links}
    assert names == set(NAMES)
    for link in sorted(links):
        answer = acting.ask("GET", link)
        assert answer.status_code in (200, 404, 409), (link, answer.text)
    assert acting.changed == 0


# Names typed again


@pytest.mark.parametrize("act", [each for each in ACTS if each.destroys], ids=lambda each: each.name)
def test_what_destroys_asks_for_the_name(act: Act) -> None:
    acting = Acting()
    name = GOOD[act.name][act.confirm]
    for typed in ("", name.upper() if name.upper() != name else "x", f"{name} ", name[:-1], "yes"):
        data = {**sent(act, acting.token(act.name)), "confirm": typed}
        answer = acting.ask("POST", act.path, data=data)
        assert answer.status_code == 400
        assert "typed again" in answer.text
        assert acting.api(act.name, {**GOOD[act.name], "confirm": typed}).status_code == 400
    assert acting.changed == 0


# Rights


@pytest.mark.parametrize("name", list(CHANGES))
@pytest.mark.parametrize("code", [29, 30, 31, 53])
def test_a_missing_right_is_named_with_its_code(name: str, code: int) -> None:
    acting = Acting()
    acting.brokers.code = code
    answer = acting.api(name, GOOD[name])
    assert answer.status_code == 403, answer.text
    body = answer.json()
    assert "you need" in body["error"]
    assert body["code"].endswith("AUTHORIZATION_FAILED")
    assert f"({body['code']})" in body["error"]
    acting = Acting()
    acting.brokers.code = code
    page = acting.form(name, GOOD[name])
    assert page.status_code == 403
    assert body["code"] in page.text


def test_masked_records_are_neither_copied_nor_sent_again(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "masks.toml"
    file.write_text(f'[[mask]]\ntopics = ["{TOPIC}"]\nvalue = true\n')
    acting = Acting(masks=read_masks(file))
    answer = acting.api("copy-record", GOOD["copy-record"])
    assert answer.status_code == 403
    assert "mask hides" in answer.json()["error"]
    shown = acting.ask("GET", f"/acts/produce?topic={TOPIC}&from_partition=0&from_offset=3")
    assert shown.status_code == 403
    assert "v3" not in shown.text
    assert acting.changed == 0


# Hostile text


WORDS = ("".join(HOSTILE[:8]), *HOSTILE[8:])


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_hostile_text_in_each_field(act: Act) -> None:
    """A clear answer, nothing but text on the page, and nothing changed by a preview or a refusal."""
    acting = Acting()
    given = [{**GOOD[act.name], each.name: word} for each in act.fields for word in WORDS]
    previews = [{**values, "token": acting.token(act.name), "step": "preview"} for values in given]
    pages = acting.ask_all(("POST", act.path, {"data": data}) for data in previews)
    pages += acting.ask_all(("GET", act.path, {"params": values}) for values in given[:: len(WORDS)])
    assert acting.changed == 0
    for answer in pages:
        assert answer.status_code in (200, 400, 404, 409), answer.text
        seen = Seen(answer.text)
        assert seen.tags <= FORM_TAGS, seen.tags - FORM_TAGS
        assert seen.attributes <= FORM_ATTRIBUTES, seen.attributes - FORM_ATTRIBUTES
        assert seen.scripts == ["/static/times.js"]
        assert all(each.startswith(("/", "#")) and not each.startswith("//") for each in seen.links)
    for values in given[:: len(WORDS)]:
        before = acting.changed
        answer = acting.api(act.name, values)
        assert answer.status_code in (200, 400, 404, 409), answer.text
        assert acting.changed - before == (answer.status_code == 200)


VALUES = ("\ud800", "\0", 2**70, -1, [], {}, 1.5, None, True, "")


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_no_json_value_is_a_bug(act: Act) -> None:
    acting = Acting()
    bodies = [
        {**GOOD[act.name], "confirm": "x", "preview": True, each.name: value} for each in act.fields for value in VALUES
    ]
    bodies += [
        {**GOOD[act.name], name: value} for name in ("confirm", "preview", "once") for value in ([], 1.5, "x" * 101)
    ]
    if not act.destroys:
        bodies = [each for each in bodies if each.get("preview") is True or "confirm" not in each]
    headers = {"content-type": "application/json"}
    requests = [("POST", API + act.path, {"content": json.dumps(body).encode(), "headers": headers}) for body in bodies]
    for answer in acting.ask_all(requests):
        assert answer.status_code in (200, 400, 404, 409), answer.text
    assert acting.changed == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"topic": "a", "more": 1}', b"1"])
def test_no_body_is_a_bug(body: bytes) -> None:
    acting = Acting()
    answer = acting.ask("POST", f"{API}/acts/create-topic", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]
    for data in (b"token=%ff", b"\xff", b"&".join(b"a=%d" % number for number in range(100))):
        answer = acting.ask("POST", "/acts/create-topic", content=data)
        assert answer.status_code == 400
    assert acting.changed == 0


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_bodies_have_a_limit(act: Act) -> None:
    acting = Acting()
    data = b"topic=" + b"x" * act.body_max
    answer = acting.ask("POST", act.path, content=data)
    assert answer.status_code == 400
    assert "the body has more than" in answer.text
    json_data = b'{"topic": "' + b"x" * act.body_max + b'"}'
    answer = acting.ask("POST", API + act.path, content=json_data, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert acting.changed == 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("create-topic", {"topic": "a", "settings": "x"}),
        ("create-topic", {"topic": "a", "settings": "a=1\na=2"}),
        ("delete-records", {"topic": TOPIC, "before": "-1"}),
        ("delete-records", {"topic": TOPIC, "before": "6"}),
        ("delete-records", {"topic": TOPIC, "before": "other:0:1"}),
        ("delete-topic", {"topic": TOPIC, "id": "x"}),
        ("produce", {"topic": TOPIC, "value": "f", "value_format": "hex"}),
        ("produce", {"topic": TOPIC, "value": "f", "value_format": "null"}),
        ("produce", {"topic": TOPIC, "partition": "7"}),
        ("copy-record", {"topic": TOPIC, "partition": 0, "offset": 9, "to": TOPIC}),
        ("configure-broker", {"name": "ssl.keystore.password", "value": "x"}),
        ("configure-topic", {"topic": TOPIC, "name": "retention.ms", "value": "5", "how": "reset"}),
        ("reset-offsets", {"group": "billing", "to": "shift", "value": "x"}),
        ("reset-offsets", {"group": "billing", "to": "time", "value": "noon"}),
        ("reset-offsets", {"group": "billing", "to": "latest", "value": "1"}),
        ("reset-offsets", {"group": "billing", "to": "places", "value": "orders:0:9223372036854775808"}),
        ("create-acl", {"principal": "ann", "operation": "write", "kind": "group", "name": "g"}),
        ("create-acl", {"principal": "ann", "kind": "topic"}),
        ("create-acl", {"principal": "ann", "operation": "alter", "kind": "cluster", "name": "other"}),
        ("set-quota", {"user": "ann", "value": "nan"}),
        ("set-quota", {"user": "ann", "value": "-1"}),
        ("set-quota", {"value": "1"}),
        ("set-quota", {"user": "a", "ip": "1.2.3.4", "value": "1"}),
        ("move-partition", {"topic": TOPIC, "partition": 0, "replicas": "1,1"}),
        ("move-partition", {"topic": TOPIC, "partition": 0, "replicas": "9"}),
        ("set-password", {"user": "a", "password": "x", "iterations": "1"}),
        ("add-partitions", {"topic": TOPIC, "partitions": "1"}),
        ("delete-user", {}),
        ("set-compatibility", {"subject": "..", "level": "FULL"}),
    ],
)
def test_what_cannot_be(name: str, values: Mapping[str, str]) -> None:
    acting = Acting()
    answer = acting.api(name, values)
    assert answer.status_code in (400, 404, 409), answer.text
    assert "bug" not in answer.json()["error"]
    assert acting.changed == 0


def test_fields_say_what_they_may_be() -> None:
    topic = BY_NAME["create-topic"].fields[0]
    for text in ("", "a\0b", "\ud800", "x" * 40_000):
        with pytest.raises(Invalid):
            topic.parse(text)
