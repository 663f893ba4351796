"""A node with TLS and every login under attack: before, during and after the handshake and the login.

Nobody gets in who does not know a secret; no line of the log is an error, and their number does not follow that of the
attacks; clients that are logged in are served all the while; nothing stays behind, without a collection of cycles.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.compiled import how
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import scram
from ottla.security.sasl.client import OAuthBearerClient, PlainClient, ScramClient
from ottla.server.node import Node
from tests.certificates import Authority, ssl_settings
from tests.fuzz.run import GROWN_MB_MAX, Watch, grown_mb
from tests.fuzz.tls_attacker import ALERT, HANDSHAKE, TlsAttacker
from tests.unit.server.node import Client, batch, running
from tests.unit.server.stub import until

PLAIN_USERS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="right" '
    'user_admin="right";'
)
AUTHORITY = Authority()
STRANGERS = Authority("Strangers")
ISSUER = "http://issuer"
LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
ANSWER_S = 60.0
LOOKED_AT_EVERY = 20
"""Rounds."""
LINES_PER_SECOND_MAX = 3 * 30
"""Lines about what strangers do: of three listeners, each with its limits for handshakes, frames and logins."""


@dataclass
class Done:
    problems: list[str] = field(default_factory=list)
    attacks: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Handshakes and logins that the node counted as failed."""
    lines: int = 0


class Setting:
    """The node, what it believes, and what an attacker knows of it."""

    def __init__(self, node: Node, directory: Path, key: ec.EllipticCurvePrivateKey, dice: Random) -> None:
        self.node, self.directory, self.key, self.dice = node, directory, key, dice

    def port(self, listener: str) -> int:
        return self.node.ports[listener]

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=AUTHORITY.pem)
        return context

    def token(self, key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        now = int(self.node.clock.now_ms() / 1000)
        said = {"iss": ISSUER, "aud": "ottla", "sub": "admin", "iat": now, "exp": now + 600, **claims}
        return jwt.encode(said, key or self.key, algorithm, headers={"kid": "one"})


Attack: TypeAlias = Callable[[Setting], Coroutine[Any, Any, None]]


# Bytes.


def mutated(data: bytes, dice: Random) -> bytes:
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        kind, at = dice.randrange(6), dice.randrange(len(found) + 1)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            found[at:at] = dice.randbytes(dice.choice((1, 4, 300)))
        elif kind == 2:
            del found[at : at + dice.choice((1, 2, 50))]
        elif kind == 3:
            found[at:at] = found[at : at + dice.choice((1, 20))] * dice.choice((1, 2, 100))
        elif kind == 4 and at < len(found):
            found[at] = dice.choice((0, 0x7F, 0x80, 0xFF, ord(","), ord("=")))
        else:
            del found[at:]
    return bytes(found)


async def sent(setting: Setting, listener: str, *parts: bytes) -> bytes:
    """Send the parts, whole or cut into pieces; returns what came before the end."""
    dice = setting.dice
    reader, writer = await asyncio.open_connection("127.0.0.1", setting.port(listener))
    try:
        for part in parts:
            step = dice.choice((len(part) or 1, 1000, 7)) if len(part) < 5000 else len(part)
            for start in range(0, len(part), step):
                if writer.is_closing():
                    return b""
                writer.write(part[start : start + step])
                await asyncio.sleep(0)
        return await ended(reader, writer, dice)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dice: Random) -> bytes:
    how = dice.random()
    if how < 0.2:
        return b""  # gone
    if not writer.is_closing():
        writer.write_eof()
    async with asyncio.timeout(ANSWER_S):
        return await reader.read()


def framed(data: bytes, size: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if size is None else size) + data


def request(key: ApiKey, version: int, **values: Any) -> bytes:
    return messages.encode_request(key, version, 7, "fuzz", values)


# TLS before the end of the handshake.


def hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def changed_hello(setting: Setting) -> None:
    await sent(setting, setting.dice.choice(("SSL", "SASL_SSL")), mutated(hello(setting.context()), setting.dice))


