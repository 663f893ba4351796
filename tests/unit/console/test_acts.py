"""Each act of the table on a cluster in memory: what it asks for, its preview, and that it is done once.

The requests pass the codec, so a field that Kafka's protocol does not have is found here and not beside a node.
"""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.app import application
from ottla.console.acts.act import Act
from ottla.console.acts.table import ACTS, BY_NAME
from ottla.console.tokens import ISSUED_MAX, OUTCOMES_MAX, StillActing, Tokens, UnknownToken
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from tests.unit.console.acting import NAMES, Acting
from tests.unit.console.fake_changes import CHANGES, GOOD, GROUP, OTHER, SHARE, STEPS, TOPIC, token_of
from tests.unit.console.test_hostile_names import Seen
from tools.console_acts import page


def test_every_act_has_an_example() -> None:
    assert list(GOOD) == sorted(GOOD, key=NAMES.index)
    assert set(GOOD) == set(NAMES)
    assert set(CHANGES) == {each.name for each in ACTS if not each.needs_registry}


@pytest.mark.parametrize("name", NAMES)
def test_a_form_does_what_its_act_says(name: str) -> None:
    acting = Acting()
    answer = acting.form(name, GOOD[name])
    assert answer.status_code == 200, answer.text
    assert "Done." in answer.text
    assert acting.changed == STEPS.get(name, 1)
    if name in CHANGES:
        assert [key for key, _ in acting.brokers.changes] == [CHANGES[name]] * STEPS.get(name, 1)
    assert "cAnArY" not in answer.text


@pytest.mark.parametrize("name", NAMES)
def test_the_api_is_the_same(name: str) -> None:
    acting = Acting()
    preview = acting.api(name, GOOD[name], preview=True)
    assert preview.status_code == 200, preview.text
    assert acting.changed == 0
    done = acting.api(name, GOOD[name])
    assert done.status_code == 200, done.text
    assert acting.changed == STEPS.get(name, 1)
    was, now = preview.json()["data"], done.json()["data"]
    assert (was["done"], now["done"]) == (False, True)
    assert was["sentence"] == now["sentence"]
    assert was["changes"] == now["changes"]
    assert was["changes"]
    assert was["change_count"] == len(was["changes"])


@pytest.mark.parametrize("name", NAMES)
def test_a_preview_changes_nothing_and_is_done_as_shown(name: str) -> None:
    """Through the pages alone: form, preview, and the preview's own form with all of its fields."""
    acting, act = Acting(), BY_NAME[name]
    first = acting.ask("GET", act.path)
    data = {**GOOD[name], "token": token_of(first.text), "step": "preview"}
    preview = acting.ask("POST", act.path, data=data)
    assert preview.status_code == 200, preview.text
    assert acting.changed == 0
    assert "What will happen" in preview.text
    fields = Fields(preview.text).values
    if act.destroys:
        assert "confirm" in fields
        fields["confirm"] = GOOD[name][act.confirm]
    if "password" in GOOD[name]:
        assert fields["password"] == ""
        fields["password"] = GOOD[name]["password"]
    done = acting.ask("POST", act.path, data={**fields, "step": "do"})
    assert done.status_code == 200, done.text
    assert acting.changed == STEPS.get(name, 1)


