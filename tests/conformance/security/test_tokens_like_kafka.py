"""Delegation tokens of Ottla and of Apache Kafka: the same questions by the same users, the same answers. What is meant
to differ is in DIFFERENT, with both answers."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Operation, ResourceType
from ottla.security.sasl import scram
from ottla.security.sasl.client import ScramClient
from peers.kafka import START_FAST, KafkaPeer, hold_port
from tests.conformance.differential.permissions import ALLOW, LITERAL
from tests.conformance.security.test_sasl_like_kafka import Talk
from tests.node import NodeProcess

CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
SECRET = "cAnArY, the secret of both"
NAMES = ("admin", "alice", "bob", "carol")
MODULE = "org.apache.kafka.common.security.{}LoginModule required "
USERS = MODULE.format("plain.Plain") + 'username="admin" password="admin-secret" ' + " ".join(
    f'user_{name}="{name}-secret"' for name in NAMES
)  # fmt: skip
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"{PREFIX}plain.sasl.jaas.config": f"{USERS};",
    f"{PREFIX}scram-sha-256.sasl.jaas.config": MODULE.format("scram.Scram") + ";",
    "delegation.token.secret.key": SECRET,
    "delegation.token.expiry.time.ms": "3600000",
    "delegation.token.max.lifetime.ms": "7200000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
EXPIRED_LOGIN = "a login with a token that has expired and is still there"
DIFFERENT = {EXPIRED_LOGIN}
"""Kafka lets it in, with a session that is over at once; a client without re-authentication stays for ever."""


class Side:
    """A node with two listeners, and the connections of its users."""

    def __init__(self, port: int, plaintext: int) -> None:
        self.port = port
        self.plaintext = Talk(plaintext)
        self.users = {name: self.logged_in(name) for name in NAMES}
        self.tokens: dict[str, Any] = {}
        """Tokens that were made, by what the test calls them."""
        self.expiries: dict[str, int] = {}
        """By id, when each was last said to expire."""

    def row_of(self, name: str) -> Any:
        """A token as its admin sees it; None where it is gone."""
        found = self.users["admin"].ask(DESCRIBE, 3, {"owners": None})["tokens"]
        return next((each for each in found if each["token_id"] == self.tokens[name]["token_id"]), None)

    def logged_in(self, name: str) -> Talk:
        talk = Talk(self.port)
        assert talk.log_in(name, f"{name}-secret")["error_code"] == 0
        return talk

    def with_token(self, token_id: str, password: str, extension: str = "true") -> tuple[Talk, list[Any]]:
        talk = Talk(self.port)
        talk.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        here = ScramClient(scram.SHA_256, token_id, password, bytes(17), extensions={"tokenauth": extension})
        first = talk.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": here.first()})
        if not isinstance(first, dict) or first["error_code"]:
            return talk, [first]
        token = here.step(first["auth_bytes"])
        final = talk.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        return talk, [final]

    def who(self, name: str) -> Talk:
        return self.plaintext if name == "nobody" else self.users[name]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory: Path = tmp_path_factory.mktemp("tokens")
    node = NodeProcess(directory / "data")
    peer = KafkaPeer(directory / "kafka", heap="256m", flags=START_FAST, settings=SETTINGS)
    held = [hold_port() for _ in range(2)]
    ports = [each.getsockname()[1] for each in held]
    places = [
        f"PLAINTEXT://127.0.0.1:{main},SASL_PLAINTEXT://127.0.0.1:{port}"
        for main, port in zip((node.port, peer.port), ports, strict=True)
    ]
    node.settings |= {**SETTINGS, "listeners": places[0]}
    peer.settings |= {
        "listeners": f"{places[1]},CONTROLLER://127.0.0.1:{peer.controller_port}",
        "advertised.listeners": places[1],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    for each in held:
        each.close()
    with node, peer:
        yield Side(ports[0], node.port), Side(ports[1], peer.port)
    for path in (node.output, *(each for each in (directory / "data").rglob("*") if each.is_file())):
        assert SECRET.encode() not in path.read_bytes(), path


def row(name: str, kind: str = "User") -> dict[str, str]:
    return {"principal_type": kind, "principal_name": name}


def creation(owner: str | None = None, *renewers: Any, lifetime: int = -1, kind: str | None = "User") -> dict[str, Any]:
    return {
        "owner_principal_type": None if owner is None else kind,
        "owner_principal_name": owner,
        "renewers": list(renewers),
        "max_lifetime": lifetime,
    }


def comparable(side: Side, answer: Any) -> Any:
    """Without what is random, and times as periods since the token was made."""
    if not isinstance(answer, Mapping):
        return answer
    names = {made["token_id"]: name for name, made in side.tokens.items()}
    found = {name: value for name, value in answer.items() if name not in ("hmac", "throttle_time")}
    issued = found.get("issue_timestamp", 0)
    if issued:
        for name in ("expiry_timestamp", "max_timestamp"):
            found[name] -= issued
        if answer["expiry_timestamp"] == side.expiries.get(answer["token_id"]):
            found["expiry_timestamp"] = "as it was said"
        found["issue_timestamp"] = "then"
    elif found.get("expiry_timestamp", 0) > 0:
        found["expiry_timestamp"] = round((found["expiry_timestamp"] - time.time() * 1000) / 60_000)
    if found.get("token_id"):
        found["token_id"] = names.get(found["token_id"], "another")
    found["hmac"] = len(answer.get("hmac", b""))
    if "tokens" in found:
        rows = [comparable(side, each) for each in found["tokens"]]
        found["tokens"] = sorted(rows, key=lambda each: str(each["token_id"]))
    return found


class Conversation:
    """The same is done on both sides, and the answers are kept."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self.sides = sides
        self.different: dict[str, list[Any]] = {}
        self.asked = 0

    def ask(self, what: str, user: str, key: ApiKey, values: Mapping[str, Any], version: int | None = None) -> Any:
        """`values` may name a token in place of its HMAC. Versions are all that there are without one."""
        newest = 3 if key in (CREATE, DESCRIBE) else 2
        for each in range(1, newest + 1) if version is None else (version,):
            answers, seen = [], []
            for side in self.sides:
                asked = dict(values)
                named = asked.get("hmac")
                if isinstance(named, str):
                    asked["hmac"] = side.tokens[named]["hmac"]
                answer = side.who(user).ask(key, each, asked)
                seen.append(comparable(side, answer))
                if isinstance(named, str) and isinstance(answer, dict) and not answer["error_code"]:
                    self.changed(side, named, answer["expiry_timestamp"])
                answers.append(answer)
            self.asked += 1
            if seen[0] != seen[1]:
                self.different[f"{what} v{each}"] = seen
        return answers

    def changed(self, side: Side, name: str, expiry: int) -> None:
        """Kafka answers before its own broker has seen the change."""
        side.expiries[side.tokens[name]["token_id"]] = expiry
        until_s = time.monotonic() + 60
        while (row := side.row_of(name)) is not None and row["expiry_timestamp"] != expiry:
            assert time.monotonic() < until_s
            time.sleep(0.02)

    def create(self, name: str, user: str, values: Mapping[str, Any]) -> None:
        self.asked += 1
        for side in self.sides:
            made = side.who(user).ask(CREATE, 3, values)
            assert made["error_code"] == 0, made
            side.tokens[name] = made
        self.wait(name)
        seen = [comparable(side, side.tokens[name]) for side in self.sides]
        if seen[0] != seen[1]:
            self.different[f"create {name}"] = seen

    def wait(self, name: str, *, gone: bool = False) -> None:
        """Until both brokers have seen it: Kafka's answers before its own broker has."""
        for side in self.sides:
            until_s = time.monotonic() + 60
            while (side.row_of(name) is None) != gone:
                assert time.monotonic() < until_s
                time.sleep(0.02)

    def login(self, what: str, name: str, password: str | None = None, extension: str = "true") -> list[Talk]:
        talks: list[Talk] = []
        seen: list[Any] = []
        for side in self.sides:
            made = side.tokens.get(name, {"token_id": name, "hmac": b""})
            shown = base64.b64encode(made["hmac"]).decode() if password is None else password
            talk, answers = side.with_token(made["token_id"], shown, extension)
            talks.append(talk)
            final = answers[-1]
            if isinstance(final, dict):
                lasts = round(final.get("session_lifetime", 0) / 600_000)
                final = (final["error_code"], final["error_message"], lasts)
            seen.append(final)
        self.asked += 1
        if seen[0] != seen[1]:
            self.different[what] = seen
        return talks