async def odd_records(setting: Setting) -> None:
    """Records of all kinds and lengths around a hello, and bytes that are none of TLS."""
    dice, whole = setting.dice, hello(setting.context())
    body = whole[5:]
    cut = dice.randrange(1, len(body))
    kinds = (20, 21, 22, 23, 24, 0, 255)
    pieces = [b"\x16\x03\x01" + struct.pack(">H", len(each)) + each for each in (body[:cut], body[cut:])]
    odd = bytes([dice.choice(kinds), dice.choice((0, 2, 3)), dice.randrange(5)])
    odd += struct.pack(">H", dice.choice((0, 1, 16_384, 16_385, 65_535))) + dice.randbytes(dice.choice((0, 2, 200)))
    strange = (odd, b"GET / HTTP/1.1\r\n\r\n", framed(request(ApiKey.API_VERSIONS, 0)), b"\x80\x2e\1\0\2" + bytes(43))
    pieces.insert(dice.randrange(3), dice.choice(strange))
    await sent(setting, dice.choice(("SSL", "SASL_SSL")), *pieces, whole if dice.random() < 0.3 else b"")


async def by_tls(setting: Setting, attack: Callable[[TlsAttacker], bytes]) -> None:
    attacker = TlsAttacker(setting.directory / f"keys-{setting.dice.getrandbits(64)}", setting.context())
    try:
        await attacker.connect(setting.port("SASL_SSL"))
        attacker.writer.write(attack(attacker))
        await ended(attacker.reader, attacker.writer, setting.dice)
    except ConnectionError:
        pass
    finally:
        attacker.writer.transport.abort()


async def records_after_the_handshake(setting: Setting) -> None:
    dice = setting.dice

    def attack(attacker: TlsAttacker) -> bytes:
        data, versions = b"", framed(request(ApiKey.API_VERSIONS, 0))
        for _ in range(dice.randrange(1, 8)):
            kind = dice.randrange(8)
            if kind == 0:
                record = attacker.record(dice.randbytes(dice.choice((1, 4, 100))), dice.choice((20, HANDSHAKE, 24, 0)))
            elif kind == 1:
                record = attacker.record(bytes([dice.choice((1, 2)), dice.randrange(120)]), ALERT)
            elif kind == 2:
                record = mutated(attacker.record(versions), dice)
            elif kind == 3:
                record = b"".join(attacker.key_update(asks=dice.random() < 0.5) for _ in range(dice.choice((1, 90))))
            elif kind == 4:
                record = attacker.record(b"", padding=dice.choice((0, 10_000))) * dice.choice((1, 40))
            elif kind == 5:
                record = attacker.record(bytes(dice.choice((16_385, 20_000, 65_500))))
            elif kind == 6:
                record = versions  # plain
            else:
                record = b"".join(attacker.record(versions[at : at + 1]) for at in range(len(versions)))
            data += record
        return data

    await by_tls(setting, attack)


async def frames_over_tls(setting: Setting) -> None:
    frames = conversation(setting)
    await by_tls(setting, lambda attacker: b"".join(map(attacker.record, frames)))


async def another_authority(setting: Setting) -> None:
    """A certificate of strangers, where one of ours is demanded."""
    file = setting.directory / "stranger.pem"
    if not file.exists():
        file.write_text(STRANGERS.issue("admin").pem())
    context = setting.context()
    if setting.dice.random() < 0.7:
        context.load_cert_chain(file)
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", setting.port("SSL"), ssl=context)
        try:
            writer.write(framed(request(ApiKey.METADATA, 9, topics=[])))
            async with asyncio.timeout(ANSWER_S):
                answer = await reader.read()
            if answer:
                raise AssertionError(f"a stranger was answered: {answer[:100]!r}")
        finally:
            writer.transport.abort()


# Logins.


def tokens(setting: Setting, mechanism: str) -> list[bytes]:
    """Messages of somebody who knows no secret, or whose messages were changed."""
    dice, name = setting.dice, setting.dice.choice(("admin", "ann", "nobody", "a=b,c", "\u2168", "x" * 3000))
    if mechanism == "PLAIN":
        found = [PlainClient(name, dice.choice(("wrong", "", "right ", "x" * 5000))).first()]
    elif mechanism == "OAUTHBEARER":
        found = [OAuthBearerClient(forged(setting)).first(), b"\x01"]
    else:
        client = ScramClient(scram.BY_NAME[mechanism], name, "wrong", dice.randbytes(scram.NONCE_BYTES))
        found = [client.first(), b"c=biws,r=" + dice.randbytes(8).hex().encode() + b",p=" + base64.b64encode(bytes(32))]
    return [mutated(each, dice) if dice.random() < 0.5 else each for each in found]


