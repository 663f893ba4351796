"""`ottla token ...`: delegation tokens, like `kafka-delegation-tokens.sh`.

A token is named by its id, which is no secret. Its HMAC, which is the password, is never an argument: it is printed by
`create`, and by `list --hmac`.
"""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from ottla.cli import client_security, wire
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Flag
from ottla.cli.output import iso_time, print_json, print_table
from ottla.cli.units import duration
from ottla.cli.values import Period, Text, TokenId, parse_period_ms
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey

app = App(name="token", help="Create, renew, expire and list delegation tokens.", sort_key=9)

SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SENTENCES: Final[Mapping[int, str]] = {
    ErrorCode.delegation_token_auth_disabled: "the nodes make no tokens\n"
    "  set delegation.token.secret.key, the same on all of them",
    ErrorCode.delegation_token_request_not_allowed: "this connection may not be used for tokens\n"
    "  log in with a password or a certificate, not with a token, and not on a PLAINTEXT listener",
    ErrorCode.delegation_token_owner_mismatch: "only the token's owner and its renewers may do that",
    ErrorCode.delegation_token_expired: "the token has expired\n  make another one with: ottla token create",
    ErrorCode.delegation_token_not_found: "there is no such token\n  see the tokens with: ottla token list",
    ErrorCode.delegation_token_authorization_failed: "that takes CREATE_TOKENS on the user",
}