def acl(user: str, operation: Operation, kind: ResourceType, name: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
    }


@pytest.mark.nightly(
    "tests/unit/server/security/test_delegation_tokens.py::test_a_token_is_made_and_described",
    "tests/unit/server/security/test_delegation_tokens.py::test_who_may_renew_and_end_it",
    "tests/unit/server/security/test_delegation_tokens.py::test_who_may_have_tokens_of_others",
    "tests/unit/server/security/test_delegation_tokens.py::test_connections_that_may_not_ask",
    "tests/unit/server/security/test_delegation_tokens.py::test_a_login_with_a_token",
)
def test_tokens(both: tuple[Side, Side]) -> None:
    talk = Conversation(both)
    talk.create("own", "alice", creation(None, row("bob")))
    talk.create("short", "alice", creation(lifetime=1))
    talk.create("week", "alice", creation(lifetime=10**10))
    talk.create("zero", "alice", creation(lifetime=0))
    talk.create("of carol", "admin", creation("carol", row("bob")))
    talk.create("odd owner", "admin", creation("carol", kind="Group"))
    talk.create("empty owner", "alice", creation(""))

    talk.ask("an owner without the right", "alice", CREATE, creation("bob"), 3)
    talk.ask("oneself by name", "alice", CREATE, creation("alice"), 3)
    talk.ask("a renewer of another type", "alice", CREATE, creation(None, row("bob"), row("x", "Group")))
    talk.ask("both wrong", "alice", CREATE, creation("bob", row("x", "Group")), 3)
    for name in ("nobody", "bob", "carol", "alice", "admin"):
        for token in ("own", "of carol"):
            talk.ask(f"{name} renews {token}", name, RENEW, {"hmac": token, "renew_period": 1_800_000})
            for owners in (None, [], [row("alice")], [row("carol"), row("dave")], [row("alice", "Group")]):
                talk.ask(f"{name} describes {owners}", name, DESCRIBE, {"owners": owners})
        talk.ask(f"{name} expires own", name, EXPIRE, {"hmac": "own", "expiry_time_period": 6_000_000})
    for wrong in (b"", b"x", bytes(64)):
        talk.ask("no such token", "alice", RENEW, {"hmac": wrong, "renew_period": -1})
        talk.ask("no such token", "alice", EXPIRE, {"hmac": wrong, "expiry_time_period": -1})
    for period in (-1, 0, 1, 10**10):
        talk.ask(f"renewed for {period}", "alice", RENEW, {"hmac": "week", "renew_period": period})
    talk.ask("a token that has expired", "alice", RENEW, {"hmac": "short", "renew_period": -1})
    talk.ask("a token that has expired", "alice", EXPIRE, {"hmac": "short", "expiry_time_period": 1})
    talk.ask("a token that has expired, of another", "bob", RENEW, {"hmac": "short", "renew_period": -1})

    talk.login("a login", "own")
    talk.login("a login of an odd owner", "odd owner")
    talk.login("a wrong password", "own", "wrong")
    talk.login("an unknown id", "AAAAAAAAAAAAAAAAAAAAAQ", "wrong")
    talk.login("an extension that says no", "own", extension="false")
    talk.login("in capitals", "own", extension="TRUE")
    talk.login(EXPIRED_LOGIN, "short")

    guests = talk.login("another login", "own")
    for side, guest in zip(both, guests, strict=True):
        side.users["guest"] = guest
    for key, values in (
        (CREATE, creation()),
        (RENEW, {"hmac": "own", "renew_period": -1}),
        (EXPIRE, {"hmac": "own", "expiry_time_period": -1}),
        (DESCRIBE, {"owners": None}),
    ):
        talk.ask(f"{key.name} by a token", "guest", key, values)
        talk.ask(f"{key.name} without a login", "nobody", key, values)

    talk.ask("the end", "bob", EXPIRE, {"hmac": "own", "expiry_time_period": -1}, 2)
    talk.wait("own", gone=True)
    talk.ask("after the end", "alice", RENEW, {"hmac": "own", "renew_period": -1})
    talk.login("a login after the end", "own")
    talk.ask("its connection afterwards", "guest", ApiKey.LIST_GROUPS, {"states_filter": []}, 3)
    _rights(talk, both)
    assert talk.asked > 100
    different = {name for name in talk.different if not name.startswith(tuple(DIFFERENT))}
    assert not different, "\n".join(
        f"{name}:\n  {talk.different[name][0]}\n  {talk.different[name][1]}" for name in different
    )
    assert {name for name in DIFFERENT if name in talk.different} == DIFFERENT, "Kafka does as Ottla now"


