"""`ottla token`: requests out, sentences back. An HMAC is printed where it is asked for, and never an argument."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.security import token as tokens
from ottla.cli.values import parse_period_ms
from ottla.protocol.messages import ApiKey
from tests.unit.cli.fake_cluster import BOOTSTRAP, FakeCluster, serve

HOUR_MS = 3_600_000
SPARE_MS = 30_000
"""So that the time that the test takes is not seen."""
HMAC = b"\xffcAnArY" * 9


class Tokens:
    """A cluster with tokens, and what was asked of it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.rows: list[dict[str, Any]] = []
        self.asked: list[Mapping[str, Any]] = []
        self.refusal = 0
        cluster.answers = {
            ApiKey.CREATE_DELEGATION_TOKEN: self._create,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self._describe,
            ApiKey.RENEW_DELEGATION_TOKEN: self._change,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self._change,
        }

    def _create(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(values)
        now = round(time.time() * 1000)
        row = {
            "principal_type": "User",
            "principal_name": values["owner_principal_name"] or "me",
            "token_requester_principal_type": "User",
            "token_requester_principal_name": "me",
            "issue_timestamp": now,
            "expiry_timestamp": now + 24 * HOUR_MS + SPARE_MS,
            "max_timestamp": now + 168 * HOUR_MS + SPARE_MS,
            "token_id": f"token-{len(self.rows)}",
            "hmac": HMAC,
        }
        if not self.refusal:
            self.rows.append({**row, "renewers": values["renewers"]})
        return {"error_code": self.refusal, **row}

    def _describe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(values)
        return {"error_code": self.refusal, "tokens": self.rows}

    def _change(self, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(values)
        return {"error_code": 0, "expiry_timestamp": round(time.time() * 1000) + 2 * HOUR_MS + SPARE_MS}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    cluster = FakeCluster()
    serve(monkeypatch, cluster)
    return Tokens(cluster)


def test_a_token_is_made_and_its_hmac_printed_once(found: Tokens, capsys: pytest.CaptureFixture[str]) -> None:
    renewers = ["bob", "User:carol"]
    assert tokens.create(owner="alice", renewer=renewers, lifetime="7d", bootstrap=BOOTSTRAP) == OK
    asked = found.asked[-1]
    assert asked["owner_principal_name"] == "alice" and asked["max_lifetime"] == 7 * 24 * HOUR_MS
    assert [each["principal_name"] for each in asked["renewers"]] == ["bob", "carol"]
    printed = capsys.readouterr()
    shown = tokens._password({"hmac": HMAC})
    assert printed.out.startswith("token token-0 of alice, expires in 1d unless it is renewed, and ends in 7d")
    assert f"hmac: {shown}\n" in printed.out and f'password="{shown}" tokenauth="true";' in printed.out
    assert "SASL_SSL" in printed.err, "it came without TLS"

    assert tokens.list_tokens(bootstrap=BOOTSTRAP) == OK
    printed = capsys.readouterr()
    assert "token-0" in printed.out and "bob, carol" in printed.out and shown not in printed.out and not printed.err
    assert tokens.list_tokens(hmac=True, owner=["alice"], json=True, bootstrap=BOOTSTRAP) == OK
    (row,) = json.loads(capsys.readouterr().out)
    assert row["hmac"] == shown and row["owner"] == "alice" and row["requester"] == "me"
    assert found.asked[-1] == {"owners": [{"principal_type": "User", "principal_name": "alice"}]}
    assert tokens.list_tokens(json=True, bootstrap=BOOTSTRAP) == OK
    assert "hmac" not in json.loads(capsys.readouterr().out)[0]


def test_tokens_are_named_by_their_ids(found: Tokens, capsys: pytest.CaptureFixture[str]) -> None:
    tokens.create(json=True, bootstrap=BOOTSTRAP)
    assert found.asked[-1]["max_lifetime"] == -1 and found.asked[-1]["owner_principal_name"] is None
    capsys.readouterr()
    assert tokens.renew("token-0", bootstrap=BOOTSTRAP) == OK
    assert found.asked[-1] == {"hmac": HMAC, "renew_period": -1}
    assert tokens.renew("token-0", period="2h", bootstrap=BOOTSTRAP) == OK
    assert found.asked[-1] == {"hmac": HMAC, "renew_period": 2 * HOUR_MS}
    assert tokens.expire("token-0", after="10m", json=True, bootstrap=BOOTSTRAP) == OK
    assert found.asked[-1] == {"hmac": HMAC, "expiry_time_period": 600_000}
    assert tokens.expire("token-0", bootstrap=BOOTSTRAP) == OK
    assert found.asked[-1] == {"hmac": HMAC, "expiry_time_period": -1}
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("token token-0 of me renewed: expires in 2h") and last == "token token-0 of me expired"
    with pytest.raises(CommandFailed, match="there is no token other"):
        tokens.renew("other", bootstrap=BOOTSTRAP)


@pytest.mark.parametrize(
    ("code", "sentence"), [(61, "delegation.token.secret.key"), (64, "log in with a password"), (65, "CREATE_TOKENS")]
)
def test_refusals_say_what_to_do(found: Tokens, code: int, sentence: str) -> None:
    found.refusal = code
    with pytest.raises(CommandFailed, match=sentence) as raised:
        tokens.create(owner="bob", bootstrap=BOOTSTRAP)
    assert raised.value.exit_code == FAILED
    with pytest.raises(CommandFailed):
        tokens.list_tokens(bootstrap=BOOTSTRAP)


def test_periods() -> None:
    assert [parse_period_ms(each) for each in ("30s", "10m", "12h", "7d")] == [
        30_000,
        600_000,
        12 * HOUR_MS,
        168 * HOUR_MS,
    ]
    for wrong in ("", "0s", "1", "-1d", "1w", "1.5h", "36501d", "9" * 12 + "d", "١d"):
        assert parse_period_ms(wrong) is None
