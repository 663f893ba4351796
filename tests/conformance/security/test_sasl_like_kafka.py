"""The same conversations before, during and after a login with Ottla and with Apache Kafka: the same answers, the same
ends. What is meant to differ is in DIFFERENT, with both answers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import ScramClient
from peers.kafka import START_FAST, KafkaPeer
from tests.node import NodeProcess

PREFIX = "listener.name.sasl_plaintext."
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
USERS = PLAIN + 'user_admin="admin-secret" user_alice="alice-secret";'
SESSION_MS = 1500


def settings() -> dict[str, str]:
    return {
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{PREFIX}plain.sasl.jaas.config": USERS,
        f"{PREFIX}scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        f"{PREFIX}scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The ports of an Ottla and of a Kafka with the same settings, each with the same SCRAM user."""
    directory = tmp_path_factory.mktemp("sasl")
    node = NodeProcess(directory / "data")
    node.settings |= {**settings(), "listeners": f"SASL_PLAINTEXT://{node.bootstrap}"}
    peer = KafkaPeer(directory / "kafka", heap="256m", flags=START_FAST, settings=settings())
    listener = f"SASL_PLAINTEXT://127.0.0.1:{peer.port}"
    peer.settings |= {
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{peer.controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with node, peer:
        for port in (node.port, peer.port):
            talk = Talk(port)
            talk.log_in("admin", "admin-secret")
            salted = scram.salted_password(scram.SHA_256, "bob-secret", b"salt", 4096)
            asked = {
                "deletions": [],
                "upsertions": [
                    {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": salted}
                ],
            }
            answer = talk.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)
            assert isinstance(answer, dict) and not answer["results"][0]["error_code"]
        time.sleep(0.2)  # Kafka's broker may see its controller's change later
        yield node.port, peer.port


class Talk:
    """One connection. What is received is a mapping, bytes, or `closed`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)

    def raw(self, data: bytes) -> Any:
        try:
            self.socket.sendall(struct.pack(">i", len(data)) + data)
            return self.receive()
        except (BrokenPipeError, ConnectionResetError):
            return "closed"

    def receive(self) -> Any:
        head = self._exactly(4)
        return "closed" if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            data += piece
        return data

    def ask(self, api: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        answer = self.raw(messages.encode_request(api, version, 7, "t", values))
        if not isinstance(answer, bytes):
            return answer
        return messages.plain(messages.decode_response(api, version, answer)[1])

    def log_in(self, name: str = "alice", password: str = "alice-secret", version: int = 2) -> Any:
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})["error_code"] == 0
        token = f"\0{name}\0{password}".encode()
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})

    def scram(self, name: str = "bob", password: str = "bob-secret", change: Any = lambda token: token) -> list[Any]:
        """Both answers of an exchange, without what is random in them."""
        here = ScramClient(scram.SHA_256, name, password, bytes(17))
        first = self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": here.first()})
        if not isinstance(first, dict) or first["error_code"]:
            return [first]
        token = here.step(first["auth_bytes"])
        assert token is not None
        final = self.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": change(token)})
        if isinstance(final, dict) and not final["error_code"]:
            here.step(final["auth_bytes"])
            final = {"error_code": 0, "session_lifetime": final["session_lifetime"]}
        return ["challenge", final]


class Step(NamedTuple):
    """A request of a conversation, or bytes as they are."""

    api: ApiKey | None
    version: int
    values: Any


def handshake(mechanism: str = "PLAIN", version: int = 1) -> Step:
    return Step(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def token(data: bytes, version: int = 2) -> Step:
    return Step(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": data})


def raw(data: bytes) -> Step:
    return Step(None, 0, data)


VERSIONS = Step(ApiKey.API_VERSIONS, 0, {})
NAMED = Step(ApiKey.API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})
ODD = Step(ApiKey.API_VERSIONS, 3, {"client_software_name": "", "client_software_version": ""})
GROUPS = Step(ApiKey.LIST_GROUPS, 3, {"states_filter": []})
RIGHT, WRONG = token(b"\0alice\0alice-secret"), token(b"\0alice\0wrong")

CONVERSATIONS: dict[str, list[Step]] = {
    "a login": [VERSIONS, handshake(), RIGHT, GROUPS],
    "a login in old versions": [NAMED, handshake(), token(b"\0alice\0alice-secret", 0), GROUPS],
    "raw tokens": [handshake("PLAIN", 0), raw(b"\0alice\0alice-secret"), GROUPS],
    "a wrong raw token": [handshake("PLAIN", 0), raw(b"\0alice\0wrong")],
    "versions twice": [VERSIONS, VERSIONS],
    "odd versions, then right ones": [ODD, VERSIONS, handshake()],
    "groups first": [GROUPS],
    "groups after the versions": [VERSIONS, GROUPS],
    "a token first": [RIGHT],
    "no request": [raw(b"\0\0\0\0")],
    "an empty frame": [raw(b"")],
    "groups after the handshake": [handshake(), GROUPS, GROUPS],
    "the handshake twice": [handshake(), handshake()],
    "versions after the handshake": [handshake(), VERSIONS],
    "an unknown mechanism": [handshake("GSSAPI"), RIGHT],
    "an empty mechanism": [handshake("")],
    "a wrong password": [handshake(), WRONG, RIGHT],
    "an unknown name": [handshake(), token(b"\0carol\0alice-secret")],
    "no password": [handshake(), token(b"\0alice\0")],
    "no name": [handshake(), token(b"\0\0x")],
    "two parts": [handshake(), token(b"alice\0alice-secret")],
    "another authorization id": [handshake(), token(b"admin\0alice\0alice-secret")],
    "the same authorization id": [handshake(), token(b"alice\0alice\0alice-secret")],
    "an empty token": [handshake(), token(b"")],
    "a login after the login": [handshake(), RIGHT, handshake(), RIGHT, GROUPS],
    "a token after the login": [handshake(), RIGHT, RIGHT, GROUPS],
}


def said(port: int, steps: list[Step]) -> list[Any]:
    talk, found = Talk(port), []
    for step in steps:
        answer = talk.raw(step.values) if step.api is None else talk.ask(step.api, step.version, step.values)
        if step.api == ApiKey.API_VERSIONS and isinstance(answer, dict):
            answer = answer["error_code"]
        found.append(sorted(answer.items()) if isinstance(answer, dict) else answer)
        if answer == "closed":
            break
    return found


@pytest.mark.nightly(
    "tests/unit/server/security/test_authentication.py::test_a_login",
    "tests/unit/server/security/test_authentication.py::test_a_wrong_request_after_the_handshake_gets_its_own_answer",
)
def test_conversations(both: tuple[int, int]) -> None:
    different = []
    for name, steps in CONVERSATIONS.items():
        ours, theirs = (said(port, steps) for port in both)
        if ours != theirs:
            different.append(f"{name}:\n  {ours}\n  {theirs}")
    assert not different, "\n".join(different)


SCRAM_CHANGES = {
    "right": lambda final: final,
    "another nonce": lambda final: final.replace(b",p=", b"x,p="),
    "another binding": lambda final: final.replace(b"c=biws", b"c=eSws"),
    "another proof": lambda final: final[:-6] + b"AAAAA=",
}
DIFFERENT = {"unknown name", "a proof of wrong length", "an empty proof"}
"""Kafka refuses an unknown name at once, and closes without an answer where a proof has the wrong length."""


@pytest.mark.nightly(
    "tests/unit/security/test_scram.py::test_a_changed_final_message_is_refused",
    "tests/unit/server/security/test_authentication.py::test_scram_with_users_of_the_metadata",
)
def test_scram(both: tuple[int, int]) -> None:
    cases = {name: ("bob", "bob-secret", change) for name, change in SCRAM_CHANGES.items()}
    cases["a wrong password"] = ("bob", "wrong", SCRAM_CHANGES["right"])
    cases["unknown name"] = ("carol", "x", SCRAM_CHANGES["right"])
    cases["a proof of wrong length"] = ("bob", "bob-secret", lambda final: final[: final.index(b",p=")] + b",p=AAAA")
    different = {}
    for name, (user, password, change) in cases.items():
        answers = []
        for port in both:
            talk = Talk(port)
            talk.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
            found = talk.scram(user, password, change)
            if isinstance(found[-1], dict) and found[-1].get("session_lifetime"):
                found[-1]["session_lifetime"] = 0 < found[-1]["session_lifetime"] <= SESSION_MS
            answers.append(found)
        if answers[0] != answers[1]:
            different[name] = answers
    assert set(different) == {"unknown name", "a proof of wrong length"}, different


@pytest.mark.nightly(
    "tests/unit/server/security/test_authentication.py::test_a_session_ends",
    "tests/unit/server/security/test_authentication.py::test_another_login_has_to_be_the_same_user_by_the_same_mechanism",
)
def test_sessions(both: tuple[int, int]) -> None:
    """By SCRAM a session is 1.5 s; after it another login goes on, anything else is cut off."""

    def begun(port: int) -> Talk:
        talk = Talk(port)
        talk.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"})
        assert talk.scram()[-1]["error_code"] == 0
        return talk

    def shaken(talk: Talk, mechanism: str = "SCRAM-SHA-256") -> Any:
        answer = talk.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})
        return answer["error_code"] if isinstance(answer, dict) else answer

    def error(answer: Any) -> Any:
        return answer["error_code"] if isinstance(answer, dict) else answer

    def conversation(port: int) -> list[Any]:
        found: list[Any] = []
        again, late, other, bad, busy = (begun(port) for _ in range(5))
        found += [shaken(again), error(again.scram()[-1]), shaken(again), error(again.ask(*GROUPS))]  # type: ignore[arg-type]
        found += [shaken(other, "PLAIN"), error(other.ask(*RIGHT))]  # type: ignore[arg-type]
        found += [shaken(bad), error(bad.scram("bob", "wrong")[-1])]
        found += [shaken(busy), error(busy.ask(*GROUPS)), error(busy.ask(*GROUPS))]  # type: ignore[arg-type]
        expired = begun(port)
        time.sleep(SESSION_MS / 1000 + 0.3)
        found += [error(late.ask(*GROUPS))]  # type: ignore[arg-type]
        found += [shaken(expired), error(expired.scram()[-1]), error(expired.ask(*GROUPS))]  # type: ignore[arg-type]
        return found

    ours, theirs = (conversation(port) for port in both)
    assert ours == theirs