class Fields(Seen):
    """Inputs of the form on a page, besides the logout's."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        super().__init__(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        given = dict(attrs)
        if tag == "input" and given.get("name"):
            self.values[str(given["name"])] = given.get("value") or ""


def test_a_link_of_a_destroying_act_shows_its_preview() -> None:
    acting = Acting()
    shown = acting.ask("GET", f"/acts/delete-topic?topic={TOPIC}")
    assert "What will happen" in shown.text
    assert f"Topic {TOPIC} is deleted, with every record in it." in shown.text
    assert "ottla topic delete --bootstrap=b:1 orders" in html.unescape(shown.text)
    assert acting.changed == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_form_that_is_sent_again_acts_once(name: str) -> None:
    acting = Acting()
    data = {
        **GOOD[name],
        "token": acting.token(name),
        "step": "do",
        "confirm": GOOD[name].get(BY_NAME[name].confirm, ""),
    }
    first, second = (acting.ask("POST", f"/acts/{name}", data=data) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert acting.changed == STEPS.get(name, 1)
    assert "sent before" not in first.text
    assert "sent before" in second.text


def test_a_program_names_a_request_to_make_it_once() -> None:
    acting = Acting()
    answers = [acting.api("produce", GOOD["produce"], once="a") for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert acting.changed == 1
    acting.api("produce", GOOD["produce"], once="b")
    acting.api("produce", GOOD["produce"])
    assert acting.changed == 3


@pytest.mark.parametrize("name", [name for name in NAMES if name in CHANGES])
def test_without_an_answer_it_is_said_that_it_may_be_done(name: str) -> None:
    """Neither repeated by the console nor by the same form."""
    acting = Acting()
    acting.brokers.is_silent = True
    data = {
        **GOOD[name],
        "token": acting.token(name),
        "step": "do",
        "confirm": GOOD[name].get(BY_NAME[name].confirm, ""),
    }
    for _ in range(2):
        answer = acting.ask("POST", f"/acts/{name}", data=data)
        assert answer.status_code == 503
        assert "may have been done" in answer.text
    assert len(acting.brokers.changes) == 1


@pytest.mark.parametrize("code", [7, 20])
def test_an_error_after_which_a_record_may_be_there_is_no_refusal(code: int) -> None:
    acting = Acting()
    acting.brokers.code = code
    answer = acting.form("produce", GOOD["produce"])
    assert "may have been done" in answer.text


def test_a_refused_form_can_be_sent_again_with_its_new_token() -> None:
    acting = Acting()
    acting.brokers.code = 17
    first = acting.form("create-topic", {"topic": "a b"})
    assert first.status_code == 409
    assert "INVALID_TOPIC_EXCEPTION" in first.text
    assert "may have been done" not in first.text
    assert Fields(first.text).values["topic"] == "a b"
    acting.brokers.code = 0
    data = {"topic": "ab", "token": token_of(first.text), "step": "do"}
    assert acting.ask("POST", "/acts/create-topic", data=data).status_code == 200


# Tokens


def test_tokens_have_limits_that_let_nothing_act_twice() -> None:
    tokens = Tokens()
    first = tokens.issue("a")
    for _ in range(ISSUED_MAX):
        tokens.issue("a")
    with pytest.raises(UnknownToken):
        tokens.take(first, "a")
    used = tokens.issue("a")
    assert tokens.take(used, "a") is None
    with pytest.raises(StillActing):
        tokens.take(used, "a")
    tokens.keep(used, "a", "done")
    assert tokens.take(used, "a") == "done"
    for _ in range(OUTCOMES_MAX):
        token = tokens.issue("a")
        tokens.take(token, "a")
        tokens.keep(token, "a", "done")
    with pytest.raises(UnknownToken):
        tokens.take(used, "a")


def test_one_of_many_threads_takes_a_token() -> None:
    tokens = Tokens()
    token, results = tokens.issue("a"), []

    def take() -> None:
        try:
            results.append(tokens.take(token, "a"))
        except StillActing:
            results.append("acting")

    threads = [threading.Thread(target=take) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(map(str, results)) == ["None", *["acting"] * 7]


# What acts ask for


def asked(name: str, values: Mapping[str, Any]) -> tuple[ApiKey, Mapping[str, Any]]:
    acting = Acting()
    answer = acting.api(name, values)
    assert answer.status_code == 200, answer.text
    (change,) = acting.brokers.changes
    return change


def test_a_record_has_what_was_typed() -> None:
    values = {"topic": TOPIC, "key": "ff00", "key_format": "hex", "value_format": "null", "headers": "a=1\nb=x=y"}
    _, change = asked("produce", values)
    data = change["topic_data"][0]["partition_data"][0]["records"]
    ((position, header),) = iterate_batches(memoryview(data))
    (record,) = iterate_records(memoryview(data)[position : position + header.size])
    assert (record.key, record.value) == (b"\xff\x00", None)
    assert record.headers == ((b"a", b"1"), (b"b", b"x=y")) or record.headers == (("a", b"1"), ("b", b"x=y"))
    assert change["acks"] == -1


def test_a_copy_is_the_same_record() -> None:
    _, change = asked("copy-record", {"topic": TOPIC, "partition": 0, "offset": 2, "to": OTHER})
    (topic,) = change["topic_data"]
    assert topic["name"] == OTHER
    data = memoryview(topic["partition_data"][0]["records"])
    ((position, header),) = iterate_batches(data)
    (record,) = iterate_records(data[position : position + header.size])
    assert (record.key, record.value) == (b"k", b"v2")


def test_a_form_begins_with_the_record_that_is_sent_again() -> None:
    acting = Acting()
    shown = acting.ask("GET", f"/acts/produce?topic={TOPIC}&from_partition=0&from_offset=3").text
    assert ">\nv3</textarea>" in shown
    assert "h=x" in shown
    assert acting.changed == 0


def test_offsets_of_share_groups_are_moved_by_their_own_request() -> None:
    key, change = asked("reset-offsets", {"group": SHARE, "to": "earliest"})
    assert key == ApiKey.ALTER_SHARE_GROUP_OFFSETS
    assert change["topics"] == [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    assert asked("delete-offsets", {"group": SHARE, "topic": TOPIC})[0] == ApiKey.DELETE_SHARE_GROUP_OFFSETS


@pytest.mark.parametrize(
    ("to", "value", "offset"),
    [
        ("latest", "", 5),
        ("offset", "2", 2),
        ("offset", "99", 5),
        ("shift", "+3", 3),
        ("shift", "3", 3),
        ("time", "2026-05-01T12:00", 5),
        ("places", f"{TOPIC}:0:4", 4),
    ],
)
def test_offsets_stay_within_the_partition(to: str, value: str, offset: int) -> None:
    _, change = asked("reset-offsets", {"group": GROUP, "to": to, "value": value})
    assert change["topics"][0]["partitions"][0]["committed_offset"] == offset


def test_what_was_shown_is_done_though_the_topic_has_grown() -> None:
    acting = Acting()
    shown = acting.ask(
        "POST",
        "/acts/delete-records",
        data={"topic": TOPIC, "before": "end", "token": acting.token("delete-records"), "step": "preview"},
    )
    fields = Fields(shown.text).values
    assert fields["before"] == f"{TOPIC}:0:5"
    acting.brokers.records = [*acting.brokers.records, *acting.brokers.records]
    acting.ask("POST", "/acts/delete-records", data={**fields, "confirm": TOPIC, "step": "do"})
    ((_, change),) = acting.brokers.changes
    assert change["topics"][0]["partitions"] == [{"partition_index": 0, "offset": 5}]


def test_members_keep_offsets_and_groups() -> None:
    for name in ("reset-offsets", "delete-group"):
        acting = Acting()
        acting.brokers.members = 1
        answer = acting.api(name, GOOD[name])
        assert answer.status_code == 409
        assert "Stop its members first" in answer.json()["error"]
        assert acting.changed == 0
        warnings = acting.api(name, GOOD[name], preview=True).json()["data"]["warnings"]
        assert any("Stop its members first" in each for each in warnings)


def test_a_schema_that_is_not_compatible_is_not_registered() -> None:
    acting = Acting()
    acting.registry.refused = ["a field is gone"]
    answer = acting.api("register-schema", GOOD["register-schema"])
    assert answer.status_code == 409
    assert "a field is gone" in answer.json()["error"]
    assert acting.changed == 0


# Commands


@pytest.mark.parametrize("act", ACTS, ids=NAMES)
def test_commands_are_those_of_the_command_line(act: Act) -> None:
    """Each line parses as `ottla` parses it, so that it can be copied."""
    import shlex

    told = Acting().api(act.name, GOOD[act.name], preview=True).json()["data"]["command"]
    for line in filter(None, told.splitlines()):
        program, *arguments = shlex.split(line)
        assert program == "ottla"
        application(arguments[0]).parse_args(arguments, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("group", ["-rf", "--to=1", "a b", "$(x)", "it's", '"', "a;b|c", "é\u202e"])
def test_a_command_quotes_what_it_names(group: str) -> None:
    import shlex

    acting = Acting()
    acting.brokers.groups = {group: "classic"}
    told = acting.api("delete-group", {"group": group}, preview=True).json()["data"]["command"]
    _, *arguments = shlex.split(told)
    _, bound, _ = application("group").parse_args(arguments, exit_on_error=False, print_error=False)
    assert group in bound.args


def test_the_page_has_the_table_of_acts() -> None:
    """`python -m tools.console_acts docs/console.md` writes it."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "console.md").read_text()
    assert page(text) == text


# Audit


def test_every_act_is_a_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ottla.console.audit"):
        acting = Acting()
        for name in NAMES:
            acting.api(name, GOOD[name])
        acting.brokers.code = 29
        acting.api("delete-topic", GOOD["delete-topic"])
        acting.api("delete-topic", {"topic": "none"})
    lines = [getattr(each, "ottla_fields", {}) for each in caplog.records if each.message == "act"]
    assert [line["act"] for line in lines[:-2]] == NAMES
    assert {line["outcome"] for line in lines[:-2]} == {"done"}
    assert [line["outcome"] for line in lines[-2:]] == ["refused", "refused"]
    assert "Delete on Topic orders" in lines[-2]["error"]
    assert "TOPIC_AUTHORIZATION_FAILED" in lines[-2]["error"]
    assert "cAnArY" not in caplog.text
    produced = next(line for line in lines if line["act"] == "produce")
    assert "value=[1 characters]" in produced["parameters"]
    assert "topic='orders'" in produced["parameters"]