def forged(setting: Setting) -> str:
    dice, now = setting.dice, int(setting.node.clock.now_ms() / 1000)
    other = ec.generate_private_key(ec.SECP256R1())
    public = json.dumps(jwt.algorithms.ECAlgorithm.to_jwk(setting.key.public_key()))
    parts = ({"alg": dice.choice(("none", "HS256", "ES256", "RS256", ["ES256"], None)), "kid": "one"}, {"sub": "admin"})
    forgeries: list[Callable[[], str]] = [
        lambda: setting.token(other),
        lambda: setting.token(public, "HS256"),
        lambda: setting.token(iss="http://other"),
        lambda: setting.token(aud=["others"]),
        lambda: setting.token(exp=now - 1000),
        lambda: setting.token(sub=""),
        lambda: setting.token().rpartition(".")[0] + ".",
        lambda: (
            ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."
        ),
        lambda: "." * dice.choice((0, 2, 5000)) + "A" * dice.choice((1, 100_000)),
    ]
    return dice.choice(forgeries)()


def conversation(setting: Setting, *, steals: bool = True) -> list[bytes]:
    """Frames of a login as somebody may send it without waiting for an answer."""
    dice = setting.dice
    mechanism = dice.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "\0", "X" * 2000))
    version = dice.choice((0, 1))
    versions = (request(ApiKey.API_VERSIONS, 0), struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1))
    frames = [] if dice.random() < 0.5 else [dice.choice(versions)]
    frames.append(request(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism))
    known = mechanism if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER") else "PLAIN"
    frames += [
        token if version == 0 else request(ApiKey.SASL_AUTHENTICATE, dice.choice((0, 1, 2)), auth_bytes=token)
        for token in tokens(setting, known)
    ]
    topic = {"name": "stolen", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    others = (
        request(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=1000, validate_only=False),
        request(ApiKey.METADATA, 9, topics=None),
        request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN"),
        struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\0\xff\xff\x07" + b"\1\0" * 4000,
    )
    for _ in range(dice.choice((0, 1, 3))):
        frames.insert(dice.randrange(len(frames) + 1), dice.choice(others if steals else others[1:]))
    if dice.random() < 0.4:
        frames = [mutated(each, dice) if dice.random() < 0.4 else each for each in frames]
    found = [framed(each) for each in frames]
    if dice.random() < 0.1:
        found.insert(dice.randrange(len(found)), framed(b"", dice.choice((-1, 1 << 30, 524_289, 524_288, 0))))
    return found


async def frames_of_a_login(setting: Setting) -> None:
    await sent(setting, "SASL_PLAINTEXT", *conversation(setting))


async def scram_with_a_changed_proof(setting: Setting) -> None:
    """The whole exchange by the right password, with something changed on the way."""
    dice = setting.dice
    mechanism = dice.choice(list(scram.BY_NAME.values()))
    client = Client(*await asyncio.open_connection("127.0.0.1", setting.port("SASL_PLAINTEXT")))
    here = ScramClient(mechanism, "ann", "known", dice.randbytes(scram.NONCE_BYTES))
    try:
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism.name})
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": here.first()})
        token = here.step(answer["auth_bytes"])
        assert token is not None
        head, _, proof = token.partition(b",p=")
        wrong = bytearray(base64.b64decode(proof))
        wrong[dice.randrange(len(wrong))] ^= 1 << dice.randrange(8)
        changes = (
            head + b",p=" + base64.b64encode(bytes(wrong)),
            head + b",p=" + base64.b64encode(bytes(wrong[: dice.randrange(len(wrong))])),
            head + b"x,p=" + proof,
            head.replace(b"c=biws", b"c=eSws") + b",p=" + proof,
            head + b",a=1,p=" + proof,
            token[: dice.randrange(len(token))],
        )
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": dice.choice(changes)})
        if not answer["error_code"]:
            raise AssertionError("a changed proof is believed")
    finally:
        client.writer.transport.abort()


