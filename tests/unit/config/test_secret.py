"""A text that hides itself (CVE-2026-33558: secrets in logs)."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from dataclasses import dataclass

import pytest

from ottla.config.secret import HIDDEN, Secret
from ottla.logs import JsonFormatter, TextFormatter, fields

CANARY = "cAnArY"
SECRET = Secret(CANARY)


@dataclass
class Holder:
    password: Secret


@pytest.mark.parametrize(
    "shown",
    [
        repr(SECRET),
        str(SECRET),
        f"{SECRET}",
        f"{SECRET!r}",
        f"{SECRET:>20}",
        " ".join(map(str, [SECRET])),
        repr([SECRET]),
        repr({"a": SECRET}),
        repr(Holder(SECRET)),
        str(ValueError(SECRET)),
        repr(ValueError(SECRET)),
        f"{[SECRET]}",
        "".join(traceback.format_exception_only(ValueError(SECRET))),
    ],
)
def test_it_shows_nothing(shown: str) -> None:
    assert HIDDEN in shown and CANARY not in shown


def test_neither_does_a_line_of_the_log() -> None:
    record = logging.LogRecord("ottla", logging.INFO, "", 0, "told %s", (SECRET,), None)
    record.__dict__.update(fields(password=SECRET, holder=Holder(SECRET)))
    line = TextFormatter().format(record)
    assert HIDDEN in line and CANARY not in line
    assert CANARY not in JsonFormatter().format(record)


def test_it_is_the_text_where_that_is_asked_for() -> None:
    assert SECRET.reveal() == CANARY and type(SECRET.reveal()) is str
    assert SECRET.encode() == CANARY.encode() and SECRET == CANARY and len(SECRET) == len(CANARY)
    assert pickle.loads(pickle.dumps(SECRET)).reveal() == CANARY
    with pytest.raises(TypeError):
        SECRET % ()


def test_json_is_for_what_is_meant_to_leave() -> None:
    """It has the text itself, which is why none is written into a log unshown."""
    assert json.dumps(SECRET.reveal()) == f'"{CANARY}"'