@app.command
def create(
    *,
    owner: Annotated[
        Text | None, Parameter(name="--owner", help="Whose token it is, such as alice; yours without.")
    ] = None,
    renewer: Annotated[
        list[Text] | None,
        Parameter(name="--renewer", negative="", help="Who else may renew and expire it; may be repeated."),
    ] = None,
    lifetime: Annotated[
        Period | None,
        Parameter(
            name="--lifetime", help="It can be renewed for so long: 12h or 7d. Default: as long as the nodes let."
        ),
    ] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Create a token, with which programs log in as its owner for some days, without the owner's password.

    What is printed is a secret. A client shows it by SCRAM, with tokenauth="true" in sasl.jaas.config.
    """
    kind, name = (None, None) if owner is None else _principal(owner)
    answer = wire.ask(
        bootstrap,
        ApiKey.CREATE_DELEGATION_TOKEN,
        {
            "owner_principal_type": kind,
            "owner_principal_name": name,
            "renewers": [_row(*_principal(each)) for each in renewer or ()],
            "max_lifetime": -1 if lifetime is None else parse_period_ms(lifetime),
        },
    )
    _check(answer)
    _warn_of_clear_text()
    password = base64.b64encode(answer["hmac"]).decode()
    if json:
        print_json({**_as_json(answer), "hmac": password})
        return OK
    print(f"token {answer['token_id']} of {_named(answer)}, {_ends(answer)}")
    print(f"hmac: {password}")
    print("a client logs in with it by:")
    print("  sasl.mechanism=SCRAM-SHA-256")
    print(
        f'  sasl.jaas.config={SCRAM_MODULE} required username="{answer["token_id"]}" password="{password}" '
        'tokenauth="true";'
    )
    return OK


@app.command
def renew(
    token_id: TokenId,
    /,
    *,
    period: Annotated[
        Period | None,
        Parameter(name="--period", help="For so long from now on: 12h or 1d. Default: as long as the nodes let."),
    ] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Renew a token: it is valid for a day from now on, or another period, but never beyond its end.

    Parameters
    ----------
    token_id
        The token's id, as list shows it.
    """
    found = _found(bootstrap, token_id)
    period_ms = -1 if period is None else parse_period_ms(period)
    answer = wire.ask(bootstrap, ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": found["hmac"], "renew_period": period_ms})
    return _changed(answer, found, "renewed", as_json=json)


@app.command
def expire(
    token_id: TokenId,
    /,
    *,
    after: Annotated[Period | None, Parameter(name="--after", help="Not now but in so much time: 10m or 1h.")] = None,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """Expire a token: nobody logs in with it any more. Connections that are open stay until their sessions end.

    Parameters
    ----------
    token_id
        The token's id, as list shows it.
    """
    found = _found(bootstrap, token_id)
    period_ms = -1 if after is None else parse_period_ms(after)
    answer = wire.ask(
        bootstrap, ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": found["hmac"], "expiry_time_period": period_ms}
    )
    return _changed(answer, found, "expired" if after is None else "changed", as_json=json)


@app.command(name="list")
def list_tokens(
    *,
    owner: Annotated[
        list[Text] | None,
        Parameter(
            name="--owner",
            negative="",
            help="Only tokens that this user owns, asked for or may renew; may be repeated.",
        ),
    ] = None,
    hmac: Annotated[Flag, Parameter(name="--hmac", help="Print the HMACs too: who has one can log in.")] = False,
    json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
) -> int:
    """List the tokens that you own, asked for, may renew or may describe."""
    owners = None if owner is None else [_row(*_principal(each)) for each in owner]
    found = sorted(_described(bootstrap, owners), key=lambda row: (row["expiry_timestamp"], row["token_id"]))
    if hmac:
        _warn_of_clear_text()
    if json:
        print_json([{**_as_json(row), **({"hmac": _password(row)} if hmac else {})} for row in found])
        return OK
    columns = ("TOKEN", "OWNER", "REQUESTER", "RENEWERS", "EXPIRES IN>", "ENDS IN>", *(("HMAC",) if hmac else ()))
    print_table(
        columns,
        [
            (
                row["token_id"],
                _named(row),
                _named(row, "token_requester_"),
                ", ".join(_named(each) for each in row["renewers"]) or "-",
                _left(row["expiry_timestamp"]),
                _left(row["max_timestamp"]),
                *((_password(row),) if hmac else ()),
            )
            for row in found
        ],
    )
    return OK


def _described(bootstrap: str, owners: Sequence[Mapping[str, str]] | None) -> list[dict[str, Any]]:
    """Raises CommandFailed."""
    answer = wire.ask(bootstrap, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": owners})
    _check(answer)
    found: list[dict[str, Any]] = answer["tokens"]
    return found


def _found(bootstrap: str, token_id: str) -> dict[str, Any]:
    """A token that this user may see. Raises CommandFailed."""
    for row in _described(bootstrap, None):
        if row["token_id"] == token_id:
            return row
    raise CommandFailed(f"there is no token {token_id}, or it is not yours\n  see yours with: ottla token list", FAILED)


def _changed(answer: Mapping[str, Any], found: Mapping[str, Any], what: str, *, as_json: bool) -> int:
    _check(answer)
    now = {**found, "expiry_timestamp": answer["expiry_timestamp"]}
    if as_json:
        print_json(_as_json(now))
    elif what == "expired":
        print(f"token {found['token_id']} of {_named(found)} expired")
    else:
        print(f"token {found['token_id']} of {_named(found)} {what}: {_ends(now)}")
    return OK


def _check(answer: Mapping[str, Any]) -> None:
    """Raises CommandFailed for an answer with an error."""
    if answer["error_code"]:
        code = ErrorCode(answer["error_code"])
        sentence = _SENTENCES.get(code)
        if sentence is None:
            raise CommandFailed(f"refused: {code.name.upper()}", FAILED)
        first, newline, rest = sentence.partition("\n")
        raise CommandFailed(f"{first} ({code.name.upper()}){newline}{rest}", FAILED)


def _warn_of_clear_text() -> None:
    if client_security.current().tls is None:
        print("ottla: warning: the HMAC came without TLS, where others may read it: use SASL_SSL", file=sys.stderr)


def _principal(text: str) -> tuple[str, str]:
    """`alice` or `User:alice` as a type and a name."""
    kind, colon, name = text.partition(":")
    return (kind, name) if colon and kind.isalpha() else ("User", text)


def _row(kind: str, name: str) -> dict[str, str]:
    return {"principal_type": kind, "principal_name": name}


def _named(row: Mapping[str, Any], prefix: str = "") -> str:
    kind, name = row.get(f"{prefix}principal_type") or "User", row.get(f"{prefix}principal_name") or "-"
    return name if kind == "User" else f"{kind}:{name}"


def _password(row: Mapping[str, Any]) -> str:
    return base64.b64encode(row["hmac"]).decode()


def _left(at_ms: int) -> str:
    seconds = at_ms / 1000 - time.time()
    return duration(seconds) if seconds > 0 else "expired"


def _ends(row: Mapping[str, Any]) -> str:
    text = f"expires in {_left(row['expiry_timestamp'])}"
    end = row.get("max_timestamp") or 0
    return text if end <= row["expiry_timestamp"] else f"{text} unless it is renewed, and ends in {_left(end)}"


def _as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "token_id": row["token_id"],
        "owner": _named(row),
        "requester": _named(row, "token_requester_"),
        "renewers": [_named(each) for each in row.get("renewers", ())],
    }
    for name, field in (("issued", "issue_timestamp"), ("expires", "expiry_timestamp"), ("ends", "max_timestamp")):
        found[f"{name}_ms"] = row[field]
        found[name] = iso_time(row[field])
    return found