def _rights(talk: Conversation, both: tuple[Side, Side]) -> None:
    """KIP-373: what ACLs open."""
    for side in both:
        rules = [
            acl("alice", Operation.CREATE_TOKENS, ResourceType.USER, "User:dave"),
            acl("alice", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:carol"),
            acl("bob", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, side.tokens["week"]["token_id"]),
        ]
        answer = side.users["admin"].ask(ApiKey.CREATE_ACLS, 3, {"creations": rules})
        assert not any(each["error_code"] for each in answer["results"]), answer
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            tokens = side.users["bob"].ask(DESCRIBE, 3, {"owners": None})["tokens"]
            if any(each["token_id"] == side.tokens["week"]["token_id"] for each in tokens):
                break
            time.sleep(0.02)
    talk.create("of dave", "alice", creation("dave"))
    for name in ("alice", "bob", "carol"):
        for owners in (None, [row("carol")], [row("alice")], [row("dave")]):
            talk.ask(f"{name} may describe {owners}", name, DESCRIBE, {"owners": owners})


@pytest.mark.nightly("tests/unit/server/security/test_delegation_tokens.py::test_connections_that_may_not_ask")
def test_the_bytes_of_refusals(both: tuple[Side, Side]) -> None:
    """Timestamps of -1 and 0 are told apart only there."""
    for user, values in (("nobody", creation()), ("alice", creation("bob")), ("alice", creation(None, row("x", "G")))):
        frames = [side.who(user).raw(messages.encode_request(CREATE, 3, 7, "t", values)) for side in both]
        assert frames[0] == frames[1]
    for key, more in ((RENEW, {"renew_period": -1}), (EXPIRE, {"expiry_time_period": -1})):
        for user in ("nobody", "alice"):
            asked = messages.encode_request(key, 2, 7, "t", {"hmac": b"x", **more})
            frames = [side.who(user).raw(asked) for side in both]
            assert frames[0] == frames[1], (key, user)
