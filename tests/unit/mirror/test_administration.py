"""What a cluster refuses of ACLs, quotas and settings is said, and holds up nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.mirror.administration import AT_ONCE, Administration
from ottla.mirror.carrying import Change
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Binding


def test_a_refusal_is_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[ApiKey, int]] = []

    def answer(key: ApiKey, values: Mapping[str, Any]) -> Any:
        rows = next(each for each in values.values() if isinstance(each, list))
        asked.append((key, len(rows)))
        codes = [ErrorCode.invalid_request, *[ErrorCode.none] * (len(rows) - 1)]
        found = [{"error_code": code, "error_message": "no" if code else None} for code in codes]
        return dict.fromkeys(("results", "filter_results", "entries", "responses"), found)

    there = Administration("127.0.0.1:1")
    monkeypatch.setattr(there._client, "ask_any", answer)
    acls = [
        Change("acl", f"acl {n}", "create", subject=Binding(2, f"t{n}", 3, "User:a", "*", 3, 3))
        for n in range(AT_ONCE + 2)
    ]
    failures = there.apply(
        [
            *acls,
            Change("acl", "old", "delete", subject=acls[0].subject),
            Change("quota", "user a", "alter", {"producer_byte_rate": 1.0}, subject=(("user", "a"),)),
            Change("quota", "user b", "alter", {"producer_byte_rate": None}, subject=(("user", "b"),)),
            Change("broker-config", "x", "alter", {"x": "1"}),
            Change("broker-config", "y", "delete", {"y": None}),
        ]
    )
    assert [str(each) for each in failures] == [
        "acl acl 0: no",
        f"acl acl {AT_ONCE}: no",
        "acl old: no",
        "quota user a: no",
        "broker-config x: no",
        "broker-config y: no",
    ]
    assert asked == [
        (ApiKey.CREATE_ACLS, AT_ONCE),
        (ApiKey.CREATE_ACLS, 2),
        (ApiKey.DELETE_ACLS, 1),
        (ApiKey.ALTER_CLIENT_QUOTAS, 2),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1),
    ]