async def after_the_login(setting: Setting) -> None:
    """Another login on a connection that has one: wrong, of another user, cut off, between requests."""
    dice = setting.dice
    client = Client(*await asyncio.open_connection("127.0.0.1", setting.port("SASL_PLAINTEXT"), limit=1 << 22))
    try:
        await log_in(client)
        for each in conversation(setting, steals=False):
            client.writer.write(each)
        await ended(client.reader, client.writer, dice)
    except ConnectionError:
        pass
    finally:
        client.writer.transport.abort()


ATTACKS: tuple[Attack, ...] = (
    changed_hello, odd_records, records_after_the_handshake, frames_over_tls, another_authority, frames_of_a_login,
    scram_with_a_changed_proof, after_the_login,
)  # fmt: skip


# The node and those that watch it.


async def log_in(client: Client) -> None:
    await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": PlainClient("admin", "right").first()})
    assert not answer["error_code"], answer


class Provider(BaseHTTPRequestHandler):
    """Its keys, and nothing else."""

    document = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.document)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def provider(key: ec.EllipticCurvePrivateKey) -> Iterator[str]:
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    entry = {name: value for name, value in public.items() if name != "key_ops"}
    document = json.dumps({"keys": [{**entry, "kid": "one"}]}).encode()
    with HTTPServer(("127.0.0.1", 0), type("Keys", (Provider,), {"document": document})) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def settings(directory: Path, keys_url: str) -> dict[str, str]:
    identity = AUTHORITY.issue("node")
    found = {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in LISTENERS),
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "connections.max.reauth.ms": "3600000",
        **ssl_settings(directory, AUTHORITY, identity, "listener.name.ssl.", client_auth="required"),
        **ssl_settings(directory, AUTHORITY, identity, "listener.name.sasl_ssl."),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        found[f"listener.name.{listener}.plain.sasl.jaas.config"] = PLAIN_USERS
        prefix = f"listener.name.{listener}.oauthbearer.sasl.oauthbearer."
        found |= {f"{prefix}jwks.endpoint.url": keys_url, f"{prefix}expected.issuer": ISSUER}
        found[f"{prefix}expected.audience"] = "ottla"
    return found


class Bystanders:
    """Clients that are logged in, one with TLS: both are served at any time."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._clients: list[Client] = []
        self.written = 0

    async def begin(self) -> None:
        context = self._setting.context()
        for listener, over in (("SASL_PLAINTEXT", None), ("SASL_SSL", context)):
            port = self._setting.port(listener)
            client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22, ssl=over))
            await log_in(client)
            self._clients.append(client)
        await self._clients[0].create("kept")
        upsertions = [
            {
                "name": "ann",
                "mechanism": each.number,
                "iterations": 4096,
                "salt": b"salt",
                "salted_password": scram.salted_password(each, "known", b"salt", 4096),
            }
            for each in scram.BY_NAME.values()
        ]
        for each in upsertions:
            asked = {"deletions": [], "upsertions": [each]}
            await self._clients[0].ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked)

    async def work(self) -> None:
        for client in self._clients:
            async with asyncio.timeout(ANSWER_S):
                answer = await client.produce("kept", batch(10))
            assert (answer["error_code"], answer["base_offset"]) == (0, self.written), answer
            self.written += 1

    async def others(self) -> set[str]:
        """Topics that nobody should have been able to make."""
        answer = await self._clients[0].ask(ApiKey.METADATA, 9, {"topics": None})
        return {each["name"] for each in answer["topics"]} - {"kept"}

    async def by_token(self) -> None:
        """What is right is believed, after all that was wrong."""
        port = self._setting.port("SASL_PLAINTEXT")
        client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        token = OAuthBearerClient(self._setting.token()).first()
        answer = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert not answer["error_code"] and not answer["auth_bytes"], answer
        client.close()

    def end(self) -> None:
        for each in self._clients:
            each.close()


class Lines(logging.Handler):
    """Counts the lines about strangers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.name in ("ottla.network", "ottla.authentication") and record.levelno >= logging.INFO


