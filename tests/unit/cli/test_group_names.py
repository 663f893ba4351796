"""Which groups are listed and asked about."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.exits import CommandFailed
from ottla.cli.group_view import groups, names_of_groups


class Admin:
    """Lists groups as librdkafka does."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(valid=[SimpleNamespace(group_id=each) for each in self.ids], errors=[]))
        return answer


def test_a_group_without_an_id_is_not_asked_about() -> None:
    assert names_of_groups(Admin("b", "", "a")) == ["a", "b"]  # type: ignore[arg-type]


def test_an_empty_name_is_refused_in_a_sentence() -> None:
    with pytest.raises(CommandFailed, match="the id of a group is not empty"):
        groups(Admin(), [""])  # type: ignore[arg-type]