@asynccontextmanager
async def watched(done: Done) -> AsyncIterator[Lines]:
    watch, lines = Watch(done.problems), Lines()
    root = logging.getLogger()
    before, level = grown_mb(), root.level
    root.setLevel(logging.INFO)
    for handler in (watch, lines):
        root.addHandler(handler)
    told = asyncio.get_running_loop()
    told.set_exception_handler(lambda _, context: done.problems.append(f"the loop: {context}"))
    try:
        yield lines
    finally:
        for handler in (watch, lines):
            root.removeHandler(handler)
        root.setLevel(level)
    if grown_mb() - before > GROWN_MB_MAX:
        done.problems.append(f"the process has grown by {grown_mb() - before:.0f} MB")


async def attack(directory: Path, seed: str, *, rounds: int | None = None, seconds: float = 0.0) -> Done:
    """So many rounds, or seconds, of attacks of every kind, ten at once."""
    done, dice = Done(), Random(seed)
    key = ec.generate_private_key(ec.SECP256R1())
    with provider(key) as url:
        async with watched(done) as lines, running(str(directory / "data"), settings(directory, url)) as node:
            setting = Setting(node, directory, key, dice)
            gc.collect()
            before = _there()  # of earlier tests
            bystanders = Bystanders(setting)
            await bystanders.begin()
            began, number = time.monotonic(), 0
            gc.collect()
            gc.disable()
            try:
                while number < rounds if rounds is not None else time.monotonic() - began < seconds:
                    number += 1
                    await _round(setting, done)
                    await bystanders.work()
                    if number % LOOKED_AT_EVERY == 0:
                        await _nothing_left(node)
                        done.problems += await _left_behind(before)
                        gc.collect()  # what the attackers leave
                    if done.problems:
                        break
            finally:
                gc.enable()
            done.lines, allowed = lines.count, LINES_PER_SECOND_MAX * (time.monotonic() - began + 2)
            if done.lines > allowed:
                done.problems.append(f"{done.lines} lines in the log")
            assert node.tls is not None
            done.refused["handshakes"] += sum(node.tls.failed.values())
            for each in node.listeners:
                if each.authentication is not None:
                    counts = each.authentication.counts
                    done.refused["logins"] += counts.failures
                    done.refused["other logins"] += counts.refailures
            if stolen := await bystanders.others():
                done.problems.append(f"a stranger made topics: {stolen}")
            await bystanders.by_token()
            bystanders.end()
    return done


async def _round(setting: Setting, done: Done) -> None:
    async def one(work: Attack) -> None:
        done.attacks[work.__name__] += 1
        try:
            await work(setting)
        except (AssertionError, TimeoutError) as error:
            done.problems.append(f"{work.__name__}: {error!r}")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    await asyncio.gather(*(one(each) for each in ATTACKS))


async def _nothing_left(node: Node) -> None:
    def is_left() -> bool:
        count = sum(len(each.connections) for each in node.listeners)
        return count > 2 or any(each.buffers.bytes for each in node.listeners)

    await until(lambda: not is_left())


KINDS = ("TlsConnection", "TlsSender", "Login", "Connection", "SecuredConnection", "Outbox")


def _there() -> Counter[str]:
    """Objects of a node's connections in this process."""
    return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KINDS)


async def _left_behind(before: Counter[str]) -> list[str]:
    """Connections that are gone are freed without a collection of cycles, once no thread sends for one any more: only
    those of the bystanders stay."""
    if how() != "compiled":  # frames of Python keep the exceptions that were raised through them
        return []

    def staying() -> list[str]:
        there = _there()
        return [f"{there[name] - before[name]} of {name} stay" for name in KINDS if there[name] > before[name] + 2]

    with suppress(TimeoutError):
        await until(lambda: not staying())
    return [f"{each}: {_referrers()}" for each in staying()]


def _referrers() -> list[str]:
    """What refers to each of the objects that may stay, for whoever has to find why one does."""
    there = [each for each in gc.get_objects() if type(each).__name__ in KINDS]
    return [
        f"{type(each).__name__} {id(each):#x}: "
        + ", ".join(f"{type(one).__name__} {one!r:.200}" for one in gc.get_referrers(each) if one is not there)
        for each in there
    ]


def shown(done: Done) -> str:
    return f"{done.attacks.total()} attacks; refused {dict(done.refused)}; {done.lines} lines in the log"
